"""Reads and changes a home: through its gateway while that runs, else in its store under the lock. Creates nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from everturn.cli import texts
from everturn.cli.shared import Unreachable, answers, ask
from everturn.errors import EverturnError, HomeLocked
from everturn.home.folder import Holder, Home, HomeLock, holder
from everturn.operator.rules import operator_texts
from everturn.people.rules import people_texts
from everturn.settings.config import read_config
from everturn.store.engines import sqlite_path
from everturn.web import texts as web_texts

T = TypeVar("T")
Json = dict[str, Any]
PAGE = 1000
SETTLING_S = 15.0
LOOK_S = 0.05
BOXES = {"replies": "outbox", "messages": "inbox"}


class View(Protocol):
    """What commands read and change in a home."""

    async def status(self) -> Json:
        """Whether the gateway runs, and how much work is open."""
        ...

    def sessions(self) -> AsyncIterator[list[Json]]:
        """The current sessions, page by page, ordered by key."""
        ...

    async def explain(self, message_id: str) -> list[Json]:
        """The messages with this id, each with all that a timeline shows."""
        ...

    async def keys(self) -> list[Json]:
        """The access keys, the newest first."""
        ...

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """Make an access key; returns its secret."""
        ...

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """Revoke an access key at once; returns the names of keys made with it: those also revoked, and those still valid."""
        ...

    async def pairings(self) -> Json:
        """The access requests on chat platforms, and the people who were approved or revoked."""
        ...

    async def approve_pairing(self, wanted: Json) -> Json:
        """Approve a person, by code or by the number of their access request."""
        ...

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """Approve "platform:user"."""
        ...

    async def revoke_person(self, person: str) -> Json:
        """Revoke "platform:user"."""
        ...

    async def channels(self) -> Json:
        """The known chats, and the aliases."""
        ...

    async def alias(self, name: str, address: str) -> Json:
        """Give a chat an alias."""
        ...

    async def unalias(self, name: str) -> Json:
        """Remove an alias."""
        ...

    async def dead(self, what: str) -> list[Json]:
        """The dead letters: `replies` or `messages`, the oldest first."""
        ...

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """Apply an operator action to a `reply` or a `message`, once for each id; returns what was done, as text."""
        ...

    async def recoveries(self) -> list[Json]:
        """The recoveries from processes that ended, newest first."""
        ...


class RunningView:
    """A `View` through the gateway that holds the home."""

    def __init__(self, home: Home, gateway: Holder) -> None:
        self._home = home
        self._gateway = gateway

    async def status(self) -> Json:
        """Get the gateway's status."""
        gateway = self._gateway
        told = ask(self._home, gateway, "GET", "/control/status")
        return {"running": True, "home": str(self._home.path), "pid": gateway.pid, "url": gateway.url, **told}

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """Get the sessions, page by page, as long as there is a next one."""
        after: str | None = ""
        while after is not None:
            path = f"/control/sessions?after={quote(after, safe='')}&limit={PAGE}"
            page = ask(self._home, self._gateway, "GET", path)
            yield page["sessions"]
            after = page.get("next")

    async def explain(self, message_id: str) -> list[Json]:
        """Get the messages with this id."""
        found = ask(self._home, self._gateway, "GET", f"/control/explain/{quote(message_id, safe='')}")
        messages: list[Json] = found["messages"]
        return messages

    async def keys(self) -> list[Json]:
        """Get the access keys."""
        keys: list[Json] = ask(self._home, self._gateway, "GET", "/control/keys")["keys"]
        return keys

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """Ask the gateway to make an access key."""
        made = ask(self._home, self._gateway, "POST", "/control/keys", {"name": name, "scopes": list(scopes)})
        return str(made["key"])

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """Ask the gateway to revoke an access key."""
        path = f"/control/keys/{quote(name, safe='')}" + ("?made=1" if with_made else "")
        return ask(self._home, self._gateway, "DELETE", path)

    async def pairings(self) -> Json:
        """Get the access requests and the people."""
        return ask(self._home, self._gateway, "GET", "/control/pair")

    async def approve_pairing(self, wanted: Json) -> Json:
        """Ask the gateway to approve a person."""
        return ask(self._home, self._gateway, "POST", "/control/pair/approve", wanted)

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """Ask the gateway to approve "platform:user"."""
        return ask(self._home, self._gateway, "POST", "/control/pair/allow", {"person": person, "owner": owner})

    async def revoke_person(self, person: str) -> Json:
        """Ask the gateway to revoke a person and stop their running turns."""
        return ask(self._home, self._gateway, "POST", "/control/pair/revoke", {"person": person})

    async def channels(self) -> Json:
        """Get the known chats and the aliases."""
        return ask(self._home, self._gateway, "GET", "/control/channels")

    async def alias(self, name: str, address: str) -> Json:
        """Ask the gateway to store an alias."""
        return ask(self._home, self._gateway, "POST", "/control/channels/alias", {"name": name, "address": address})

    async def unalias(self, name: str) -> Json:
        """Ask the gateway to remove an alias."""
        return ask(self._home, self._gateway, "POST", "/control/channels/unalias", {"name": name})

    async def dead(self, what: str) -> list[Json]:
        """Get the dead letters, page by page, as long as there is a next one."""
        found: list[Json] = []
        after: str | None = "0"
        while after is not None:
            page = ask(self._home, self._gateway, "GET", f"/ops/api/{BOXES[what]}?state=dead&limit=200&after={after}")
            found += page[what]
            after = page["next"]
        return found

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """Ask the gateway to apply an operator action."""
        box, name = ("outbox", "reply") if what == "reply" else ("inbox", "inbox")
        body = {name: target, "action": action, "id": action_id}
        return str(ask(self._home, self._gateway, "POST", f"/ops/api/{box}/act", body)["said"])

    async def recoveries(self) -> list[Json]:
        """Get the recoveries."""
        found: list[Json] = ask(self._home, self._gateway, "GET", "/ops/api/overview")["recoveries"]
        return found


