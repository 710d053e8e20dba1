"""Who may speak: pairing codes, approvals of owners, and strangers, who are only counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.clock import Clock
from everturn.ids import Instance
from everturn.model import Json
from everturn.operator.rows.actions import Impossible
from everturn.operator.rows.overview import knows_platform
from everturn.operator.rows.reading import PersonAct, PersonActed, act_on_person
from everturn.outbox.hub import Hub
from everturn.outbox.sender import ReplySender
from everturn.people.rows.access import StoppedKey, approve_person, list_people, revoke, revoke_again
from everturn.people.rows.pairing import Approval, Paired, PairingOutcome, approve_code, approve_request, list_pairings
from everturn.people.rules.access import Admission, ids_of
from everturn.platform.connected import Platforms
from everturn.store.interface import Store
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
EVERY_S = 60.0  # a log line about strangers
UNSEEN_S = 120.0  # no transaction that did not see a revocation is as long as that


class AccessControl:
    """Lists, approves, allows and revokes people, for those who administer the gateway."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        admission: Admission,
        platforms: Platforms,
        *,
        hub: Hub,
        turns: Scheduler,
        outbox: ReplySender,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._admission = admission
        self._platforms = platforms
        self._hub = hub
        self._turns = turns
        self._outbox = outbox

    async def all(self) -> tuple[list[Json], list[Json]]:
        """The open access requests, and the people who were approved or revoked."""
        store = self._store
        return await store.read(list_pairings, self._clock.now()), await store.read(list_people)

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Approve the access request with this code; returns after the commit."""
        return await self._approved(self._store.run(approve_code, code, platform, self._approval(owner)))

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Approve the access request with this number."""
        return await self._approved(self._store.run(approve_request, number, self._approval(owner)))

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Approve somebody who did not request access, or was revoked."""
        await self._store.run(approve_person, platform, [person], None, self._clock.now(), owner=owner)

    async def revoke(self, platform: str, person: str) -> list[StoppedKey]:
        """Revoke somebody; what of theirs runs here is ended as soon as that is committed."""
        revoking = self._store.run(revoke, platform, person, self._clock.now())
        revoking.add_done_callback(partial(self._revoked, platform, person))
        return await asyncio.shield(revoking)

    async def knows(self, platform: str) -> bool:
        """Whether a platform of this name exists, or did."""
        return platform in self._platforms.adapters or await self._store.read(knows_platform, platform)

    async def revoke_again(self) -> None:
        """End work that a revocation of the last minutes could not see, because it was being accepted in that moment."""
        now = self._clock.now()
        for platform, person, ended in await self._store.run(revoke_again, now - UNSEEN_S, now):
            self._end(platform, person, ended)

    def listed(self) -> list[Json]:
        """The settings of each platform: who is allowed, and what strangers get."""
        admission = self._admission
        return [
            {
                "platform": name,
                "owners": [each for each in admission.owners if each.startswith(f"{name}:")],
                "allow": list(policy.allow),
                "chats": list(policy.chats),
                "unknown": policy.for_strangers,
            }
            for name, policy in sorted(admission.policies.items())
            if name in self._platforms.adapters and admission.governs(name)
        ]

    async def act(self, wanted: PersonAct) -> PersonActed | Impossible:
        """Do an operator's action, once for each id; what follows happens even if the request is cancelled."""
        acting = self._store.run(act_on_person, replace(wanted, notice=self._instance.ids.next()))
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
            points.reached("person.approved")
            self._outbox.wake(done.key)

    def _approval(self, owner: bool) -> Approval:  # noqa: FBT001  as it was asked
        return Approval(at=self._clock.now(), notice=self._instance.ids.next(), owner=owner)

    async def _approved(self, approving: asyncio.Future[Paired]) -> Paired:
        # What follows the commit happens even if this task is cancelled meanwhile.
        approving.add_done_callback(self._after_approval)
        return await asyncio.shield(approving)

    def _after_approval(self, approving: asyncio.Future[Paired]) -> None:
        if approving.cancelled() or approving.exception() is not None:
            return
        paired = approving.result()
        if paired.outcome is PairingOutcome.APPROVED and paired.key is not None:
            points.reached("person.approved")
            self._outbox.wake(paired.key)

    def _revoked(self, platform: str, person: str, revoking: asyncio.Future[list[StoppedKey]]) -> None:
        if not revoking.cancelled() and revoking.exception() is None:
            self._end(platform, person, revoking.result())

    def _end(self, platform: str, person: str, stopped: list[StoppedKey]) -> None:
        points.reached("person.revoked")
        ended = {each.key: each.turn for each in stopped}
        for begun in self._turns.running():  # an operation that ran twice does not name them again
            theirs = begun.source.platform == platform and person in ids_of(begun.source)
            if theirs or f"{platform}:{person}" in begun.authors:
                ended.setdefault(begun.key, begun.turn)
        for key, turn in ended.items():
            if turn is not None:
                self._turns.stop_turn(key, turn)
                self._hub.ended(key)
            self._outbox.wake(key)  # a bubble that waited to be finished has its last shape now
            self._turns.wake(key)


class Strangers:
    """How many messages were denied, by platform, since this process began. Their text is neither stored nor logged, and a flood
    of them is one log line a minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.denied: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def count_denied(self, platform: str) -> None:
        """Count one denied message."""
        self.denied[platform] += 1
        now = self._clock.monotonic()
        if now - self._logged_at.get(platform, -EVERY_S) >= EVERY_S:
            self._logged_at[platform] = now
            log.info("messages denied", platform=platform, messages=self.denied[platform])
