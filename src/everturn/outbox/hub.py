"""Watchers of session keys in this process: they get committed events in order, and the text that streams now.

The hub keeps nothing durable: a watcher that falls behind, or sees a gap, reads the store again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from everturn.model import Delta, Event, Hint

BACKLOG = 256
BACKLOG_CHARS = 256 * 1024


@dataclass(frozen=True, slots=True)
class Resync:
    """Asks the watcher to read the store again."""


class ChangeWatch:
    """Collects for one operator the kinds of rows that have changed since the last read."""

    def __init__(self) -> None:
        self._moved: set[str] = set()
        self._any = asyncio.Event()

    def note(self, what: tuple[str, ...]) -> None:
        """Note a change of these kinds; each is reported once, however often it changed."""
        self._moved.update(what)
        self._any.set()

    async def next(self) -> list[str]:
        """Wait for changes and return their kinds."""
        await self._any.wait()
        moved, self._moved = sorted(self._moved), set()
        self._any.clear()
        return moved


class ChangeHub:
    """Notifies operators which kinds of rows changed; they read the store. Costs nothing while nobody watches."""

    def __init__(self) -> None:
        self._watches: dict[ChangeWatch, None] = {}

    def watch(self) -> ChangeWatch:
        """Begin to watch."""
        watch = ChangeWatch()
        self._watches[watch] = None
        return watch

    def leave(self, watch: ChangeWatch) -> None:
        """End a watch."""
        self._watches.pop(watch, None)

    def note(self, *what: str) -> None:
        """Note a change of these kinds: turns, sessions, inbox, outbox, platforms, instances."""
        for watch in self._watches:
            watch.note(what)


Item = Event | Delta | Hint | Resync
RESYNC = Resync()
ALL_OF = "all of "  # and a platform: watches whatever happens to any key of it


class KeyWatch:
    """One watcher's bounded queue. When it overflows it is emptied and the watcher reads the store."""

    __slots__ = ("_chars", "_items", "_saying", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._chars = 0
        self._saying: str | None = None  # the turn of a queued delta: its reader takes the newest text
        self._waiting: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Queue an item; a slow reader costs no more memory than the backlog."""
        if isinstance(item, Delta):
            if self._saying == item.turn:
                return
            self._saying = item.turn
        self._chars += _chars(item)
        if self._items and (len(self._items) >= BACKLOG or self._chars > BACKLOG_CHARS):
            self._items.clear()
            self._chars, self._saying = 0, None
            item = RESYNC
        self._items.append(item)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> Item:
        """Wait for the next item and return it."""
        while not self._items:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        item = self._items.popleft()
        self._chars -= _chars(item)
        if isinstance(item, Delta) and item.turn == self._saying:
            self._saying = None
        return item

    def __len__(self) -> int:
        """How many items are queued."""
        return len(self._items)


def _chars(item: Item) -> int:
    """The rough memory size of a queued item; the newest delta is in memory anyway."""
    return len(item.data) if isinstance(item, Event) else 0


class Hub:
    """Passes events and streamed text to the watchers of each session key."""

    def __init__(self) -> None:
        self._watches: dict[str, set[KeyWatch]] = {}
        self._live: dict[str, Delta] = {}
        self._wide = 0
        self.changes = ChangeHub()

    def watch(self, *keys: str) -> KeyWatch:
        """Begin to watch keys; the caller then reads the store before it reads the watch."""
        watch = KeyWatch()
        for key in keys:
            self._watches.setdefault(key, set()).add(watch)
            self._wide += key.startswith(ALL_OF)
        return watch

    def leave(self, watch: KeyWatch, *keys: str) -> None:
        """Stop watching."""
        for key in keys:
            watches = self._watches.get(key, set())
            watches.discard(watch)
            self._wide -= key.startswith(ALL_OF)
            if not watches:
                self._watches.pop(key, None)

    def publish(self, key: str, events: Iterable[Event]) -> None:
        """Pass committed events to the watchers of the key."""
        watches = self._watches.get(key)
        if watches:
            for event in events:
                for watch in watches:
                    watch.put(event)
        if self._wide:
            self._hint_platform_watches(key)
        self.changes.note("inbox", "outbox", "sessions", "turns")

    def moved(self, key: str, turn: int) -> None:
        """Hint to watchers that a running turn has committed a step."""
        self.changes.note("turns")
        for watch in self._watches.get(key, ()):
            watch.put(Hint("step", {"turn": str(turn)}))

    def _hint_platform_watches(self, key: str) -> None:
        platform = key.split(":", 3)[2]
        for watch in self._watches.get(ALL_OF + platform, ()):
            watch.put(Hint("elsewhere", {"key": key}))

    def resync(self, key: str) -> None:
        """Ask the key's watchers to read the store: events were committed that are not here."""
        for watch in self._watches.get(key, ()):
            watch.put(RESYNC)
        if self._wide:
            self._hint_platform_watches(key)
        self.changes.note("inbox", "outbox", "sessions", "turns")

    def stream(self, key: str, turn: str, text: str) -> None:
        """Pass the text so far of a running turn to the watchers."""
        delta = Delta(turn, text)
        self._live[key] = delta
        for watch in self._watches.get(key, ()):
            watch.put(delta)

    def ended(self, key: str) -> None:
        """Drop the streamed text of the key: its turn has ended."""
        self._live.pop(key, None)

    def live(self, key: str) -> Delta | None:
        """The text so far of the running turn, for a watcher that connects now."""
        return self._live.get(key)
