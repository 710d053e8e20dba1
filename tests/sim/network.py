"""The network between the gateway and everything else: how long a message is on its way, and whether it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from everturn.errors import TryLater
from tests.sim.loop import OUTSIDE, SimLoop, wake

LATE_S = 1.5  # no request arrives later than that after its sender died


class Network:
    """Draws latencies and faults. `bad` times have many faults, `late` times long latencies."""

    def __init__(self, loop: SimLoop, chance: Random, trace: Callable[..., None]) -> None:
        self.trace = trace
        self.faulty = True
        self.bad_until = 0.0
        self.late_until = 0.0
        self._loop = loop
        self._chance = chance

    def now(self) -> float:
        """Virtual time."""
        return self._loop.at

    def fault(self, shares: tuple[tuple[float, str], ...]) -> str:
        """Draw what goes wrong with a request; empty: nothing."""
        if not self.faulty:
            return ""
        roll = self._chance.random() / (8 if self.bad_until > self._loop.at else 1)
        return next((fault for limit, fault in shares if roll < limit), "")

    def latency_s(self) -> float:
        """How long a message is on its way."""
        if self.late_until > self._loop.at and self._chance.random() < 0.2:
            return self._chance.uniform(0.5, LATE_S)
        return float(10 ** self._chance.uniform(-3, -0.5))

    def later(self, work: Callable[..., object], *args: Any) -> None:
        """Let something arrive. It belongs to nobody: its sender may die meanwhile."""
        self._loop.call_later(self.latency_s(), work, *args, context=OUTSIDE)

    def after(self, most_s: float, work: Callable[..., object], *args: Any) -> None:
        """Let something arrive within so many seconds."""
        self._loop.call_later(self._chance.uniform(0, most_s), work, *args, context=OUTSIDE)

    async def trip(self, shares: tuple[tuple[float, str], ...]) -> None:
        """A request and its answer, for what needs no more than that it was answered. Raises TryLater when it failed."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(2 * self.latency_s(), wake, done)
        fault = self.fault(shares)
        await done
        if fault:
            raise TryLater("the platform does not answer", 0.0)
