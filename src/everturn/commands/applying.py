"""Applying commands, in the order in which they were accepted. What they do is in the store's operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.commands.rows.commands import apply_command, fail_command, notify_restarted, restarts_to_notify
from everturn.commands.rows.values import Terms
from everturn.errors import StoreError
from everturn.ids import Instance
from everturn.lifecycle.settings import Settings
from everturn.outbox.hub import Hub
from everturn.outbox.sender import ReplySender
from everturn.platform.connected import Platforms
from everturn.sessions.rules.keys import origin_of
from everturn.store.interface import Store
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()


class Commands:
    """Applies commands from one queue for all keys: commands are few, and their order is part of their meaning."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        platforms: Platforms,
        *,
        hub: Hub,
        turns: Scheduler,
        outbox: ReplySender,
        restart: Callable[[], None],
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._platforms = platforms
        self._hub = hub
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
        """Apply one command. One that cannot be applied, whatever the reason, must not block the others: not in this process,
        nor in those that follow.
        """
        try:
            await self._apply(number, key)
        except StoreError:
            raise
        except Exception as error:
            log.exception("command failed", command=number, error=type(error).__name__)
            await self._fail(number, origin_of(key)[0])
        finally:
            self._turns.streams.hold(key, held=False)

    async def _apply(self, number: int, key: str) -> None:
        """Apply the stored command, stop here the turn that it ended and wake the loops; streamed text is committed with it."""
        platform = origin_of(key)[0]
        self._turns.streams.hold(key, held=True)
        applied = await self._store.run(
            apply_command,
            number,
            self._instance.ids.session(),
            self._clock.now(),
            self._platforms.delivery(platform),
            replace(self._terms(platform), streamed=self._turns.streams.of(key)),
        )
        points.reached("command.committed")
        if applied is None:
            return
        if applied.stopped is not None:
            self._turns.stop_turn(applied.key, applied.stopped)
            self._hub.ended(applied.key)
        self._hub.publish(applied.key, applied.events)
        if not self._platforms.delivery(platform).by_event:
            self._outbox.wake(applied.key)
        self._turns.wake(applied.key)
        if applied.wakes is not None and applied.wakes != applied.key:
            self._hub.resync(applied.wakes)
            self._turns.wake(applied.wakes)
        if applied.restart:
            self._restart()

    async def _fail(self, number: int, platform: str) -> None:
        delivery = self._platforms.delivery(platform)
        failed = await self._store.run(fail_command, number, self._instance.ids.session(), self._clock.now(), delivery)
        if failed is None:
            return
        self._hub.publish(failed.key, failed.events)
        if not delivery.by_event:
            self._outbox.wake(failed.key)

    async def notify_restarted(self) -> None:
        """Send each chat that asked an earlier process for a restart one notice that it is done."""
        for number, key in await self._store.read(restarts_to_notify, self._instance.number):
            delivery = self._platforms.delivery(origin_of(key)[0])
            events = await self._store.run(
                notify_restarted, number, key, self._instance.ids.next(), self._clock.now(), delivery
            )
            points.reached("restart.notified")
            self._hub.publish(key, events)
            self._outbox.wake(key)

    def _terms(self, platform: str) -> Terms:
        settings = self._settings
        return Terms(
            rights=settings.rights,
            instance=self._instance.number,
            message=self._instance.ids.next(),
            models=settings.models,
            providers=settings.providers,
            context_tokens=settings.context_tokens,
            busy=settings.busy_for(platform),
            approvers=settings.approvers,
            admission=settings.admission_of(platform),
        )
