"""Applying commands, in the order in which they were accepted. What they do is in the store's operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.decide.keys import origin_of
from everturn.errors import StoreError
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.store.operations.command_choices import restarts_to_tell, tell_back
from everturn.store.operations.command_values import Terms
from everturn.store.operations.commands import apply_command, give_up_command

log = structlog.get_logger()


class Commands:
    """One queue for all keys: commands are few, and their order is part of their meaning."""

    def __init__(self, parts: Parts, turns: Turns, outbox: Outbox, restart: Callable[[], None]) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox
        self._restart = restart
        self._queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    def apply(self, number: int, key: str) -> None:
        """Apply the stored command with this number as soon as those before it are done."""
        self._queue.put_nowait((number, key))

    async def run(self) -> None:
        """Apply commands for ever."""
        while True:
            await self.apply_now(*await self._queue.get())

    async def apply_now(self, number: int, key: str) -> None:
        """Apply one command. One that can not be applied, whatever the reason, must not keep the others from it: not in this life,
        nor in each that follows.
        """
        try:
            await self._apply(number, key)
        except StoreError:
            raise
        except Exception as error:
            log.exception("command failed", command=number, error=type(error).__name__)
            await self._give_up(number, origin_of(key)[0])
        finally:
            self._turns.streams.hold(key, held=False)

    async def _apply(self, number: int, key: str) -> None:
        """What it ended is ended here too; what that had streamed is committed with its end."""
        parts, platform = self._parts, origin_of(key)[0]
        self._turns.streams.hold(key, held=True)
        applied = await parts.store.run(
            apply_command,
            number,
            parts.ids.session(),
            parts.clock.now(),
            parts.delivery(platform),
            replace(self._terms(platform), streamed=self._turns.streams.of(key)),
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
        if applied.wakes is not None and applied.wakes != applied.key:
            parts.hub.resync(applied.wakes)
            self._turns.wake(applied.wakes)
        if applied.restart:
            self._restart()

    async def _give_up(self, number: int, platform: str) -> None:
        parts = self._parts
        delivery = parts.delivery(platform)
        failed = await parts.store.run(give_up_command, number, parts.ids.session(), parts.clock.now(), delivery)
        if failed is None:
            return
        parts.hub.publish(failed.key, failed.events)
        if not delivery.by_event:
            self._outbox.wake(failed.key)

    async def tell_back(self) -> None:
        """Whoever asked an earlier life for a restart is told, once, that we are back."""
        parts = self._parts
        for number, key in await parts.store.read(restarts_to_tell, parts.instance):
            delivery = parts.delivery(origin_of(key)[0])
            events = await parts.store.run(tell_back, number, key, parts.ids.next(), parts.clock.now(), delivery)
            points.reached("restart.told")
            parts.hub.publish(key, events)
            self._outbox.wake(key)

    def _terms(self, platform: str) -> Terms:
        settings = self._parts.settings
        return Terms(
            rights=settings.rights,
            instance=self._parts.instance,
            message=self._parts.ids.next(),
            models=settings.models,
            providers=settings.providers,
            context_tokens=settings.context_tokens,
            busy=settings.busy_for(platform),
            approvers=settings.approvers,
            admission=settings.admission_of(platform),
        )
