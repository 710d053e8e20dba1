"""Looking into a home: through its gateway while that runs, else into its store under the lock. Nothing is created."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from everturn.cli.client import Unreachable, answers, ask
from everturn.config import read_config
from everturn.decide import admission_words, ops_words, web_words
from everturn.errors import EverturnError, HomeHeld
from everturn.home import Holder, Home, HomeLock, holder
from everturn.store.address import sqlite_path

Json = dict[str, Any]
PAGE = 1000
SETTLING_S = 15.0
LOOK_S = 0.05
BOXES = {"replies": "outbox", "messages": "inbox"}


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

    async def keys(self) -> list[Json]:
        """The access keys, the newest first."""
        ...

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """Make an access key; its secret."""
        ...

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """End an access key at once: the names of what was made with it and ended, too, and of what is still in force."""
        ...

    async def pairings(self) -> Json:
        """Who asks to be let in on chat platforms, and who was let in or turned out."""
        ...

    async def approve_pairing(self, wanted: Json) -> Json:
        """Let somebody in, by code or by the number of their request."""
        ...

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """Let "platform:user" in."""
        ...

    async def revoke_person(self, person: str) -> Json:
        """Turn "platform:user" out."""
        ...

    async def channels(self) -> Json:
        """The chats that are known, and the aliases."""
        ...

    async def alias(self, name: str, address: str) -> Json:
        """Give a chat a name."""
        ...

    async def unalias(self, name: str) -> Json:
        """Take a name away."""
        ...

    async def dead(self, what: str) -> list[Json]:
        """The dead letters: `replies` or `messages`, the oldest first."""
        ...

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """Do something to a `reply` or a `message`, once for each id; what was done, in words."""
        ...

    async def recoveries(self) -> list[Json]:
        """What was taken up from lives that ended, newest first."""
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

    async def keys(self) -> list[Json]:
        """As the gateway says."""
        keys: list[Json] = ask(self._home, self._who, "GET", "/control/keys")["keys"]
        return keys

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:
        """The gateway makes it."""
        made = ask(self._home, self._who, "POST", "/control/keys", {"name": name, "scopes": list(scopes)})
        return str(made["key"])

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:
        """The gateway ends it."""
        path = f"/control/keys/{quote(name, safe='')}" + ("?made=1" if with_made else "")
        return ask(self._home, self._who, "DELETE", path)

    async def pairings(self) -> Json:
        """As the gateway says."""
        return ask(self._home, self._who, "GET", "/control/pair")

    async def approve_pairing(self, wanted: Json) -> Json:
        """The gateway lets them in."""
        return ask(self._home, self._who, "POST", "/control/pair/approve", wanted)

    async def allow_person(self, person: str, *, owner: bool) -> Json:
        """The gateway lets them in."""
        return ask(self._home, self._who, "POST", "/control/pair/allow", {"person": person, "owner": owner})

    async def revoke_person(self, person: str) -> Json:
        """The gateway turns them out, and ends what runs for them."""
        return ask(self._home, self._who, "POST", "/control/pair/revoke", {"person": person})

    async def channels(self) -> Json:
        """As the gateway says."""
        return ask(self._home, self._who, "GET", "/control/channels")

    async def alias(self, name: str, address: str) -> Json:
        """The gateway keeps it."""
        return ask(self._home, self._who, "POST", "/control/channels/alias", {"name": name, "address": address})

    async def unalias(self, name: str) -> Json:
        """The gateway forgets it."""
        return ask(self._home, self._who, "POST", "/control/channels/unalias", {"name": name})

    async def dead(self, what: str) -> list[Json]:
        """Page by page, as long as there is a next one."""
        found: list[Json] = []
        after: str | None = "0"
        while after is not None:
            page = ask(self._home, self._who, "GET", f"/ops/api/{BOXES[what]}?state=dead&limit=200&after={after}")
            found += page[what]
            after = page["next"]
        return found

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:
        """The gateway does it."""
        box, name = ("outbox", "reply") if what == "reply" else ("inbox", "inbox")
        body = {name: target, "action": action, "id": action_id}
        return str(ask(self._home, self._who, "POST", f"/ops/api/{box}/act", body)["said"])

    async def recoveries(self) -> list[Json]:
        """As the gateway says."""
        found: list[Json] = ask(self._home, self._who, "GET", "/ops/api/overview")["recoveries"]
        return found


class Untouched:
    """A home in which no gateway has ever run."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def status(self) -> Json:
        """There is nothing."""
        return {"running": False, "home": str(self._home.path), "last_life": None}

    async def sessions(self) -> AsyncIterator[list[Json]]:
        """There are none."""
        yield []

    async def explain(self, message_id: str) -> list[Json]:  # noqa: ARG002  the protocol's
        """There is no message at all."""
        return []

    async def keys(self) -> list[Json]:
        """There are none."""
        return []

    async def make_key(self, name: str, scopes: tuple[str, ...]) -> str:  # noqa: ARG002  the protocol's
        """A key needs a home to be kept in."""
        raise EverturnError(f"no gateway has run on {self._home.path} yet; start it once with `everturn run`")

    async def revoke_key(self, name: str, *, with_made: bool) -> Json:  # noqa: ARG002  the protocol's
        """There is nothing to end."""
        raise EverturnError(web_words.no_such_key(name))

    async def pairings(self) -> Json:
        """There is nobody."""
        return {"requests": [], "people": []}

    async def approve_pairing(self, wanted: Json) -> Json:  # noqa: ARG002  the protocol's
        """Nobody can have asked."""
        raise EverturnError(admission_words.pair_wrong())

    async def allow_person(self, person: str, *, owner: bool) -> Json:  # noqa: ARG002  the protocol's
        """Whom to let in is kept in a home."""
        raise EverturnError(f"no gateway has run on {self._home.path} yet; start it once with `everturn run`")

    async def revoke_person(self, person: str) -> Json:  # noqa: ARG002  the protocol's
        """Whom to refuse is kept in a home."""
        raise EverturnError(f"no gateway has run on {self._home.path} yet; start it once with `everturn run`")

    async def channels(self) -> Json:
        """There are none."""
        return {"channels": [], "aliases": {}}

    async def alias(self, name: str, address: str) -> Json:  # noqa: ARG002  the protocol's
        """Names are kept in a home."""
        raise EverturnError(f"no gateway has run on {self._home.path} yet; start it once with `everturn run`")

    async def unalias(self, name: str) -> Json:
        """There are none."""
        raise EverturnError(f"there is no alias {name}")

    async def dead(self, what: str) -> list[Json]:  # noqa: ARG002  the protocol's
        """There are none."""
        return []

    async def act(self, what: str, action: str, target: str, action_id: str) -> str:  # noqa: ARG002  the protocol's
        """There is nothing to act on."""
        raise EverturnError(ops_words.NO_REPLY if what == "reply" else ops_words.NO_MESSAGE)

    async def recoveries(self) -> list[Json]:
        """There are none."""
        return []


@asynccontextmanager
async def look_into(home: Home, config_file: Path | None) -> AsyncIterator[View]:
    """See a home, whether its gateway runs or not. The settings matter only while it does not."""
    held = await _gateway_or_lock(home, lambda: _store_url(home, config_file))
    if isinstance(held, Holder):
        yield Running(home, held)
        return
    url = _store_url(home, config_file)
    if held is None and sqlite_path(url):
        yield Untouched(home)
        return
    from everturn.cli.stopped import opened  # not needed while a gateway answers

    async with opened(home, url, held) as view:
        yield view


def _store_url(home: Home, config_file: Path | None) -> str:
    loaded = read_config(home.path, config_file, os.environ, {})
    return loaded.config.store.url or f"sqlite:///{home.database}"


async def _gateway_or_lock(home: Home, store_url: Callable[[], str]) -> Holder | HomeLock | None:
    """Who can be asked, or the right to look ourselves; None where there is nothing to lock.

    A holder that does not answer is starting, stopping, or another command that looks: it is given a moment.
    """
    until = time.monotonic() + SETTLING_S
    while True:
        who = holder(home)
        if who is not None and who.url and answers(who):
            return who
        if who is None:
            if not _has_something(home, store_url()):
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
