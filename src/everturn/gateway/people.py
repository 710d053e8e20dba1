"""Letting people in and turning them out, while the gateway runs: the rows first, then what follows from them here."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec.structs import replace

from everturn import points
from everturn.decide.admission import ids_of
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.model import Json
from everturn.store.operations.acting import Impossible
from everturn.store.operations.acting_people import PersonAct, PersonActed, act_on_person
from everturn.store.operations.admission import TurnedOut, let_in, list_people, revoke, revoke_again
from everturn.store.operations.overview import knows_platform
from everturn.store.operations.pairing import Approval, Outcome, Paired, approve_code, approve_request, list_pairings

UNSEEN_S = 120.0  # no transaction that did not see a revocation is as long as that


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

    async def knows(self, platform: str) -> bool:
        """Whether there is such a platform, or was."""
        return platform in self._parts.platforms or await self._parts.store.read(knows_platform, platform)

    async def revoke_again(self) -> None:
        """End what a revocation of the last minutes could not see, because it was being accepted in that moment."""
        now = self._parts.clock.now()
        for platform, person, ended in await self._parts.store.run(revoke_again, now - UNSEEN_S, now):
            self._end(platform, person, ended)

    def listed(self) -> list[Json]:
        """What the settings say of each platform: who is allowed, and what strangers hear."""
        admission = self._parts.settings.admission
        return [
            {
                "platform": name,
                "owners": [each for each in admission.owners if each.startswith(f"{name}:")],
                "allow": list(policy.allow),
                "chats": list(policy.chats),
                "unknown": policy.for_strangers,
            }
            for name, policy in sorted(admission.policies.items())
            if name in self._parts.platforms and admission.governs(name)
        ]

    async def act(self, wanted: PersonAct) -> PersonActed | Impossible:
        """What an operator asks, once for each id; what follows happens even if who asked goes away."""
        acting = self._parts.store.run(act_on_person, replace(wanted, notice=self._parts.ids.next()))
        acting.add_done_callback(partial(self._acted, wanted))
        return await asyncio.shield(acting)

    def _acted(self, wanted: PersonAct, acting: asyncio.Future[PersonActed | Impossible]) -> None:
        done = None if acting.cancelled() or acting.exception() else acting.result()
        if not isinstance(done, PersonActed):
            return
        if wanted.action == "revoke":
            platform, _, person = done.person.partition(":")
            self._end(platform, person, list(done.ended))
        elif done.key is not None:
            points.reached("person.let_in")
            self._outbox.wake(done.key)

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
        if not revoking.cancelled() and revoking.exception() is None:
            self._end(platform, person, revoking.result())

    def _end(self, platform: str, person: str, turned_out: list[TurnedOut]) -> None:
        points.reached("person.revoked")
        ended = {each.key: each.turn for each in turned_out}
        for begun in self._turns.running():  # an operation that ran twice does not name them again
            theirs = begun.source.platform == platform and person in ids_of(begun.source)
            if theirs or f"{platform}:{person}" in begun.authors:
                ended.setdefault(begun.key, begun.turn)
        for key, turn in ended.items():
            if turn is not None:
                self._turns.stop_turn(key, turn)
                self._parts.hub.ended(key)
            self._outbox.wake(key)  # a bubble that waited to be finished has its last shape now
            self._turns.wake(key)
