"""How much a client may ask: connections, requests, logins, and slots that clients share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from uvicorn.server import ServerState

from everturn.clock import Clock

MOST_CONNECTIONS = 8_192
MOST_OF_ADDRESS = 1_024  # a program may reconnect all event streams of its key at once
MOST_HELD = 16 * 1024 * 1024
MOST_LEAVING = 64
MOST = 10_000


class BoundedConnection(Protocol):
    """A connection, as the limits see it."""

    @property
    def address(self) -> str:
        """The client's address, as connections are counted."""
        ...

    @property
    def transport(self) -> asyncio.Transport:
        """The transport."""
        ...

    @property
    def field_bytes(self) -> int:
        """Bytes of an incomplete head or of incomplete trailers."""
        ...

    def authenticated(self) -> bool:
        """Whether its latest request was authenticated."""
        ...

    def give_way(self) -> None:
        """Close, so that another connection has room; what was written before may still be sent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one server."""

    connections: int = MOST_CONNECTIONS
    of_address: int = MOST_OF_ADDRESS  # connections without a credential; 0: no limit
    held: int = MOST_HELD  # bytes of heads and trailers of all connections
    leaving: int = MOST_LEAVING  # connections that gave way and still have something to send


class SharedState(ServerState):
    """State shared by all connections of a server: uvicorn's, and the limits.

    Above a limit, the oldest connection gives way, not the newest. A client with a credential sends it at once
    and is counted no longer, so idle strangers lock nobody out. A connection that gave way is counted until it is closed: a client
    that does not read keeps its socket open until then.
    """

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self.bounds = bounds
        self._unauthenticated: OrderedDict[BoundedConnection, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[BoundedConnection, None]] = {}
        self._leaving: OrderedDict[BoundedConnection, None] = OrderedDict()
        self._heads: OrderedDict[BoundedConnection, int] = OrderedDict()
        self._held = 0

    def enter(self, connection: BoundedConnection) -> bool:
        """Count a new connection, which uvicorn has in its own set already. Returns whether there is room for it."""
        same = self._by_address.get(connection.address, ())
        if same and len(same) >= self.bounds.of_address > 0:
            self._take_out(next(iter(same)))
        room = len(self.connections) <= self.bounds.connections or self._make_room()
        self._unauthenticated[connection] = None
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        return room

    def leave(self, connection: BoundedConnection) -> None:
        """Stop counting a connection that ended."""
        self._forget(connection)
        self._leaving.pop(connection, None)
        self.release(connection)

    def hold(self, connection: BoundedConnection, size: int) -> None:
        """Count the heads of a connection: an incomplete one, and those of requests that are not answered yet."""
        if not size:
            self.release(connection)
            return
        self._held += size - self._heads.get(connection, 0)
        self._heads[connection] = size
        while self._held > self.bounds.held:
            oldest = next(iter(self._heads))
            self.release(oldest)
            if oldest.field_bytes or not oldest.authenticated():
                self._end(oldest)

    def release(self, connection: BoundedConnection) -> None:
        """Stop counting the heads of a connection."""
        self._held -= self._heads.pop(connection, 0)

    def _make_room(self) -> bool:
        """Close the oldest unauthenticated connection; False if all are authenticated."""
        while self._unauthenticated:
            if self._take_out(next(iter(self._unauthenticated))):
                return True
        return False

    def _take_out(self, oldest: BoundedConnection) -> bool:
        """Stop counting a connection if it is authenticated, else close it. Returns whether it was closed."""
        if oldest.authenticated():
            self._forget(oldest)
            return False
        self._end(oldest)
        return True

    def _end(self, connection: BoundedConnection) -> None:
        self._forget(connection)
        self._leaving[connection] = None
        connection.give_way()
        if len(self._leaving) > self.bounds.leaving:
            self._leaving.popitem(last=False)[0].transport.abort()  # the event loop closes its socket next

    def _forget(self, connection: BoundedConnection) -> None:
        self._unauthenticated.pop(connection, None)
        same = self._by_address.get(connection.address)
        if same is not None:
            same.pop(connection, None)
            if not same:
                del self._by_address[connection.address]


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """Token buckets for rate limits, one per name: `size` tokens at once, then one more every `refill_s` seconds.

    They are in memory: all are full after a restart, and their number is bounded.
    """

    def __init__(self, clock: Clock, size: float, refill_s: float) -> None:
        self._clock = clock
        self._size = size
        self._refill_s = refill_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> float | None:
        """Take a token. Returns None, or the seconds until there is one."""
        wait = self.wait(name)
        if wait is None:
            self._buckets[name].tokens -= 1
        return wait

    def wait(self, name: str) -> float | None:
        """Return the seconds until there is a token, without taking it; None if there is one now."""
        bucket = self._filled(name)
        return None if bucket.tokens >= 1 else (1 - bucket.tokens) * self._refill_s

    def is_empty(self, name: str) -> bool:
        """Whether an existing bucket is empty. Creates no bucket."""
        return name in self._buckets and self.wait(name) is not None

    def _filled(self, name: str) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self._size, now)
            if len(self._buckets) > MOST:
                self._buckets.popitem(last=False)  # the least recently used one has refilled most
        else:
            bucket.tokens = min(self._size, bucket.tokens + (now - bucket.at) / self._refill_s)
            bucket.at = now
            self._buckets.move_to_end(name)
        return bucket


def may_take(own: int, most: int, free: int) -> bool:
    """Whether a client that has `own` slots may take one more: at most `most`, and no more than are left for the others.

    One client takes half of all slots at most, two take two thirds, five take five sixths: the next client finds some.
    """
    return own < min(most, free)
