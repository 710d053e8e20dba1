"""What waits and what failed: messages from while the gateway was down, and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from everturn import points
from everturn.errors import Conflict, EverturnError, StoreError, TooLong, Unkeepable
from everturn.ids import Instance
from everturn.inbox.albums import Bursts
from everturn.inbox.rows.backlog import Backlogged, asked_before, collecting_keys, expire_asked, settle_backlog
from everturn.inbox.rows.inbox import Arrival, move_cursor, store_dead_letter
from everturn.inbox.rules import ASKED_S, QUIET_S, outage_id, storable_message
from everturn.lifecycle.settings import Settings
from everturn.model import Heard, Inbound
from everturn.outbox.hub import Hub
from everturn.outbox.sender import ReplySender
from everturn.platform.connected import Contacts
from everturn.sessions.rules import notices
from everturn.sessions.rules.keys import origin_of
from everturn.store.interface import Store
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
UNSTORABLE = "unstorable"
RETRY_S = 30.0  # after an operation failed for another reason than a closing store


class Backlogs:
    """Runs a timer for each conversation whose backlog is being collected."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        contacts: Contacts,
        turns: Scheduler,
        outbox: ReplySender,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._contacts = contacts
        self._turns = turns
        self._outbox = outbox
        self._timers = Bursts(instance.clock, self._settle)

    def wait_until_quiet(self, key: str) -> None:
        """Settle the key's backlog when no message came for a moment."""
        self._timers.wake_at(key, self._clock.now() + QUIET_S)

    async def resume(self) -> None:
        """Go on with the backlogs that an earlier process collected and did not settle."""
        for key in await self._store.read(collecting_keys):
            self.wait_until_quiet(key)

    async def expire_once(self) -> int:
        """Expire backlogs whose request nobody answered; returns how many messages expired."""
        now, ended = self._clock.now(), 0
        for key in await self._store.read(asked_before, now):
            before = now - (self._settings.backlog_of(origin_of(key)[0]).age_s or ASKED_S)
            ended += await self._store.run(expire_asked, key, before, self._instance.ids.next(), now)
            self._outbox.wake(key)
        return ended

    def stop(self) -> None:
        """End all timers; the next process settles the backlogs."""
        self._timers.stop()

    def _settle(self, key: str) -> None:
        platform = origin_of(key)[0]
        policy, missed = self._settings.backlog_of(platform).policy, outage_id(self._contacts.hears_since(platform))
        settling = self._store.run(
            settle_backlog, key, policy, self._instance.number, missed, self._instance.ids.next(), self._clock.now()
        )
        settling.add_done_callback(partial(self._settled, key))

    def _settled(self, key: str, settling: asyncio.Future[Backlogged]) -> None:
        if settling.cancelled() or isinstance(error := settling.exception(), StoreError):
            return  # the store is closing: the next process finds them
        if error is not None:
            log.error("backlog not settled", session_key=key, error=repr(error), exc_info=error)
            self._timers.wake_at(key, self._clock.now() + RETRY_S)
            return
        settled = settling.result()
        if settled.later is not None:
            self._timers.wake_at(key, settled.later)
            return
        points.reached("backlog.settled")
        if settled.spoke:
            self._outbox.wake(key)
        self._turns.wake(key)


class DeadLetters:
    """Rejected messages of platforms that cannot be refused: each becomes a dead letter or is skipped, and is not read again."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        hub: Hub,
        outbox: ReplySender,
        arrival: Callable[[Inbound, str], Awaitable[Arrival]],
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._hub = hub
        self._outbox = outbox
        self._arrival = arrival

    async def refuse(self, inbound: Inbound, error: EverturnError) -> None:
        """Reject a message: too long, queue full, ids too long for an index, or an id that another message has."""
        if isinstance(error, Unkeepable):
            await self._skip(inbound, str(error))
        elif isinstance(error, Conflict):
            log.warning("message ignored", error=str(error))
        else:
            why = "too_long" if isinstance(error, TooLong) else "queue_full"
            await self._store_dead_letter(storable_message(inbound), why, str(error))

    async def keep(self, inbound: Inbound, error: Exception) -> None:
        """Store as a dead letter what can be stored of a message: its author, text and chat. Of an edit, nothing."""
        why = f"{type(error).__name__}: {error}"
        if inbound.what is not Heard.SAID or not await self._keep_text(inbound):
            await self._skip(inbound, why)
            return
        log.error(
            "message not stored", platform=inbound.source.platform, id=inbound.id, error=why, exc_info=error,
            remedy="its text is a dead letter: see `everturn dead`",
        )  # fmt: skip

    async def _keep_text(self, inbound: Inbound) -> bool:
        """Whether the message could be stored as a dead letter without whatever came with its text."""
        plain = Inbound(id=inbound.id, source=inbound.source, text=inbound.text, cursor=inbound.cursor)
        try:
            await self._store_dead_letter(storable_message(plain), UNSTORABLE, notices.UNSTORABLE)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with it
            log.info("dead letter not stored", error=repr(error))
            return False
        return True

    async def _skip(self, inbound: Inbound, why: str) -> None:
        """Skip a message of which nothing can be stored: read again for ever, it would block its platform."""
        source, at = inbound.source, self._clock.now()
        log.error("message skipped", platform=source.platform, id=str(inbound.id)[:100], error=why)
        if inbound.cursor is None:
            return
        try:
            await self._store.run(move_cursor, source.platform, source.account, inbound.cursor, at)
        except StoreError:
            raise
        except Exception as error:  # the next message moves the cursor past both
            log.exception("cursor not stored", platform=source.platform, id=str(inbound.id)[:100], error=str(error))

    async def _store_dead_letter(self, inbound: Inbound, why: str, text: str) -> None:
        arrival = await self._arrival(inbound, self._settings.key_of(inbound.source, inbound.agent))
        events = await self._store.run(store_dead_letter, arrival, why, text)
        self._hub.publish(arrival.key, events)
        self._outbox.wake(arrival.key)
