"""Applying commands, in the order in which they were accepted. What they do is in the store's operation."""

from __future__ import annotations

import asyncio

from everturn import points
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.store.operations.commands import apply_command


class Commands:
    """One queue for all keys: commands are few, and their order is part of their meaning."""

    def __init__(self, parts: Parts, turns: Turns, outbox: Outbox) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox
        self._queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    def apply(self, number: int, platform: str) -> None:
        """Apply the stored command with this number as soon as those before it are done."""
        self._queue.put_nowait((number, platform))

    async def run(self) -> None:
        """Apply commands for ever."""
        while True:
            await self.apply_now(*await self._queue.get())

    async def apply_now(self, number: int, platform: str) -> None:
        """Apply one command; what it ended is ended here too."""
        parts = self._parts
        applied = await parts.store.run(
            apply_command, number, parts.ids.session(), parts.clock.now(), parts.delivery(platform)
        )
        points.reached("command.committed")
        if applied is None:
            return
        if applied.stopped is not None:
            self._turns.stop_turn(applied.key, applied.stopped)
            parts.hub.ended(applied.key)
        parts.hub.publish(applied.key, applied.events)
        if not parts.delivery(platform).by_event:
            self._outbox.wake(applied.key)
        self._turns.wake(applied.key)
