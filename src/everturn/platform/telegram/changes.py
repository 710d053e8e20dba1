"""Edits that come by webhook beside what they change: requests that run side by side have no order.

An edit that comes before its message, or while that is being stored, finds nothing to change in the database. It is here
for some seconds, in memory alone: a death between the two leaves the message with its first words.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.decide.edits import folded
from everturn.model import Heard, Inbound

REMEMBERED_S = 5.0
MOST = 1000


class Changes:
    """The edits of the last seconds, and the messages that are being stored; each by the message's id, the oldest first."""

    def __init__(self) -> None:
        self._edits: dict[str, tuple[float, tuple[Inbound, ...]]] = {}
        self._under_way: dict[str, tuple[float, tuple[Inbound, ...]]] = {}

    def heard(self, inbounds: Sequence[Inbound], now: float) -> list[Inbound]:
        """What is to be taken now: messages with the words of their last edit, edits after the message they change."""
        self.forget(now)
        return [each for inbound in inbounds for each in self._heard(inbound, now)]

    def _heard(self, inbound: Inbound, now: float) -> list[Inbound]:
        match inbound.what:
            case Heard.EDITED:
                of = inbound.of or ""
                _, before = self._edits.pop(of, (now, ()))
                self._edits[of] = now, (*(each for each in before if each.id != inbound.id), inbound)
                return [*self._under_way.get(of, (now, ()))[1], inbound]
            case Heard.SAID:
                edits = self._edits.get(inbound.id, (now, ()))[1]
                revised = folded([inbound, *sorted(edits, key=lambda each: each.edition or 0)])[0]
                self._under_way[inbound.id] = now, (revised,)
                return [revised]
            case _:
                return [inbound]

    def took(self, inbound: Inbound) -> None:
        """It is stored."""
        self._under_way.pop(inbound.id, None)

    def forget(self, now: float) -> None:
        """What is over: only the oldest are looked at."""
        for heard in (self._edits, self._under_way):
            while heard and (len(heard) > MOST or now - next(iter(heard.values()))[0] >= REMEMBERED_S):
                del heard[next(iter(heard))]
