"""Messages that are not taken, from platforms that cannot be refused: a dead letter, or passed over; never brought again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from everturn.decide import words
from everturn.errors import Conflict, EverturnError, StoreError, TooLong, Unkeepable
from everturn.gateway.fitting import storable_message
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.model import Heard, Inbound
from everturn.store.operations.inbox import Arrival, move_cursor, turn_away

log = structlog.get_logger()
UNSTORABLE = "unstorable"


class DeadLetters:
    """Keeps what can be kept of messages that are not taken, and moves the cursor past them."""

    def __init__(self, parts: Parts, outbox: Outbox, arrival: Callable[[Inbound, str], Awaitable[Arrival]]) -> None:
        self._parts = parts
        self._outbox = outbox
        self._arrival = arrival

    async def refuse(self, inbound: Inbound, error: EverturnError) -> None:
        """What is not taken as it is: too long, one too many, under ids that no index takes, or under an id of other words."""
        if isinstance(error, Unkeepable):
            await self._pass_over(inbound, str(error))
        elif isinstance(error, Conflict):
            log.warning("message ignored", error=str(error))
        else:
            why = "too_long" if isinstance(error, TooLong) else "queue_full"
            await self._turn_away(storable_message(inbound), why, str(error))

    async def keep(self, inbound: Inbound, error: Exception) -> None:
        """Keep of a message that cannot be stored what can be: who wrote what where. Of a change of one, nothing."""
        told = f"{type(error).__name__}: {error}"
        if inbound.what is not Heard.SAID or not await self._keep_text(inbound):
            await self._pass_over(inbound, told)
            return
        log.error(
            "message not stored", platform=inbound.source.platform, id=inbound.id, error=told, exc_info=error,
            remedy="its text is a dead letter: see `everturn dead`",
        )  # fmt: skip

    async def _keep_text(self, inbound: Inbound) -> bool:
        """Whether the message could be stored as a dead letter without whatever came with its text."""
        plain = Inbound(id=inbound.id, source=inbound.source, text=inbound.text, cursor=inbound.cursor)
        try:
            await self._turn_away(storable_message(plain), UNSTORABLE, words.UNSTORABLE)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with it
            log.info("dead letter not stored", error=repr(error))
            return False
        return True

    async def _pass_over(self, inbound: Inbound, why: str) -> None:
        """Nothing can be stored of it, not even that it is dead; brought again for ever, it would stop its platform."""
        source, at = inbound.source, self._parts.clock.now()
        log.error("message passed over", platform=source.platform, id=str(inbound.id)[:100], error=why)
        if inbound.cursor is None:
            return
        try:
            await self._parts.store.run(move_cursor, source.platform, source.account, inbound.cursor, at)
        except StoreError:
            raise
        except Exception as error:  # the next message moves it past both
            log.exception("cursor not stored", platform=source.platform, id=str(inbound.id)[:100], error=str(error))

    async def _turn_away(self, inbound: Inbound, why: str, text: str) -> None:
        arrival = await self._arrival(inbound, self._parts.settings.key_of(inbound.source, inbound.agent))
        events = await self._parts.store.run(turn_away, arrival, why, text)
        self._parts.hub.publish(arrival.key, events)
        self._outbox.wake(arrival.key)
