"""The slots of running turns: which keys have one, how many are free, and when all are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from everturn.turns.attempt import Attempt
from everturn.turns.rows.turn_values import StartedTurn, Streamed


@dataclass(slots=True)
class RunningTurn:
    """A running turn of this process, with its task."""

    attempt: Attempt
    task: asyncio.Task[bool]

    @property
    def begun(self) -> StartedTurn:
        """The turn, with all that joined it."""
        return self.attempt.begun


class Slots:
    """Assigns slots to keys. A key has one from its claim in the database until its turn has ended."""

    def __init__(self, limit: int) -> None:
        self.running: dict[str, RunningTurn] = {}
        self._limit = limit
        self._claiming: dict[str, bool] = {}  # the turn is not begun yet; whether it resumes
        self._quiet = asyncio.Event()
        self._quiet.set()

    def has(self, key: str) -> bool:
        """Whether the key's turn is being begun or run."""
        return key in self.running or key in self._claiming

    def free(self) -> int:
        """How many slots are free."""
        return self._limit - len(self.running) - len(self._claiming)

    def resumed(self) -> int:
        """How many interrupted turns have a slot."""
        return sum(each.begun.attempt > 1 for each in self.running.values()) + sum(self._claiming.values())

    def take(self, key: str, *, resumes: bool) -> None:
        """Assign a slot to a key that is being claimed."""
        self._claiming[key] = resumes
        self._quiet.clear()

    def begin(self, running: RunningTurn) -> None:
        """Record that the turn of a claimed key runs now."""
        self._claiming.pop(running.begun.key, None)
        self.running[running.begun.key] = running
        self._quiet.clear()

    def give_back(self, key: str) -> None:
        """Free the slot of a key whose claim found no turn, or whose turn has ended."""
        self._claiming.pop(key, None)
        self.running.pop(key, None)
        if not self.running and not self._claiming:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until every slot is free."""
        await self._quiet.wait()


class Streams:
    """The streamed texts of the answers in progress in this process."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def of(self, key: str) -> Streamed | None:
        """What the key's turn has streamed, if it runs here."""
        running = self._slots.running.get(key)
        return None if running is None else running.attempt.streamed()

    def hold(self, key: str, *, held: bool) -> None:
        """Pause or continue streaming while something is committed that may end the key's turn: what people have seen is
        what is committed.
        """
        if (running := self._slots.running.get(key)) is not None:
            running.attempt.stream_held = held
