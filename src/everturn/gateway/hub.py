"""Watchers of session keys in this process: committed events in order, and what is being said right now.

The hub keeps nothing that matters: a watcher that falls behind, or hears a gap, reads the store again.
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
    """Something happened that must be read from the store."""


class Looking:
    """One operator who looks: the names of what has moved since they last heard."""

    def __init__(self) -> None:
        self._moved: set[str] = set()
        self._any = asyncio.Event()

    def note(self, what: tuple[str, ...]) -> None:
        """Something of these kinds moved; however often, it is told once."""
        self._moved.update(what)
        self._any.set()

    async def next(self) -> list[str]:
        """What has moved, waited for."""
        await self._any.wait()
        moved, self._moved = sorted(self._moved), set()
        self._any.clear()
        return moved


class Changes:
    """Tells operators that something moved, never what it is: they read the store. Costs nothing while nobody looks."""

    def __init__(self) -> None:
        self._lookers: set[Looking] = set()

    def watch(self) -> Looking:
        """Begin to look."""
        looking = Looking()
        self._lookers.add(looking)
        return looking

    def leave(self, looking: Looking) -> None:
        """Look no more."""
        self._lookers.discard(looking)

    def note(self, *what: str) -> None:
        """Something of these kinds moved: turns, sessions, inbox, outbox, platforms, instances."""
        for looking in self._lookers:
            looking.note(what)


Item = Event | Delta | Hint | Resync
RESYNC = Resync()
ALL_OF = "all of "  # and a platform: watches whatever happens to any key of it


class Watch:
    """One watcher's bounded queue. When it overflows it is emptied and the watcher reads the store."""

    __slots__ = ("_chars", "_items", "_saying", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._chars = 0
        self._saying: str | None = None  # the turn of a delta that waits here: who takes it looks at the newest
        self._waiting: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Hand over an item; a slow reader costs no more memory than the backlog."""
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
        """The next thing that happened."""
        while not self._items:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        item = self._items.popleft()
        self._chars -= _chars(item)
        if isinstance(item, Delta) and item.turn == self._saying:
            self._saying = None
        return item

    def __len__(self) -> int:
        """How much waits."""
        return len(self._items)


def _chars(item: Item) -> int:
    """What an item that waits keeps in memory, roughly; the newest delta is kept anyway."""
    return len(item.data) if isinstance(item, Event) else 0


class Hub:
    """Tells watchers what happened to their key."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self._live: dict[str, Delta] = {}
        self._wide = 0
        self.changes = Changes()

    def watch(self, *keys: str) -> Watch:
        """Begin to watch; first read the store, then what comes."""
        watch = Watch()
        for key in keys:
            self._watches.setdefault(key, set()).add(watch)
            self._wide += key.startswith(ALL_OF)
        return watch

    def leave(self, watch: Watch, *keys: str) -> None:
        """Stop watching."""
        for key in keys:
            watches = self._watches.get(key, set())
            watches.discard(watch)
            self._wide -= key.startswith(ALL_OF)
            if not watches:
                self._watches.pop(key, None)

    def publish(self, key: str, events: Iterable[Event]) -> None:
        """Tell of committed events."""
        watches = self._watches.get(key)
        if watches:
            for event in events:
                for watch in watches:
                    watch.put(event)
        if self._wide:
            self._tell_all(key)
        self.changes.note("inbox", "outbox", "sessions", "turns")

    def moved(self, key: str, turn: int) -> None:
        """Tell that a running turn has committed something."""
        self.changes.note("turns")
        for watch in self._watches.get(key, ()):
            watch.put(Hint("step", {"turn": str(turn)}))

    def _tell_all(self, key: str) -> None:
        platform = key.split(":", 3)[2]
        for watch in self._watches.get(ALL_OF + platform, ()):
            watch.put(Hint("elsewhere", {"key": key}))

    def resync(self, key: str) -> None:
        """Tell that something was committed whose events are not at hand."""
        for watch in self._watches.get(key, ()):
            watch.put(RESYNC)
        if self._wide:
            self._tell_all(key)
        self.changes.note("inbox", "outbox", "sessions", "turns")

    def stream(self, key: str, turn: str, text: str) -> None:
        """Show the text so far of a running turn."""
        delta = Delta(turn, text)
        self._live[key] = delta
        for watch in self._watches.get(key, ()):
            watch.put(delta)

    def ended(self, key: str) -> None:
        """The running turn is over; what it showed is no longer current."""
        self._live.pop(key, None)

    def live(self, key: str) -> Delta | None:
        """What a watcher that connects now is shown of the running turn."""
        return self._live.get(key)
