"""Reads and changes the store of a home while its gateway does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everturn.clock import SystemClock
from everturn.errors import EverturnError
from everturn.home.folder import Home, HomeLock
from everturn.ids import Ids
from everturn.lifecycle.rows import last_end, newest_id, open_instances
from everturn.operator.rows.actions import Act, Impossible, act_on_message, act_on_reply
from everturn.operator.rows.overview import knows_platform, messages, recoveries, replies
from everturn.operator.rows.reading import count_open
from everturn.people.rows.access import StoppedKey, approve_person, list_people
from everturn.people.rows.access import revoke as revoke_rows
from everturn.people.rows.credentials import list_keys, revoke_key
from everturn.people.rows.pairing import Approval, Paired, approve_code, approve_request, list_pairings
from everturn.platform.posted import ApiPlatform
from everturn.sessions.rows.entries import list_entries
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.web import texts as web_texts
from everturn.web.conversations import timelines
from everturn.web.keys import key_json, make_key
from everturn.web.people import (
    ApproveRequest,
    NotApproved,
    allow,
    approve,
    give_alias,
    list_channels,
    revoke,
    take_alias,
)

Json = dict[str, Any]
PAGE = 1000


class StoppedView:
    """A `View` of the store itself; the caller holds the home's lock."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store
        self._desk = StoppedPeople(store)

    async def status(self) -> Json:
        """How much work is open, and how the previous process ended."""
        return {
            "running": False,
            "home": str(self._home.path),
            "previous_exit": await self._previous_exit(),
            "open": await self._store.read(count_open),
        }

    async def _previous_exit(self) -> Json | None:
        """How the previous process ended. One that recorded no end was killed at or after its last heartbeat."""
        alive = await self._store.alive()
        killed = [each for each in await self._store.read(open_instances, 0) if each.number not in alive]
        if killed:
            return {"ended": "unclean", "ended_at": killed[-1].heartbeat_at, "asked_by": None}
        last = await self._store.read(last_end, 0)
        return dict(zip(("ended", "ended_at", "asked_by"), last, strict=True)) if last else None

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """The current sessions, page by page, until one is not full."""
        nobody_works = not await self._store.alive()
        page = await self._store.read(list_entries, "", PAGE)
        while page:
            # A killed gateway could not record that it no longer works on a key.
            yield [{**each, "running": False} for each in page] if nobody_works else page
            page = await self._store.read(list_entries, str(page[-1]["key"]), PAGE) if len(page) == PAGE else []

    async def explain(self, message_id: str) -> list[Json]:
        """Read the messages with this id."""
        return await self._store.read(timelines, ApiPlatform().stored_ids(message_id))

    async def keys(self) -> list[Json]:
        """Read the access keys."""
        return [key_json(key) for key in await self._store.read(list_keys)]

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """Store a new access key."""
        try:
            return await make_key(self._store, SystemClock(), name, scopes)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """Revoke an access key in the store."""
        revoked = await self._store.run(revoke_key, name, SystemClock().now(), with_made=with_made)
        if revoked is None:
            raise EverturnError(web_texts.no_such_key(name))
        return {"also": list(revoked.also), "left": list(revoked.left)}

    async def pairings(self) -> Json:
        """Read the access requests and the people."""
        requests, people = await self._desk.all()
        return {"requests": requests, "people": people}

    async def approve_pairing(self, wanted: Json) -> Json:
        """Approve a person in the store; they get a notice after the next start."""
        try:
            return await approve(self._desk, ApproveRequest(**wanted), SystemClock().now())
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """Approve "platform:user" in the store."""
        try:
            return await allow(self._desk, person, owner=owner)
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def revoke_person(self, person: str) -> Json:
        """Revoke "platform:user" in the store."""
        try:
            return await revoke(self._desk, person)
        except NotApproved as error:
            raise EverturnError(str(error)) from None

    async def channels(self) -> Json:
        """Read the known chats and the aliases."""
        return await list_channels(self._store)

    async def alias(self, name: str, address: str) -> Json:
        """Store an alias."""
        try:
            return await give_alias(self._store, SystemClock(), name, address)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def unalias(self, name: str) -> Json:
        """Remove an alias from the store."""
        try:
            return await take_alias(self._store, name)
        except ValueError as error:
            raise EverturnError(str(error)) from None

    async def dead(self, what: str) -> list[Json]:
        """Read the dead letters, page by page, until one is not full."""
        look, number = (replies, "reply") if what == "replies" else (messages, "id")
        found: list[Json] = []
        page = await self._store.read(look, "dead", 0, PAGE)
        while page:
            found += page
            page = await self._store.read(look, "dead", int(str(page[-1][number])), PAGE) if len(page) == PAGE else []
        return found

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """Apply an operator action in the store; the next process continues with it."""
        clock = SystemClock()
        ids = Ids(clock, 0, await self._store.read(newest_id))
        wanted = Act(
            id=action_id, action=action, target=target, actor="owner", at=clock.now(), number=ids.next(),
            session_id=ids.session(),
        )  # fmt: skip
        done = await self._store.run(act_on_reply if what == "reply" else act_on_message, wanted)
        if isinstance(done, Impossible):
            raise EverturnError(done.why)
        return done.said

    async def recoveries(self) -> list[Json]:
        """Read the recoveries."""
        return await self._store.read(recoveries)


class StoppedPeople:
    """Approves and revokes people in the store of a gateway that does not run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = SystemClock()

    async def all(self) -> tuple[list[Json], list[Json]]:
        """The access requests, and the people who were approved or revoked."""
        return await self._store.read(list_pairings, self._clock.now()), await self._store.read(list_people)

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Approve the person who was given this code."""
        return await self._store.run(approve_code, code, platform, await self._approval(owner))

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Approve the access request with this number."""
        return await self._store.run(approve_request, number, await self._approval(owner))

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Approve a person without an access request, also after they were revoked."""
        await self._store.run(approve_person, platform, [person], None, self._clock.now(), owner=owner)

    async def revoke(self, platform: str, person: str) -> list[StoppedKey]:
        """Revoke a person: their interrupted turns do not resume."""
        return await self._store.run(revoke_rows, platform, person, self._clock.now())

    async def knows(self, platform: str) -> bool:
        """Whether the store knows such a platform."""
        return await self._store.read(knows_platform, platform)

    async def _approval(self, owner: bool) -> Approval:  # noqa: FBT001  as it was asked
        ids = Ids(self._clock, 0, await self._store.read(newest_id))
        return Approval(at=self._clock.now(), notice=ids.next(), owner=owner)


@asynccontextmanager
async def opened(home: Home, url: str, lock: HomeLock | None) -> AsyncIterator[StoppedView]:
    """Open the store; close it and release the lock at the end."""
    try:
        store = await open_store(url)
        try:
            yield StoppedView(home, store)
        finally:
            await store.close()
    finally:
        if lock is not None:
            lock.release()
