"""The rooms whose news are not read yet, each with the place behind which it is unread. As long as there is one, the place of
the account is not committed, so that the next life reads from there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from everturn.decide.matrix_unread import is_hopeless, is_loud
from everturn.model import Inbound
from everturn.platform.matrix.wire import Joined

LOOK_EVERY_S = 1.0  # so often we look whether a room is read that took longer than the poll waited for it


@dataclass(frozen=True, slots=True)
class Unread:
    """What is to be read in one room: the newest news, and all behind `since`."""

    about: Joined
    since: str
    new: bool  # we came into the room with it
    failures: int = 0
    failing_since: float = 0.0
    not_before: float = 0.0
    error: str = ""

    def followed_by(self, later: Unread) -> Unread:
        """With later news, before which there is a hole now."""
        timeline = structs.replace(later.about.timeline, limited=True)
        return replace(self, about=structs.replace(later.about, timeline=timeline), new=self.new or later.new)


class Begun(NamedTuple):
    """A room that is being read."""

    unread: Unread
    task: asyncio.Task[list[Inbound]]


Read = Callable[[str, Unread], Coroutine[object, object, list[Inbound]]]


class UnreadRooms:
    """All of them: those that wait, and those that are being read. Times are those of a clock that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rooms: dict[str, Unread] = {}
        self._begun: dict[str, Begun] = {}

    def __bool__(self) -> bool:
        return bool(self._rooms or self._begun)

    def clear(self) -> None:
        """All is read anew, from a place before them."""
        for room_id in [*self._rooms, *self._begun]:
            self.drop(room_id)

    def drop(self, room_id: str) -> None:
        """We are not in it any more."""
        self._rooms.pop(room_id, None)
        if room_id in self._begun:
            self._begun.pop(room_id).task.cancel()

    def add(self, room_id: str, unread: Unread) -> None:
        """There are news in a room."""
        before = self._rooms.get(room_id)
        self._rooms[room_id] = before.followed_by(unread) if before else unread

    async def read(self, read: Read, patience_s: float) -> AsyncIterator[list[Inbound]]:
        """Begin to read those that are due, beside each other. What was said in a room comes as soon as that room is read, be it
        one that was begun before; those that take longer than our patience are left for the next time.
        """
        begun = [self._begin(room_id, read) for room_id in self._due()]
        now = asyncio.get_running_loop().time
        until = now() + patience_s
        while True:
            while (room_id := self._finished()) is not None:
                yield self._begun.pop(room_id).task.result()
            left = [each for each in begun if not each.done()]
            if not left or now() >= until:
                return
            await asyncio.wait(left, timeout=until - now(), return_when=asyncio.FIRST_COMPLETED)

    def _due(self) -> list[str]:
        """Not those that are being read: what came since then is read after it."""
        waiting = ((each, unread) for each, unread in self._rooms.items() if each not in self._begun)
        return [each for each, unread in waiting if unread.not_before <= self._now()]

    def _begin(self, room_id: str, read: Read) -> asyncio.Task[list[Inbound]]:
        unread = self._rooms.pop(room_id)
        task = asyncio.create_task(read(room_id, unread))
        self._begun[room_id] = Begun(unread, task)
        return task

    def _finished(self) -> str | None:
        return next((each for each, begun in self._begun.items() if begun.task.done()), None)

    def put_back(self, room_id: str, unread: Unread, error: str, wait_s: float) -> bool:
        """It could not be read; whether that is tried again, with what came since."""
        now, failures = self._now(), unread.failures + 1
        since = unread.failing_since if unread.failures else now
        if is_hopeless(failures, now - since):
            return False
        again = replace(unread, failures=failures, failing_since=since, not_before=now + wait_s, error=error)
        later = self._rooms.get(room_id)
        self._rooms[room_id] = again.followed_by(later) if later else again
        return True

    def next_in_s(self, longest_s: float) -> float:
        """How long until one may be read again, or may have been read; at most so long."""
        waits = [each.not_before - self._now() for room_id, each in self._rooms.items() if room_id not in self._begun]
        looks = [LOOK_EVERY_S] if self._begun else []
        return max(0.0, min([longest_s, *looks, *waits]))

    def trouble(self) -> str | None:
        """What is wrong with them, in words, once it lasts."""
        all_of_them = self._rooms | {room_id: begun.unread for room_id, begun in self._begun.items()}
        loud = [(room_id, each.error) for room_id, each in all_of_them.items() if is_loud(each.failures)]
        if not loud:
            return None
        room_id, error = loud[0]
        others = f" (and {len(loud) - 1} more)" if len(loud) > 1 else ""
        return f"the room {room_id}{others} can not be read, all others are: {error}"
