"""Letting people in and turning them out, while the gateway runs: the rows first, then what follows from them here."""

from __future__ import annotations

import asyncio
from functools import partial

from everturn import points
from everturn.decide.admission import ids_of
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.model import Json
from everturn.store.operations.admission import TurnedOut, let_in, list_people, revoke
from everturn.store.operations.pairing import Approval, Outcome, Paired, approve_code, approve_request, list_pairings


class People:
    """Who may speak, for who administers the gateway."""

    def __init__(self, parts: Parts, turns: Turns, outbox: Outbox) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox

    async def all(self) -> tuple[list[Json], list[Json]]:
        """The open requests, and the people who were let in or turned out."""
        store = self._parts.store
        return await store.read(list_pairings, self._parts.clock.now()), await store.read(list_people)

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Let in who was given this code; returns after the commit."""
        return await self._approved(self._parts.store.run(approve_code, code, platform, self._approval(owner)))

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Let in who asked under this number."""
        return await self._approved(self._parts.store.run(approve_request, number, self._approval(owner)))

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Let somebody in who did not ask, or was turned out."""
        await self._parts.store.run(let_in, platform, [person], None, self._parts.clock.now(), owner=owner)

    async def revoke(self, platform: str, person: str) -> list[TurnedOut]:
        """Turn somebody out: what of theirs runs here is ended as soon as that is committed."""
        revoking = self._parts.store.run(revoke, platform, person, self._parts.clock.now())
        revoking.add_done_callback(partial(self._revoked, platform, person))
        return await asyncio.shield(revoking)

    def _approval(self, owner: bool) -> Approval:  # noqa: FBT001  as it was asked
        return Approval(at=self._parts.clock.now(), notice=self._parts.ids.next(), owner=owner)

    async def _approved(self, approving: asyncio.Future[Paired]) -> Paired:
        # What follows the commit happens even if this task is cancelled meanwhile.
        approving.add_done_callback(self._told)
        return await asyncio.shield(approving)

    def _told(self, approving: asyncio.Future[Paired]) -> None:
        if approving.cancelled() or approving.exception() is not None:
            return
        paired = approving.result()
        if paired.outcome is Outcome.LET_IN and paired.key is not None:
            points.reached("person.let_in")
            self._outbox.wake(paired.key)

    def _revoked(self, platform: str, person: str, revoking: asyncio.Future[list[TurnedOut]]) -> None:
        if revoking.cancelled() or revoking.exception() is not None:
            return
        points.reached("person.revoked")
        ended = {each.key: each.turn for each in revoking.result()}
        for begun in self._turns.running():  # an operation that ran twice does not name them again
            if begun.source.platform == platform and person in ids_of(begun.source):
                ended.setdefault(begun.key, begun.turn)
        for key, turn in ended.items():
            if turn is not None:
                self._turns.stop_turn(key, turn)
                self._parts.hub.ended(key)
            self._outbox.wake(key)
            self._turns.wake(key)
