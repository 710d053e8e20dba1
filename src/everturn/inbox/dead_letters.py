"""Rejected messages of platforms that cannot be refused: each becomes a dead letter or is skipped, and is not read again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from everturn.errors import Conflict, EverturnError, StoreError, TooLong, Unkeepable
from everturn.inbox.fitting import storable_message
from everturn.inbox.rows.inbox import Arrival, move_cursor, store_dead_letter
from everturn.lifecycle.parts import Parts
from everturn.model import Heard, Inbound
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules import notices

log = structlog.get_logger()
UNSTORABLE = "unstorable"


class DeadLetters:
    """Stores rejected messages as dead letters, and moves the cursor past them."""

    def __init__(
        self, parts: Parts, outbox: ReplySender, arrival: Callable[[Inbound, str], Awaitable[Arrival]]
    ) -> None:
        self._parts = parts
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
        source, at = inbound.source, self._parts.clock.now()
        log.error("message skipped", platform=source.platform, id=str(inbound.id)[:100], error=why)
        if inbound.cursor is None:
            return
        try:
            await self._parts.store.run(move_cursor, source.platform, source.account, inbound.cursor, at)
        except StoreError:
            raise
        except Exception as error:  # the next message moves the cursor past both
            log.exception("cursor not stored", platform=source.platform, id=str(inbound.id)[:100], error=str(error))

    async def _store_dead_letter(self, inbound: Inbound, why: str, text: str) -> None:
        arrival = await self._arrival(inbound, self._parts.settings.key_of(inbound.source, inbound.agent))
        events = await self._parts.store.run(store_dead_letter, arrival, why, text)
        self._parts.hub.publish(arrival.key, events)
        self._outbox.wake(arrival.key)
