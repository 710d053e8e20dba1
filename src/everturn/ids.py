"""Ids made by the caller, so that an operation that runs twice finds its own rows.

An id is a positive 63-bit number that grows with time: 42 bits of milliseconds, 10 of the instance, 11 of a counter. Rows
keyed by it are appended at the right edge of their table, whatever the number of sessions.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn.clock import Clock

EPOCH_MS = 1_704_067_200_000  # 2024-01-01
_COUNTER_BITS = 11
_NODE_BITS = 10


@dataclass(frozen=True, slots=True)
class Machine:
    """What a process takes from its machine, beside the clock: its name, its number and chance. A simulation brings its own."""

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    chance: random.Random = field(default_factory=secrets.SystemRandom)  # nobody can guess what it draws


class Ids:
    """Makes ids and session ids for one instance; they grow even if the clock goes back, and beyond `after`."""

    def __init__(self, clock: Clock, node: int, after: int = 0, machine: Machine | None = None) -> None:
        self._clock = clock
        self._node = (node % (1 << _NODE_BITS)) << _COUNTER_BITS
        self._tick = ((after >> (_COUNTER_BITS + _NODE_BITS)) + 1) << _COUNTER_BITS if after else 0
        self._second, self._stamp = -1, ""
        seed = (machine or Machine()).chance.randbytes(32)
        self._random = random.Random(seed)  # noqa: S311  a session id is no secret, and this one is fast

    def next(self) -> int:
        """A new id, larger than every earlier one of this instance."""
        floor = (int(self._clock.now() * 1000) - EPOCH_MS) << _COUNTER_BITS
        self._tick = max(self._tick + 1, floor)
        millis, counter = self._tick >> _COUNTER_BITS, self._tick & ((1 << _COUNTER_BITS) - 1)
        return (millis << (_COUNTER_BITS + _NODE_BITS)) | self._node | counter

    def session(self) -> str:
        """A session id: date, time and eight random hex digits."""
        second = int(self._clock.now())
        if second != self._second:
            self._second, self._stamp = second, f"{datetime.fromtimestamp(second, UTC):%Y%m%d_%H%M%S}"
        return f"{self._stamp}_{self._random.getrandbits(32):08x}"


class Instance:
    """This process of the gateway. Its number and its ids are known once it has joined the others of its database."""

    def __init__(self, clock: Clock, machine: Machine) -> None:
        self.clock = clock
        self.machine = machine
        self.number = 0
        self.safe_until = (
            0.0  # until then, by the monotonic clock, no other instance that ran meanwhile takes this one for dead
        )
        self.ids = Ids(clock, 0, machine=machine)

    def join(self, number: int, newest: int) -> None:
        """Take the number that the database gave, and make ids beyond the newest one there."""
        self.number, self.ids = number, Ids(self.clock, number, newest, self.machine)


def oldest_id(at: float) -> int:
    """The smallest id that could have been made at `at`: for 'everything older than'."""
    return max(0, int(at * 1000) - EPOCH_MS) << (_COUNTER_BITS + _NODE_BITS)


def made_at(number: int) -> float:
    """When the id was made, in UTC seconds."""
    return ((number >> (_COUNTER_BITS + _NODE_BITS)) + EPOCH_MS) / 1000


def made_by(number: int, node: int) -> bool:
    """Whether the id may be one of this instance's."""
    return (number >> _COUNTER_BITS) % (1 << _NODE_BITS) == node % (1 << _NODE_BITS)
