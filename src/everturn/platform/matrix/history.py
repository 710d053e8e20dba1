"""Reads a room's history backwards: what the server left out of a sync, and what was sent before we joined."""

from __future__ import annotations

import json
from dataclasses import dataclass

import structlog

from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.rooms import STATE
from everturn.platform.matrix.wire import HistoryPage, MatrixEvent, understood

log = structlog.get_logger()
PAGES = 50  # how much of one room's history is read
ENCRYPTED = "m.room.encrypted"
REACTION = "m.reaction"
WANTED = ("m.room.message", "m.sticker", "m.room.redaction", REACTION, ENCRYPTED, *STATE)


@dataclass(frozen=True, slots=True)
class Missed:
    """The events that were found, oldest first; not whole: there was more than is read."""

    events: list[MatrixEvent]
    whole: bool

    def followed_by(self, events: list[MatrixEvent]) -> Missed:
        """These events with later ones after them."""
        return Missed([*self.events, *events], self.whole)


class History:
    """The history of one account's rooms. Each call raises PlatformError."""

    def __init__(self, server: Homeserver, user: str) -> None:
        self._server = server
        self._user = user
        self._of_others = json.dumps({"types": WANTED, "not_senders": [user]})
        self._of_all = json.dumps({"types": WANTED})

    async def missed(self, room_id: str, start: str, since: str) -> Missed:
        """The events between two places."""
        found: list[MatrixEvent] = []
        for _ in range(PAGES):
            page = await self._server.messages(room_id, start, self._of_others, end=since)
            found += understood(page.chunk)
            if is_last(page, start):
                return Missed(found[::-1], whole=True)
            start = page.end or ""
        return _too_much(room_id, found)

    async def since_invited(self, room_id: str, start: str, events: list[MatrixEvent]) -> Missed:
        """These newest events, and what people sent between inviting us and our joining: that is for us as well. Where we may
        not look so far back, only these.
        """
        found = events[::-1]
        for _ in range(PAGES):
            entered = next((place for place, each in enumerate(found) if self._entered(each)), None)
            if entered is not None:
                return Missed(found[:entered][::-1], whole=True)
            page = await self._server.messages(room_id, start, self._of_all)
            found += understood(page.chunk)
            if is_last(page, start):
                return Missed(events, whole=True)
            start = page.end or ""
        return _too_much(room_id, found)

    def _entered(self, event: MatrixEvent) -> bool:
        membership = event.membership_of(self._user)
        before = event.unsigned.prev_content.get("membership")
        return membership == "invite" or (membership == "join" and before not in {"invite", "join"})


def is_last(page: HistoryPage, start: str) -> bool:
    """Whether a page is the last one. An empty page may have more behind it: the server hides events we may not see."""
    return not page.end or page.end == start


def _too_much(room_id: str, found: list[MatrixEvent]) -> Missed:
    log.error("matrix history too long, oldest events skipped", room=room_id, read=len(found))
    return Missed(found[::-1], whole=False)
