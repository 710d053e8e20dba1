"""The rooms with unread news, each with the place behind which it is unread. As long as there is one, the place of
the account is not committed, so that the next process reads from there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from everturn.model import Inbound
from everturn.platform.matrix.rules.unread import is_hopeless, is_loud
from everturn.platform.matrix.wire import JoinedRoom

LOOK_EVERY_S = 1.0  # how often we check whether a room is read that took longer than the poll waited for it


@dataclass(frozen=True, slots=True)
class Unread:
    """The unread news of one room: the newest events, and all behind `since`."""

    about: JoinedRoom
    since: str
    new: bool  # we joined the room with it
    failures: int = 0
    failing_since: float = 0.0
    not_before: float = 0.0
    error: str = ""

    def followed_by(self, later: Unread) -> Unread:
        """These news with later ones, before which there is a gap now."""
        timeline = structs.replace(later.about.timeline, limited=True)
        return replace(self, about=structs.replace(later.about, timeline=timeline), new=self.new or later.new)


class RoomRead(NamedTuple):
    """A room that is being read."""

    unread: Unread
    task: asyncio.Task[list[Inbound]]


Read = Callable[[str, Unread], Coroutine[object, object, list[Inbound]]]


class UnreadRooms:
    """All unread rooms: those that wait, and those that are being read. Times are monotonic."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rooms: dict[str, Unread] = {}
        self._begun: dict[str, RoomRead] = {}

    def __bool__(self) -> bool:
        return bool(self._rooms or self._begun)

    def clear(self) -> None:
        """Drop all of them: everything is read again, from a place before them."""
        for room_id in [*self._rooms, *self._begun]:
            self.drop(room_id)

    def drop(self, room_id: str) -> None:
        """Drop a room that we left."""
        self._rooms.pop(room_id, None)
        if room_id in self._begun:
            self._begun.pop(room_id).task.cancel()

    def add(self, room_id: str, unread: Unread) -> None:
        """Add news of a room."""
        before = self._rooms.get(room_id)
        self._rooms[room_id] = before.followed_by(unread) if before else unread

    async def read(self, read: Read, patience_s: float) -> AsyncIterator[list[Inbound]]:
        """Begin to read the rooms that are due, concurrently. A room's messages are yielded as soon as it is read, also those
        of a room that was begun before; rooms that take longer than `patience_s` are left for the next call.
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
        """The rooms to read now. Not those that are being read: what arrived since is read after it."""
        waiting = ((each, unread) for each, unread in self._rooms.items() if each not in self._begun)
        return [each for each, unread in waiting if unread.not_before <= self._now()]

    def _begin(self, room_id: str, read: Read) -> asyncio.Task[list[Inbound]]:
        unread = self._rooms.pop(room_id)
        task = asyncio.create_task(read(room_id, unread))
        self._begun[room_id] = RoomRead(unread, task)
        return task

    def _finished(self) -> str | None:
        return next((each for each, begun in self._begun.items() if begun.task.done()), None)

    def put_back(self, room_id: str, unread: Unread, error: str, wait_s: float) -> bool:
        """Put a room back that could not be read; returns whether it is retried, with what arrived since."""
        now, failures = self._now(), unread.failures + 1
        since = unread.failing_since if unread.failures else now
        if is_hopeless(failures, now - since):
            return False
        again = replace(unread, failures=failures, failing_since=since, not_before=now + wait_s, error=error)
        later = self._rooms.get(room_id)
        self._rooms[room_id] = again.followed_by(later) if later else again
        return True

    def next_in_s(self, longest_s: float) -> float:
        """Seconds until a room may be read again, or may have been read; at most `longest_s`."""
        waits = [each.not_before - self._now() for room_id, each in self._rooms.items() if room_id not in self._begun]
        looks = [LOOK_EVERY_S] if self._begun else []
        return max(0.0, min([longest_s, *looks, *waits]))

    def trouble(self) -> str | None:
        """What is wrong with the rooms, as a text for the owner, once it lasts."""
        all_of_them = self._rooms | {room_id: begun.unread for room_id, begun in self._begun.items()}
        loud = [(room_id, each.error) for room_id, each in all_of_them.items() if is_loud(each.failures)]
        if not loud:
            return None
        room_id, error = loud[0]
        others = f" (and {len(loud) - 1} more)" if len(loud) > 1 else ""
        return f"the room {room_id}{others} cannot be read, all others can: {error}"
