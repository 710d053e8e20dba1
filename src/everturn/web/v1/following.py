"""Follows a request to its end. The store has its state; the hub only signals changes, and has the text that streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from everturn.model import Hint
from everturn.store.interface import Store
from everturn.web.chat.events import Delta, EventSource
from everturn.web.v1.errors import not_possible
from everturn.web.v1.rows.requests import RequestRow, request_by_id
from everturn.web.v1.rules.answers import CompletionError, FinishedAnswer, Pending, verdict

T = TypeVar("T")
Ended = FinishedAnswer | CompletionError


class Audience(Protocol):
    """Receives the progress of a request."""

    async def show(self, text: str) -> None:
        """Show the answer's text so far."""
        ...

    async def beat(self) -> None:
        """Send a heartbeat."""
        ...


class NoAudience:
    """Ignores progress, for a request that is not streamed."""

    async def show(self, text: str) -> None:
        """Do nothing."""

    async def beat(self) -> None:
        """Do nothing."""


class _Recheck:
    """A signal without an event: check access again."""


class Following:
    """Follows requests of one platform; many clients may follow one, and all get the same end."""

    def __init__(self, hub: EventSource, store: Store, platform: str, heartbeat_s: float) -> None:
        self._hub = hub
        self._store = store
        self._platform = platform
        self._heartbeat_s = heartbeat_s
        self._watches: set[object] = set()

    async def ended(
        self, request: RequestRow, audience: Audience, admitted: Callable[[], Awaitable[bool]] | None
    ) -> tuple[RequestRow, Ended]:
        """Wait until there is an answer, or an error. Watches before it reads, so that no change is missed."""
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

    def recheck_access(self) -> None:
        """Let every waiting request check its key again, after a key was revoked."""
        for watch in list(self._watches):
            watch.put(_Recheck())  # type: ignore[attr-defined]

    async def _until_news(self, watch: object, request: RequestRow, audience: Audience) -> None:
        """Show the streamed text until the store must be read again."""
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

    async def _show(self, request: RequestRow, audience: Audience) -> None:
        """Show the newest text of its turn: a slow reader skips older versions."""
        live = self._hub.live(request.key)
        if live is not None and live.turn == str(request.turn):
            await audience.show(live.text)
