"""Telegram through a bot: read by polls of our own or by a webhook, written through python-telegram-bot's `Bot`.

The libraries' pollers tell Telegram "received" before the message is safe. Here a batch is handed on message by message, each
is committed by then, and only the next poll names the offset that lets Telegram forget them. The offset is used for that
alone: without a batch to acknowledge none is sent, because Telegram chooses its numbers anew after a quiet week, and an old
offset would make it forget messages that nobody has seen.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
import structlog
from telegram import Bot, BotCommand

from everturn.clock import Clock
from everturn.decide.commands import REGISTRY
from everturn.decide.reconnecting import pause_s
from everturn.errors import PlatformError, TryLater
from everturn.model import Inbound
from everturn.platform.interface import Contact
from everturn.platform.telegram.calls import Requests, done
from everturn.platform.telegram.reading import NAME, Reader
from everturn.platform.telegram.wire import WANTED, Update, read_answer, read_batch, read_number, read_update
from everturn.platform.telegram.writing import Writer, at_best

log = structlog.get_logger()
T = TypeVar("T")
SPARE_S = 10.0
STRANGE_S = 10.0
HOOK_CHECKED_S = 60.0
SECRET_HEADER = b"x-telegram-bot-api-secret-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings:
    """One bot."""

    token: str
    api_url: str = "https://api.telegram.org"
    hook_url: str = ""  # where Telegram finds us; empty: we poll
    listening: bool = False
    poll_s: float = 30.0


class TelegramPlatform(Writer):
    """Where people write to a bot."""

    name = NAME

    def __init__(self, settings: TelegramSettings, clock: Clock) -> None:
        self.account = settings.token.partition(":")[0]
        self.credential = hashlib.sha256(settings.token.encode()).hexdigest()
        self.contact = Contact()
        self._settings = settings
        self._clock = clock
        self._requests = Requests()
        self._reader: Reader | None = None
        base = settings.api_url.rstrip("/")
        super().__init__(
            Bot(
                settings.token,
                base_url=f"{base}/bot",
                base_file_url=f"{base}/file/bot",
                request=self._requests,
                get_updates_request=self._requests,
            )
        )

    # -- reading -------------------------------------------------------------------------------------------------------

    async def inbound(self, after: str | None) -> AsyncGenerator[Inbound, None]:  # noqa: ARG002  Telegram keeps the place itself
        """What people say, for ever; with a webhook it yields nothing, and keeps the webhook in place."""
        failures = 0
        while True:
            try:
                reader = await self._introduced()
                reading = self._watch_hook() if self._settings.hook_url else self._poll(reader)
                async for each in reading:
                    failures = 0
                    yield each
            except PlatformError as error:
                failures += 1
                self.contact = Contact(self.contact.received_at, str(error))
                asked_s = error.delay_s if isinstance(error, TryLater) else 0.0
                wait_s = pause_s(failures, random.random(), asked_s)  # noqa: S311  not a secret
                log.warning("telegram is not readable", error=str(error), again_in_s=round(wait_s, 1))
                await self._clock.sleep(wait_s)

    async def _poll(self, reader: Reader) -> AsyncIterator[Inbound]:
        acknowledge: int | None = None
        while True:
            batch = await self._batch(acknowledge)
            acknowledge = max(batch, default=-1) + 1 or None
            for _, raw in sorted(batch.items()):  # whatever their order on the way
                update = _understood(raw)
                inbound = reader.read(update) if update else None
                if inbound is not None:
                    yield inbound
                    await self.took(inbound)

    async def _batch(self, offset: int | None) -> dict[int, msgspec.Raw]:
        query = {"timeout": int(self._settings.poll_s), "allowed_updates": json.dumps(WANTED)}
        if offset is not None:
            query["offset"] = offset
        _, payload = await self._requests.do_request(
            f"{self._bot.base_url}/getUpdates?{urlencode(query)}", "GET", read_timeout=self._settings.poll_s + SPARE_S
        )
        try:
            batch = {read_number(raw).update_id: raw for raw in read_batch(read_answer(payload).result)}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TryLater(f"what came instead of updates is not understood: {error}", STRANGE_S) from None
        self._received()
        return batch

    async def _watch_hook(self) -> AsyncIterator[Inbound]:
        """Tell Telegram where we are, and look now and then whether it still knows and reaches us."""
        url = self._settings.hook_url
        nothing: tuple[Inbound, ...] = ()  # what is said comes through the door
        while True:
            told = await done(self._bot.get_webhook_info())
            if told.url != url:
                await done(self._bot.set_webhook(url, secret_token=self.secret, allowed_updates=WANTED))
            elif told.last_error_message and told.pending_update_count:
                self.contact = Contact(
                    self.contact.received_at, f"Telegram can not reach us: {told.last_error_message}"
                )
            else:
                self._received()
            for each in nothing:
                yield each
            await self._clock.sleep(HOOK_CHECKED_S)

    async def _introduced(self) -> Reader:
        """Who we are there; a webhook that is in the way of polling is removed, and what waits behind it is kept."""
        if self._reader is None:
            me = await done(self._bot.get_me())
            if not self._settings.hook_url:
                await done(self._bot.delete_webhook(drop_pending_updates=False))
            await at_best(self._bot.set_my_commands(menu()))
            self._reader = Reader(self.account, me.username or "", self._settings.listening)
            log.info("telegram", bot=f"@{me.username}", reads_groups=bool(me.can_read_all_group_messages))
        return self._reader

    def _received(self) -> None:
        self.contact = Contact(self._clock.now())

    async def close_connections(self) -> None:
        """End them."""
        await self._requests.shutdown()

    # -- a webhook -----------------------------------------------------------------------------------------------------

    @property
    def secret(self) -> str:
        """What Telegram shows at our door; made from the token, so that every life knows it."""
        return hmac.new(self._settings.token.encode(), b"everturn webhook", hashlib.sha256).hexdigest()

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers comes from Telegram."""
        given = headers.get(SECRET_HEADER, b"")
        return bool(self._settings.hook_url) and hmac.compare_digest(given, self.secret.encode())

    async def hear(self, body: bytes) -> Inbound | None:
        """What was posted to us. Raises PlatformError while we do not know yet who we are."""
        reader = await self._introduced()
        self._received()
        update = _understood(body)
        return reader.read(update) if update else None

    async def took(self, inbound: Inbound) -> None:
        """It is committed: who pressed a button is told, so that it stops turning."""
        if inbound.id.startswith("press-"):
            await at_best(self._bot.answer_callback_query(inbound.id.removeprefix("press-")))


def menu() -> list[BotCommand]:
    """The registry's commands as Telegram lists them beside the field in which people write."""
    return [BotCommand(each.name.replace("-", "_"), each.line[:256]) for each in REGISTRY]


def _understood(raw: bytes | msgspec.Raw) -> Update | None:
    """The update; None, with a line in the log, for one that no reading fits: it must not hold up the others."""
    try:
        return read_update(raw)
    except msgspec.DecodeError as error:
        log.warning("an update of telegram is not understood", error=str(error))
        return None
