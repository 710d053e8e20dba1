"""Looking into a home: through its gateway while that runs, else into its store under the lock. Nothing is created."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from everturn.cli.client import Unreachable, answers, ask
from everturn.config import read_config
from everturn.errors import HomeHeld
from everturn.home import Holder, Home, HomeLock, holder
from everturn.platform.api import ApiPlatform
from everturn.store.address import sqlite_path
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.store.operations.entries import list_entries
from everturn.store.operations.instances import last_end, without_end
from everturn.store.operations.reading import figures
from everturn.web.looking import lives

Json = dict[str, Any]
PAGE = 1000
SETTLING_S = 15.0
LOOK_S = 0.05


class View(Protocol):
    """What can be seen of a home."""

    async def status(self) -> Json:
        """Whether it runs, and what is open."""
        ...

    def sessions(self) -> AsyncIterator[list[Json]]:
        """The sessions in force, page by page, in order of their keys."""
        ...

    async def explain(self, message_id: str) -> list[Json]:
        """The lives of the messages with this id."""
        ...


class Running:
    """Through the gateway that holds the home."""

    def __init__(self, home: Home, who: Holder) -> None:
        self._home = home
        self._who = who

    async def status(self) -> Json:
        """As the gateway says."""
        who = self._who
        told = ask(self._home, who, "GET", "/control/status")
        return {"running": True, "home": str(self._home.path), "pid": who.pid, "url": who.url, **told}

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """Page by page, as long as there is a next one."""
        after: str | None = ""
        while after is not None:
            page = ask(self._home, self._who, "GET", f"/control/sessions?after={quote(after, safe='')}&limit={PAGE}")
            yield page["sessions"]
            after = page.get("next")

    async def explain(self, message_id: str) -> list[Json]:
        """As the gateway says."""
        found = ask(self._home, self._who, "GET", f"/control/explain/{quote(message_id, safe='')}")
        messages: list[Json] = found["messages"]
        return messages


class Stopped:
    """Into the store itself; we hold the lock."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store

    async def status(self) -> Json:
        """What is open, and how the last life ended."""
        return {
            **_not_running(self._home),
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


class Untouched:
    """A home in which no gateway has ever run."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def status(self) -> Json:
        """There is nothing."""
        return {**_not_running(self._home), "last_life": None}

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """There are none."""
        yield []

    async def explain(self, message_id: str) -> list[Json]:  # noqa: ARG002  the protocol's
        """There is no message at all."""
        return []


def _not_running(home: Home) -> Json:
    return {"running": False, "home": str(home.path)}


@asynccontextmanager
async def look_into(home: Home, config_file: Path | None) -> AsyncIterator[View]:
    """See a home, whether its gateway runs or not."""
    loaded = read_config(home.path, config_file, os.environ, {})
    url = loaded.config.store.url or f"sqlite:///{home.database}"
    held = await _gateway_or_lock(home, url)
    if isinstance(held, Holder):
        yield Running(home, held)
    elif held is None and sqlite_path(url):
        yield Untouched(home)
    else:
        async with _opened(home, url, held) as view:
            yield view


@asynccontextmanager
async def _opened(home: Home, url: str, lock: HomeLock | None) -> AsyncIterator[Stopped]:
    try:
        store = await open_store(url)
        try:
            yield Stopped(home, store)
        finally:
            await store.close()
    finally:
        if lock is not None:
            lock.release()


async def _gateway_or_lock(home: Home, url: str) -> Holder | HomeLock | None:
    """Who can be asked, or the right to look ourselves; None where there is nothing to lock.

    A holder that does not answer is starting, stopping, or another command that looks: it is given a moment.
    """
    until = time.monotonic() + SETTLING_S
    while True:
        who = holder(home)
        if who is not None and who.url and answers(who):
            return who
        if who is None:
            if not _has_something(home, url):
                return None
            with suppress(HomeHeld):
                return HomeLock(home).acquire()
        if time.monotonic() > until:
            raise Unreachable(f"the home {home.path} is held by {who or 'another process'}, which does not answer")
        await asyncio.sleep(LOOK_S)


def _has_something(home: Home, url: str) -> bool:
    """Whether a look could find anything; a database on a server has no file, and the home may be missing."""
    path = sqlite_path(url)
    return home.path.is_dir() and (path is None or path.exists())
