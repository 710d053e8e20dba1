"""When each account of a platform was last proven to work. Being connected proves nothing: something must have come or gone.

Kept to the minute, in a write of its own that no message waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from everturn.clock import Clock
from everturn.model import Json
from everturn.platform.interface import CanPull, Platform
from everturn.store.interface import Store
from everturn.store.operations.overview import note_contact

NOTED_EVERY_S = 60.0


class Contacts:
    """What this process sees of its platforms."""

    def __init__(self, store: Store, clock: Clock, platforms: Mapping[str, Platform]) -> None:
        self._store = store
        self._clock = clock
        self._platforms = platforms
        self._received: dict[tuple[str, str], float] = {}
        self._sent: dict[tuple[str, str], float] = {}
        self._trouble: dict[str, str] = {}

    def received(self, platform: str, account: str) -> None:
        """A message came."""
        now = self._clock.now()
        if abs(now - self._received.get((platform, account), 0.0)) >= NOTED_EVERY_S:
            self._received[platform, account] = now
            self._store.run(note_contact, platform, account, now, None).add_done_callback(_heard)

    def sent(self, platform: str, account: str) -> None:
        """A reply was taken."""
        now = self._clock.now()
        if abs(now - self._sent.get((platform, account), 0.0)) >= NOTED_EVERY_S:
            self._sent[platform, account] = now
            self._store.run(note_contact, platform, account, None, now).add_done_callback(_heard)

    def reads(self, platform: str, trouble: str | None = None) -> None:
        """A platform is being read, or why it can not be."""
        if trouble is None:
            self._trouble.pop(platform, None)
        else:
            self._trouble[platform] = trouble

    def connected(self) -> dict[tuple[str, str], Json]:
        """The platforms of this process: a hint from memory, beside what the rows say."""
        return {(each.name, each.account): {"state": self._state(each)} for each in self._platforms.values()}

    def _state(self, platform: Platform) -> str:
        if platform.name in self._trouble:
            return f"trouble: {self._trouble[platform.name]}"
        return "reading" if isinstance(platform, CanPull) else "open"


def _heard(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()  # a store that cannot write says so elsewhere
