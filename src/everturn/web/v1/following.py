"""Following a request to its end. The store says how it stands; the hub only says when to look, and what is being said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from everturn.decide.client_answer import Answered, Pending, Problem, verdict
from everturn.model import Hint
from everturn.store.interface import Store
from everturn.store.operations.requests import Request, request_by_id
from everturn.web.events import Delta, Hub
from everturn.web.v1.errors import not_possible

T = TypeVar("T")
Ended = Answered | Problem


class Audience(Protocol):
    """Who is told while a request is worked on."""

    async def show(self, text: str) -> None:
        """The answer's text so far."""
        ...

    async def beat(self) -> None:
        """A sign of life."""
        ...


class Silence:
    """Somebody who only wants the end."""

    async def show(self, text: str) -> None:
        """Not wanted."""

    async def beat(self) -> None:
        """Not wanted."""


class _Again:
    """Something that is no event: look again."""


class Following:
    """Follows requests of one platform; each may be followed by many, and ends the same for all."""

    def __init__(self, hub: Hub, store: Store, platform: str, heartbeat_s: float) -> None:
        self._hub = hub
        self._store = store
        self._platform = platform
        self._heartbeat_s = heartbeat_s
        self._watches: set[object] = set()

    async def ended(
        self, request: Request, audience: Audience, admitted: Callable[[], Awaitable[bool]] | None
    ) -> tuple[Request, Ended]:
        """Wait until there is an answer, or a reason why not. Watch before reading: nothing falls between the two."""
        watch = self._hub.watch(request.key)
        self._watches.add(watch)
        try:
            while True:
                now = await self._store.read(request_by_id, request.id, self._platform) or request
                if admitted is not None and not await admitted():
                    raise not_possible(401, "this key was revoked")
                found = verdict(now.seen)
                if not isinstance(found, Pending):
                    return now, found
                await self._until_news(watch, now, audience)
        finally:
            self._watches.discard(watch)
            self._hub.leave(watch, request.key)

    def look_again(self) -> None:
        """Somebody's key was revoked: whoever waits is asked for theirs again."""
        for watch in list(self._watches):
            watch.put(_Again())  # type: ignore[attr-defined]

    async def _until_news(self, watch: object, request: Request, audience: Audience) -> None:
        """Show what is said until something happens that only the store can tell."""
        await self._show(request, audience)
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    item = await watch.next()  # type: ignore[attr-defined]
            except TimeoutError:
                await audience.beat()
                return
            if isinstance(item, Delta):
                await self._show(request, audience)
            elif not isinstance(item, Hint):
                return

    async def _show(self, request: Request, audience: Audience) -> None:
        """The newest text of its turn: a slow reader skips what is outdated."""
        live = self._hub.live(request.key)
        if live is not None and live.turn == str(request.turn):
            await audience.show(live.text)
