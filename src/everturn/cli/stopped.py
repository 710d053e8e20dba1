"""Looking into the store of a home whose gateway does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everturn.clock import SystemClock
from everturn.decide import web_words
from everturn.errors import EverturnError
from everturn.home import Home, HomeLock
from everturn.platform.api import ApiPlatform
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.store.operations.access import list_keys, revoke_key
from everturn.store.operations.entries import list_entries
from everturn.store.operations.instances import last_end, without_end
from everturn.store.operations.reading import figures
from everturn.web.keys import key_json, make_key
from everturn.web.looking import lives

Json = dict[str, Any]
PAGE = 1000


class Stopped:
    """Into the store itself; we hold the lock."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store

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

    async def revoke_key(self, name: str) -> None:
        """In the store itself."""
        if not await self._store.run(revoke_key, name, SystemClock().now()):
            raise EverturnError(web_words.no_such_key(name))


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
