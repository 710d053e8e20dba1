"""The slots of running turns: who has one, how many are left, and when nobody has any."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from everturn.gateway.attempt import Attempt
from everturn.store.operations.turn_values import Begun, Streamed


@dataclass(slots=True)
class Running:
    """A turn of this process."""

    attempt: Attempt
    task: asyncio.Task[bool]

    @property
    def begun(self) -> Begun:
        """The turn, with all that joined it."""
        return self.attempt.begun


class Slots:
    """A key has a slot from the moment it is claimed in the database until its turn has ended."""

    def __init__(self, limit: int) -> None:
        self.running: dict[str, Running] = {}
        self._limit = limit
        self._claiming: dict[str, bool] = {}  # the turn is not begun yet; whether it resumes
        self._quiet = asyncio.Event()
        self._quiet.set()

    def has(self, key: str) -> bool:
        """Whether the key's turn is being begun or run."""
        return key in self.running or key in self._claiming

    def free(self) -> int:
        """How many are left."""
        return self._limit - len(self.running) - len(self._claiming)

    def resumed(self) -> int:
        """How many interrupted turns have one."""
        return sum(each.begun.attempt > 1 for each in self.running.values()) + sum(self._claiming.values())

    def take(self, key: str, *, resumes: bool) -> None:
        """The key is being claimed."""
        self._claiming[key] = resumes
        self._quiet.clear()

    def begin(self, running: Running) -> None:
        """Its turn runs now."""
        self._claiming.pop(running.begun.key, None)
        self.running[running.begun.key] = running
        self._quiet.clear()

    def give_back(self, key: str) -> None:
        """The claim came to nothing, or the turn has ended."""
        self._claiming.pop(key, None)
        self.running.pop(key, None)
        if not self.running and not self._claiming:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until nobody has a slot."""
        await self._quiet.wait()


class Streams:
    """What the turns of this process have streamed of their answers."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def of(self, key: str) -> Streamed | None:
        """What the key's turn has streamed, if it runs here."""
        running = self._slots.running.get(key)
        return None if running is None else running.attempt.streamed()

    def hold(self, key: str, *, held: bool) -> None:
        """While something is committed that may end the key's turn, nothing more is streamed: what people have seen is what
        is committed.
        """
        if (running := self._slots.running.get(key)) is not None:
            running.attempt.stream_held = held
