"""Bounds on what clients may hold before they show a credential: connections of one address, and heads of all."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from uvicorn.server import ServerState

MOST_CONNECTIONS = 8_192
MOST_OF_ADDRESS = 1_024  # a program may reconnect all event streams of its key at once
MOST_HELD = 16 * 1024 * 1024
MOST_LEAVING = 64


class Guarded(Protocol):
    """A connection, as its bounds see it."""

    @property
    def address(self) -> str:
        """The client's address, as it is counted."""
        ...

    @property
    def transport(self) -> asyncio.Transport:
        """Its socket."""
        ...

    @property
    def field_bytes(self) -> int:
        """What there is of an unfinished head or of unfinished trailers."""
        ...

    def authenticated(self) -> bool:
        """Whether its latest request showed a valid credential."""
        ...

    def give_way(self) -> None:
        """Close, so that another has room; what was written before may still be sent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much there may be at once."""

    connections: int = MOST_CONNECTIONS
    of_address: int = MOST_OF_ADDRESS  # connections without a credential; 0: no bound
    held: int = MOST_HELD  # bytes of heads and trailers of all connections
    leaving: int = MOST_LEAVING  # connections that gave way and still have something to send


class Shared(ServerState):
    """What all connections of a server share: uvicorn's state, and the bounds.

    Where there is too much, the oldest gives way, not the newest. A client with a credential shows it at once and is counted no
    longer, so nobody is kept out by those who wait. A connection that gave way is counted until it is closed: a client that does not
    read keeps its socket open until then.
    """

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self.bounds = bounds
        self._strangers: OrderedDict[Guarded, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Guarded, None]] = {}
        self._leaving: OrderedDict[Guarded, None] = OrderedDict()
        self._heads: OrderedDict[Guarded, int] = OrderedDict()
        self._held = 0

    def enter(self, connection: Guarded) -> bool:
        """Count a new connection, which uvicorn has in its own set already; whether there is room for it."""
        same = self._by_address.get(connection.address, ())
        if same and len(same) >= self.bounds.of_address > 0:
            self._take_out(next(iter(same)))
        room = len(self.connections) <= self.bounds.connections or self._make_room()
        self._strangers[connection] = None
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        return room

    def leave(self, connection: Guarded) -> None:
        """A connection ended."""
        self._forget(connection)
        self._leaving.pop(connection, None)
        self.release(connection)

    def hold(self, connection: Guarded, size: int) -> None:
        """A connection has heads of this size: an unfinished one, and those of requests that are not answered yet."""
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

    def release(self, connection: Guarded) -> None:
        """It has no head any more."""
        self._held -= self._heads.pop(connection, 0)

    def _make_room(self) -> bool:
        """Let the oldest connection without a credential give way; False when every one has shown one."""
        while self._strangers:
            if self._take_out(next(iter(self._strangers))):
                return True
        return False

    def _take_out(self, oldest: Guarded) -> bool:
        """Count a connection no longer if it has shown a credential, else end it; whether it ends."""
        if oldest.authenticated():
            self._forget(oldest)
            return False
        self._end(oldest)
        return True

    def _end(self, connection: Guarded) -> None:
        self._forget(connection)
        self._leaving[connection] = None
        connection.give_way()
        if len(self._leaving) > self.bounds.leaving:
            self._leaving.popitem(last=False)[0].transport.abort()  # the event loop closes its socket next

    def _forget(self, connection: Guarded) -> None:
        self._strangers.pop(connection, None)
        same = self._by_address.get(connection.address)
        if same is not None:
            same.pop(connection, None)
            if not same:
                del self._by_address[connection.address]
