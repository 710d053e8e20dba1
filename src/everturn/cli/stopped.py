"""Looking into the store of a home whose gateway does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everturn.clock import SystemClock
from everturn.decide import web_words
from everturn.errors import EverturnError
from everturn.home import Home, HomeLock
from everturn.ids import Ids
from everturn.platform.api import ApiPlatform
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.store.operations.access import list_keys, revoke_key
from everturn.store.operations.acting import Act, Impossible, act_on_message, act_on_reply
from everturn.store.operations.admission import TurnedOut, let_in, list_people
from everturn.store.operations.admission import revoke as revoke_rows
from everturn.store.operations.entries import list_entries
from everturn.store.operations.instances import last_end, newest_id, without_end
from everturn.store.operations.open_work import messages, replies
from everturn.store.operations.overview import knows_platform, recoveries
from everturn.store.operations.pairing import Approval, Paired, approve_code, approve_request, list_pairings
from everturn.store.operations.reading import figures
from everturn.web.channels import give_alias, list_channels, take_alias
from everturn.web.keys import key_json, make_key
from everturn.web.looking import lives
from everturn.web.pairing import ApproveRequest, NotApproved, allow, approve, revoke

Json = dict[str, Any]
PAGE = 1000


class Stopped:
    """Into the store itself; we hold the lock."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store
        self._desk = StoppedPeople(store)

    async def status(self) -> Json:
        """What is open, and how the last life ended."""
        return {
            "running": False,
            "home": str(self._home.path),
            "last_life": await self._last_life(),
            "open": await self._store.read(figures),
        }

    async def _last_life(self) -> Json | None:
        """A life that wrote no end was killed; its last heartbeat is the last we know of it."""
        alive = await self._store.alive()
        killed = [life for life in await self._store.read(without_end, 0) if life.number not in alive]
        if killed:
            return {"ended": "unclean", "ended_at": killed[-1].heartbeat_at, "asked_by": None}
        last = await self._store.read(last_end, 0)
        return dict(zip(("ended", "ended_at", "asked_by"), last, strict=True)) if last else None

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """Page by page, until one is not full."""
        nobody_works = not await self._store.alive()
        page = await self._store.read(list_entries, "", PAGE)
        while page:
            # A killed gateway could not say that it no longer works on a key.
            yield [{**each, "running": False} for each in page] if nobody_works else page
            page = await self._store.read(list_entries, str(page[-1]["key"]), PAGE) if len(page) == PAGE else []

    async def explain(self, message_id: str) -> list[Json]:
        """From the rows."""
        return await self._store.read(lives, ApiPlatform().stored_ids(message_id))

    async def keys(self) -> list[Json]:
        """From the rows."""
        return [key_json(key) for key in await self._store.read(list_keys)]

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """Into the store itself."""
        try:
            return await make_key(self._store, SystemClock(), name, scopes)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """In the store itself."""
        revoked = await self._store.run(revoke_key, name, SystemClock().now(), with_made=with_made)
        if revoked is None:
            raise EverturnError(web_words.no_such_key(name))
        return {"also": list(revoked.also), "left": list(revoked.left)}

    async def pairings(self) -> Json:
        """From the rows."""
        requests, people = await self._desk.all()
        return {"requests": requests, "people": people}

    async def approve_pairing(self, wanted: Json) -> Json:
        """In the store itself; they are told at the next start."""
        try:
            return await approve(self._desk, ApproveRequest(**wanted), SystemClock().now())
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """In the store itself."""
        try:
            return await allow(self._desk, person, owner=owner)
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def revoke_person(self, person: str) -> Json:
        """In the store itself."""
        try:
            return await revoke(self._desk, person)
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def channels(self) -> Json:
        """From the rows."""
        return await list_channels(self._store)

    async def alias(self, name: str, address: str) -> Json:
        """Into the store itself."""
        try:
            return await give_alias(self._store, SystemClock(), name, address)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def unalias(self, name: str) -> Json:
        """In the store itself."""
        try:
            return await take_alias(self._store, name)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def dead(self, what: str) -> list[Json]:
        """Page by page, until one is not full."""
        look, number = (replies, "reply") if what == "replies" else (messages, "id")
        found: list[Json] = []
        page = await self._store.read(look, "dead", 0, PAGE)
        while page:
            found += page
            page = await self._store.read(look, "dead", int(str(page[-1][number])), PAGE) if len(page) == PAGE else []
        return found

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """In the store itself; the next life goes on with it."""
        clock = SystemClock()
        ids = Ids(clock, 0, await self._store.read(newest_id))
        wanted = Act(
            id=action_id, action=action, target=target, who="owner", at=clock.now(), number=ids.next(),
            session_id=ids.session(),
        )  # fmt: skip
        done = await self._store.run(act_on_reply if what == "reply" else act_on_message, wanted)
        if isinstance(done, Impossible):
            raise EverturnError(done.why)
        return done.said

    async def recoveries(self) -> list[Json]:
        """From the rows."""
        return await self._store.read(recoveries)


class StoppedPeople:
    """Who may speak, in the store of a gateway that does not run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = SystemClock()

    async def all(self) -> tuple[list[Json], list[Json]]:
        """The open requests, and the people who were let in or turned out."""
        return await self._store.read(list_pairings, self._clock.now()), await self._store.read(list_people)

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Let in who was given this code."""
        return await self._store.run(approve_code, code, platform, await self._approval(owner))

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Let in who asked under this number."""
        return await self._store.run(approve_request, number, await self._approval(owner))

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Let somebody in who did not ask, or was turned out."""
        await self._store.run(let_in, platform, [person], None, self._clock.now(), owner=owner)

    async def revoke(self, platform: str, person: str) -> list[TurnedOut]:
        """Turn somebody out: what of theirs was cut off does not go on."""
        return await self._store.run(revoke_rows, platform, person, self._clock.now())

    async def knows(self, platform: str) -> bool:
        """Whether there was such a platform."""
        return await self._store.read(knows_platform, platform)

    async def _approval(self, owner: bool) -> Approval:  # noqa: FBT001  as it was asked
        ids = Ids(self._clock, 0, await self._store.read(newest_id))
        return Approval(at=self._clock.now(), notice=ids.next(), owner=owner)


@asynccontextmanager
async def opened(home: Home, url: str, lock: HomeLock | None) -> AsyncIterator[Stopped]:
    """Open the store; let go of it and of the lock at the end."""
    try:
        store = await open_store(url)
        try:
            yield Stopped(home, store)
        finally:
            await store.close()
    finally:
        if lock is not None:
            lock.release()