class EmptyView:
    """A `View` of a home in which no gateway has ever run."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def status(self) -> Json:
        """Nothing runs and nothing is stored."""
        return {"running": False, "home": str(self._home.path), "previous_exit": None}

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """There are none."""
        yield []

    async def explain(self, message_id: str) -> list[Json]:  # noqa: ARG002  the protocol's
        """There are no messages."""
        return []

    async def keys(self) -> list[Json]:
        """There are none."""
        return []

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:  # noqa: ARG002  the protocol's
        """Refuse: there is no store to keep a key in."""
        raise EverturnError(texts.never_ran(self._home.path))

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:  # noqa: ARG002  the protocol's
        """Refuse: there are no keys."""
        raise EverturnError(web_texts.no_such_key(name))

    async def pairings(self) -> Json:
        """There are no requests and no people."""
        return {"requests": [], "people": []}

    async def approve_pairing(self, wanted: Json) -> Json:  # noqa: ARG002  the protocol's
        """Refuse: there are no access requests."""
        raise EverturnError(people_texts.pair_wrong())

    async def allow_person(self, person: str, *, owner: bool) -> Json:  # noqa: ARG002  the protocol's
        """Refuse: there is no store to keep people in."""
        raise EverturnError(texts.never_ran(self._home.path))

    async def revoke_person(self, person: str) -> Json:  # noqa: ARG002  the protocol's
        """Refuse: there is no store to keep people in."""
        raise EverturnError(texts.never_ran(self._home.path))

    async def channels(self) -> Json:
        """There are none."""
        return {"channels": [], "aliases": {}}

    async def alias(self, name: str, address: str) -> Json:  # noqa: ARG002  the protocol's
        """Refuse: there is no store to keep aliases in."""
        raise EverturnError(texts.never_ran(self._home.path))

    async def unalias(self, name: str) -> Json:
        """Refuse: there are no aliases."""
        raise EverturnError(texts.no_alias(name))

    async def dead(self, what: str) -> list[Json]:  # noqa: ARG002  the protocol's
        """There are none."""
        return []

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:  # noqa: ARG002  the protocol's
        """Refuse: there are no dead letters."""
        raise EverturnError(operator_texts.NO_REPLY if what == "reply" else operator_texts.NO_MESSAGE)

    async def recoveries(self) -> list[Json]:
        """There are none."""
        return []


def look(home: Home, config_file: Path | None, what: Callable[[View], Awaitable[T]]) -> T:
    """Await one call of a home's `View`."""

    async def looked() -> T:
        async with look_into(home, config_file) as view:
            return await what(view)

    return asyncio.run(looked())


@asynccontextmanager
async def look_into(home: Home, config_file: Path | None) -> AsyncIterator[View]:
    """Open a `View` of a home, whether its gateway runs or not. The settings matter only while it does not."""
    held = await _gateway_or_lock(home, lambda: _store_url(home, config_file))
    if isinstance(held, Holder):
        yield RunningView(home, held)
        return
    url = _store_url(home, config_file)
    if held is None and sqlite_path(url):
        yield EmptyView(home)
        return
    from everturn.cli.stopped import opened  # not needed while a gateway answers

    async with opened(home, url, held) as view:
        yield view


def _store_url(home: Home, config_file: Path | None) -> str:
    loaded = read_config(home.path, config_file, os.environ, {})
    return loaded.config.store.url or f"sqlite:///{home.database}"


async def _gateway_or_lock(home: Home, store_url: Callable[[], str]) -> Holder | HomeLock | None:
    """The running gateway, or the home's lock; None where there is nothing to lock.

    A holder that does not answer is starting, stopping, or another command that reads the home: wait for it a while.
    """
    until = time.monotonic() + SETTLING_S
    while True:
        gateway = holder(home)
        if gateway is not None and gateway.url and answers(gateway):
            return gateway
        if gateway is None:
            if not _has_something(home, store_url()):
                return None
            with suppress(HomeLocked):
                return HomeLock(home).acquire()
        if time.monotonic() > until:
            raise Unreachable(texts.home_is_locked(home.path, gateway))
        await asyncio.sleep(LOOK_S)


def _has_something(home: Home, url: str) -> bool:
    """Whether there may be a store to read; a database on a server has no file, and the home may be missing."""
    path = sqlite_path(url)
    return home.path.is_dir() and (path is None or path.exists())
