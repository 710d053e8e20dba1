"""Server-sent events of one session key. The store has the events; the hub only signals changes, and has the text that
streams now. A client that reconnects with the last id it saw misses no event and gets none twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from starlette.types import Receive, Send

from everturn.errors import StoreError, StoreUnavailable
from everturn.model import Delta, Event, Hint
from everturn.outbox.rows.replies import event_range, events_after
from everturn.store.interface import Store
from everturn.web import texts
from everturn.web.wire.limits import may_take
from everturn.web.wire.requests import answer, encode, not_now, refusal, retry_after

__all__ = ["Delta", "EventSource", "EventStreams", "Watched"]
T = TypeVar("T")
PAGE = 50
AT_ONCE = 64 * 1024  # characters of events that are sent to a connection at once
MOST_STREAMS = 4_096
MOST_OF_ONE = 32
FULL_S = 10.0
FIRST_LOOK_S = 5.0
HEAD = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events would delay them
]
RECONNECT = b"retry: 1000\n\n"
HEARTBEAT = b": still here\n\n"


class EventSource(Protocol):
    """Signals changes of keys: events, deltas, and anything else for 'read the store'."""

    def watch(self, *keys: str) -> Any:
        """Start watching: returns an object with `async next()`."""
        ...

    def leave(self, watch: Any, *keys: str) -> None:
        """Stop watching."""
        ...

    def live(self, key: str) -> Delta | None:
        """Return the current text of the running turn."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """What a stream shows: a key, other keys for hints, the person who watches, and the check of their access."""

    key: str
    also: tuple[str, ...] = ()
    person: str = ""
    admitted: Callable[[], Awaitable[bool]] | None = None
    most: int = MOST_OF_ONE  # streams of this person
    too_many: str = texts.TOO_MANY_WINDOWS
    added: bool = False  # send only what was added to a text


class Feed(Protocol):
    """Fills a stream; `started` once the response head is sent."""

    started: bool

    async def run(self) -> None:
        """Send until the stream ends."""
        ...


class EventStreams:
    """`GET .../events`, with a limit for all streams, and one for each person."""

    def __init__(self, hub: EventSource, store: Store, heartbeat_s: float, most: int = MOST_STREAMS) -> None:
        self._hub = hub
        self._store = store
        self._heartbeat_s = heartbeat_s
        self._most = most
        self._open: dict[asyncio.Future[None], str] = {}
        self._persons: Counter[str] = Counter()

    async def __call__(self, watched: Watched, after: int | None, receive: Receive, send: Send) -> None:
        """Stream a key's events until the client disconnects, the store fails or `close` ends it."""
        await self.stream(
            _KeyFeed(self._hub, self._store, watched, send, self._heartbeat_s, after), watched, receive, send
        )

    async def stream(self, feed: Feed, watched: Watched, receive: Receive, send: Send) -> None:
        """Let a feed fill a stream, within the limits."""
        person, free = watched.person, self._most - len(self._open)
        if free <= 0:
            await answer(send, not_now(f"{self._most} event streams are open; close one"))
            return
        if person and not may_take(self._persons[person], watched.most, free):
            many = watched.too_many if self._persons[person] >= watched.most else texts.LEAVE_ROOM
            await answer(send, refusal(429, many, retry_after(FULL_S)))
            return
        feeding = asyncio.ensure_future(feed.run())
        gone = asyncio.ensure_future(until_gone(receive))
        self._open[feeding] = person
        self._persons[person] += 1
        try:
            await asyncio.wait({feeding, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[feeding]
            self._persons[person] -= 1
            await _cancel(feeding, gone)
        await _conclude(feed, feeding, send)

    def count(self) -> int:
        """Return the number of open streams."""
        return len(self._open)

    def close(self) -> None:
        """End every stream; its client reconnects with the last id it saw."""
        for feeding in list(self._open):
            feeding.cancel()


class _Beat:
    """A heartbeat is due."""


_BEAT = _Beat()


class _KeyFeed:
    """Fills one stream with a key's events, from its position on."""

    def __init__(
        self, hub: EventSource, store: Store, watched: Watched, send: Send, heartbeat_s: float, after: int | None
    ) -> None:
        self._hub = hub
        self._after = after
        self._store = store
        self._key = watched.key
        self._keys = (watched.key, *watched.also)
        self._admitted = watched.admitted
        self._added = watched.added
        self._loop = asyncio.get_running_loop()
        self._sent_at = 0.0
        self._send = send
        self._heartbeat_s = heartbeat_s
        self._last = 0
        self._shown: Delta | None = None
        self._asked_at = 0.0
        self.started = False

    async def run(self) -> None:
        """Stream events. Watches before it reads, so that no event is missed."""
        watch = self._watch = self._hub.watch(*self._keys)
        running = self._hub.live(self._key)
        self._timer = self._loop.call_later(self._heartbeat_s, self._beat)
        try:
            await self._begin(self._after)
            if running is not None:
                await self._show(running)
            while self._admitted is None or await self._may_go_on(self._admitted):
                await self._take(await watch.next())
        finally:
            self._timer.cancel()
            self._hub.leave(watch, *self._keys)

    def _beat(self) -> None:
        """Queue a heartbeat if nothing was sent for so long. A stream has one timer."""
        now = self._loop.time()
        silent_s = now - self._sent_at
        if silent_s >= self._heartbeat_s:
            self._watch.put(_BEAT)
            silent_s = 0.0
        self._timer = self._loop.call_at(now + self._heartbeat_s - silent_s, self._beat)

    async def _may_go_on(self, admitted: Callable[[], Awaitable[bool]]) -> bool:
        """Whether the key or the visit of this stream is still valid; checked once per heartbeat interval."""
        now = self._loop.time()
        if now < self._asked_at + self._heartbeat_s:
            return True
        first, self._asked_at = not self._asked_at, now
        return first or await admitted()

    async def _begin(self, after: int | None) -> None:
        """Find the position before the head is sent: events that the client causes from then on are not missed."""
        oldest, newest = await self._first_look()
        self._last = newest if after is None else after
        await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})
        self.started = True
        await self._emit(RECONNECT)
        if self._last > newest:
            self._last = 0
            await self._gap(oldest or newest + 1)
        elif 0 < self._last < newest and not oldest:
            self._last = newest
            await self._gap(newest + 1)
        await self._catch_up()

    async def _first_look(self) -> tuple[int, int]:
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                return await self._store.read(event_range, self._key)
        except TimeoutError:
            raise StoreUnavailable(self._store.trouble() or "the database does not answer") from None

    async def _take(self, item: object) -> None:
        if isinstance(item, Delta):
            await self._show(item)
        elif isinstance(item, Event):
            if item.seq == self._last + 1:
                self._last, self._shown = item.seq, None
                await self._emit(_event(item))
            elif item.seq > self._last:
                await self._catch_up()
        elif isinstance(item, Hint):
            await self._emit(f"event: {item.kind}\ndata: ".encode() + encode(item.data) + b"\n\n")
        elif isinstance(item, _Beat):
            await self._emit(HEARTBEAT)
        else:
            await self._catch_up()
            await self._show(self._hub.live(self._key))

    async def _show(self, delta: Delta | None) -> None:
        """Send the newest text of that turn, if it still runs: a slow reader skips older versions.

        The whole text, or what was added since the last one; after an event always the whole: the event may have ended the text.
        """
        now, before = self._hub.live(self._key), self._shown
        if delta is not None and now is not None and now.turn == delta.turn and now is not before:
            self._shown = now
            await self._emit((before and self._added and _added(before, now)) or _whole(now))

    async def _catch_up(self) -> None:
        """Send the events after our position. Events that were deleted long ago are reported as a gap."""
        while True:
            events = await self._beating(self._store.read(events_after, self._key, self._last, PAGE))
            if events is None:
                continue  # no answer from the store yet; read again
            if not events:
                return
            if 0 < self._last < events[0].seq - 1:
                await self._gap(events[0].seq)
            events = _first_batch(events)
            self._last, self._shown = events[-1].seq, None
            await self._emit(b"".join(map(_event, events)))

    async def _beating(self, work: Awaitable[T]) -> T | None:
        """Await the result; None if it took so long that a heartbeat was sent instead."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                return await work
        except TimeoutError:
            await self._emit(HEARTBEAT)
            return None

    async def _gap(self, oldest: int) -> None:
        await self._emit(b"event: gap\ndata: " + encode({"oldest": oldest}) + b"\n\n")

    async def _emit(self, chunk: bytes) -> None:
        self._sent_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})


@lru_cache(16)  # all watchers of a key get the same
def _whole(delta: Delta) -> bytes:
    return b"event: delta\ndata: " + encode({"turn": delta.turn, "text": delta.text}) + b"\n\n"


@lru_cache(16)
def _added(before: Delta, now: Delta) -> bytes | None:
    """Return the event of what was added to the text; None if it is another text."""
    if now.turn != before.turn or not now.text.startswith(before.text):
        return None
    return b"event: added\ndata: " + encode({"turn": now.turn, "text": now.text[len(before.text) :]}) + b"\n\n"


@lru_cache(16)
def _event(event: Event) -> bytes:
    return (
        f"id: {event.seq}\nevent: {event.kind}\nat: {event.at!r}\ndata: {event.data}\n\n".encode()
    )  # readers skip `at`


def _first_batch(events: list[Event]) -> list[Event]:
    """Return as many events as are sent at once: the rest is read again when the client has read these."""
    chars = 0
    for place, event in enumerate(events):
        chars += len(event.data)
        if chars > AT_ONCE:
            return events[: place + 1]
    return events


async def until_gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _conclude(feed: Feed, feeding: asyncio.Future[None], send: Send) -> None:
    """End the response; a store that failed before it began is a 503."""
    error = None if feeding.cancelled() else feeding.exception()
    if error is not None and not isinstance(error, StoreError):
        raise error
    if feed.started:
        await send({"type": "http.response.body", "body": b""})
    else:
        await answer(send, not_now(f"events cannot be read: {error or 'the gateway is stopping'}"))
