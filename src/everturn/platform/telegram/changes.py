"""Edits that arrive by webhook concurrently with the message they change: concurrent requests have no order.

An edit that arrives before its message, or while that is being stored, finds nothing to change in the database. It is here
for some seconds, in memory only: a crash between the two leaves the message with its first text.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.model import Heard, Inbound
from everturn.platform.telegram.rules.edits import folded

REMEMBERED_S = 5.0
MOST_EDITS = 1000


class RecentEdits:
    """The edits of the last seconds, and the messages that are being stored; each by the message's id, the oldest first."""

    def __init__(self) -> None:
        self._edits: dict[str, tuple[float, tuple[Inbound, ...]]] = {}
        self._storing: dict[str, tuple[float, tuple[Inbound, ...]]] = {}

    def add(self, inbounds: Sequence[Inbound], now: float) -> list[Inbound]:
        """The messages to take now: each with the text of its last edit, and edits after the message they change."""
        self.forget(now)
        return [each for inbound in inbounds for each in self._add(inbound, now)]

    def _add(self, inbound: Inbound, now: float) -> list[Inbound]:
        match inbound.what:
            case Heard.EDITED:
                of = inbound.of or ""
                _, before = self._edits.pop(of, (now, ()))
                self._edits[of] = now, (*(each for each in before if each.id != inbound.id), inbound)
                return [*self._storing.get(of, (now, ()))[1], inbound]
            case Heard.SAID:
                edits = self._edits.get(inbound.id, (now, ()))[1]
                revised = folded([inbound, *sorted(edits, key=lambda each: each.edition or 0)])[0]
                self._storing[inbound.id] = now, (revised,)
                return [revised]
            case _:
                return [inbound]

    def mark_stored(self, inbound: Inbound) -> None:
        """Record that a message is stored."""
        self._storing.pop(inbound.id, None)

    def forget(self, now: float) -> None:
        """Forget old edits: only the oldest are looked at."""
        for found in (self._edits, self._storing):
            while found and (len(found) > MOST_EDITS or now - next(iter(found.values()))[0] >= REMEMBERED_S):
                del found[next(iter(found))]
