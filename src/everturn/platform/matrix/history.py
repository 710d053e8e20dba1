"""A room's history, read backwards: what the server left out of its news, and what was said before we came in."""

from __future__ import annotations

import json
from dataclasses import dataclass

import structlog

from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.rooms import STATE
from everturn.platform.matrix.wire import Event, Page, understood

log = structlog.get_logger()
PAGES = 50  # so much of one room's history is read
ENCRYPTED = "m.room.encrypted"
REACTION = "m.reaction"
WANTED = ("m.room.message", "m.sticker", "m.room.redaction", REACTION, ENCRYPTED, *STATE)


@dataclass(frozen=True, slots=True)
class Missed:
    """What was found, oldest first; not whole: there was more than is read."""

    events: list[Event]
    whole: bool

    def followed_by(self, events: list[Event]) -> Missed:
        """With what came after it."""
        return Missed([*self.events, *events], self.whole)


class History:
    """The rooms of one account. Each call raises PlatformError."""

    def __init__(self, server: Homeserver, user: str) -> None:
        self._server = server
        self._user = user
        self._of_others = json.dumps({"types": WANTED, "not_senders": [user]})
        self._of_all = json.dumps({"types": WANTED})

    async def missed(self, room_id: str, start: str, since: str) -> Missed:
        """What was said between two places."""
        found: list[Event] = []
        for _ in range(PAGES):
            page = await self._server.messages(room_id, start, self._of_others, end=since)
            found += understood(page.chunk)
            if is_last(page, start):
                return Missed(found[::-1], whole=True)
            start = page.end or ""
        return _too_much(room_id, found)

    async def since_invited(self, room_id: str, start: str, events: list[Event]) -> Missed:
        """These newest events, and what people wrote before their invitation was taken: that is for us as well. Where we may
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

    def _entered(self, event: Event) -> bool:
        membership = event.membership_of(self._user)
        before = event.unsigned.prev_content.get("membership")
        return membership == "invite" or (membership == "join" and before not in {"invite", "join"})


def is_last(page: Page, start: str) -> bool:
    """Whether nothing is behind a page. An empty one may have more behind it: who asks sees not all that is there."""
    return not page.end or page.end == start


def _too_much(room_id: str, found: list[Event]) -> Missed:
    log.error(
        "too much was said in a room while nobody read it; the oldest is passed over", room=room_id, read=len(found)
    )
    return Missed(found[::-1], whole=False)
