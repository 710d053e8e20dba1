"""Telegram through a bot: read by polls of our own or by a webhook, written through python-telegram-bot's `Bot`.

The libraries' pollers tell Telegram "received" before the message is safe. Here a batch is handed on message by message, each
is committed by then, and only the next poll names the offset that lets Telegram forget them. The offset is used for that
alone: without a batch to acknowledge none is sent, because Telegram chooses its numbers anew after a quiet week, and an old
offset would make it forget messages that nobody has seen.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
import structlog
from msgspec.structs import replace
from telegram import (
    Bot,
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllPrivateChats,
    BotCommandScopeChat,
    BotCommandScopeDefault,
)

from everturn.clock import Clock
from everturn.decide.albums import undecided, whole
from everturn.decide.busy import ALBUM_S
from everturn.decide.commands import Declared
from everturn.decide.edits import folded
from everturn.decide.rights import NO_RIGHTS, Rights, menu
from everturn.errors import PlatformError, TryLater
from everturn.model import Inbound, SessionSource
from everturn.platform.interface import Contact
from everturn.platform.telegram.albums import Albums
from everturn.platform.telegram.calls import Requests, done
from everturn.platform.telegram.changes import Changes
from everturn.platform.telegram.reading import NAME, Reader
from everturn.platform.telegram.wire import (
    STRANGE,
    WANTED,
    Update,
    only_words,
    read_answer,
    read_batch,
    read_number,
    read_update,
)
from everturn.platform.telegram.writing import Writer, at_best

log = structlog.get_logger()
SPARE_S = 10.0
STRANGE_S = 10.0
HOOK_CHECKED_S = 60.0
ALBUM_CHECKED_S = ALBUM_S / 4
# Telegram keeps no order between connections, and we can not restore it: who answers 200 does not know what is still to come.
HOOK_CONNECTIONS = 1
SECRET_HEADER = b"x-telegram-bot-api-secret-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings:
    """One bot."""

    token: str
    api_url: str = "https://api.telegram.org"
    hook_url: str = ""  # where Telegram finds us; empty: we poll
    listening: bool = False
    poll_s: float = 30.0
    rights: Rights = NO_RIGHTS  # who is offered which commands


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
        self._albums, self._changes = Albums(), Changes()  # that are brought
        self._beside: set[asyncio.Task[None]] = set()  # what reading does not wait for
        self._menus = menus(settings.rights)  # those that Telegram does not have yet
        self._menus_at = 0.0
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
        """What people say, for ever; with a webhook it yields nothing, and keeps the webhook in place. Raises PlatformError."""
        reader = await self._introduced()
        async for each in self._watch_hook(reader) if self._settings.hook_url else self._poll(reader):
            yield each

    async def _poll(self, reader: Reader) -> AsyncIterator[Inbound]:
        """Batch by batch. A photo that is for us only if another one of its album names us is not acknowledged before that
        one had time to come: Telegram keeps it meanwhile, and nobody else does. What follows it does not wait.
        """
        acknowledge: int | None = None
        since: dict[int, float] = {}  # updates that are not decided
        passed_on: set[int] = set()  # those after them, which come again with the next batch
        while True:
            batch = await self._batch(acknowledge)
            for moved in self._moves(reader):
                yield moved
            heard = _heard(reader, {number: raw for number, raw in batch.items() if number not in passed_on})
            for inbound in heard.values():
                yield inbound
                await self.took(inbound)
            now = self._clock.monotonic()
            seen = {number: since.get(number, now) for number in undecided(heard)}
            since = {number: at for number, at in seen.items() if now - at < ALBUM_S}
            passed_on = set(batch) - set(since) if since else set()
            acknowledge = min(since, default=max(batch, default=-1) + 1) or None
            if since:
                await self._clock.sleep(ALBUM_CHECKED_S)

    async def _batch(self, offset: int | None) -> dict[int, msgspec.Raw]:
        query = {"timeout": int(self._settings.poll_s), "allowed_updates": json.dumps(WANTED)}
        if offset is not None:
            query["offset"] = offset
        _, payload = await self._requests.do_request(
            f"{self._bot.base_url}/getUpdates?{urlencode(query)}", "GET", read_timeout=self._settings.poll_s + SPARE_S
        )
        try:
            batch = {read_number(raw).update_id: raw for raw in read_batch(read_answer(payload).result)}
        except STRANGE as error:
            raise TryLater(f"what came instead of updates is not understood: {error}", STRANGE_S) from None
        self._received()
        return batch

    async def _watch_hook(self, reader: Reader) -> AsyncIterator[Inbound]:
        """Tell Telegram where we are, and look now and then whether it still knows and reaches us.

        It is told once at least, whatever it says that it knows: it does not say with which secret it comes.
        """
        await self._set_hook()
        while True:
            told = await done(self._bot.get_webhook_info())
            if told.url != self._settings.hook_url:
                await self._set_hook()
            elif told.last_error_message and told.pending_update_count:
                await self._unreached(told.last_error_message)
            else:
                self.contact = self.contact.checked()
                self._offer_menus()
            for moved in self._moves(reader):  # what is said comes through the door
                yield moved
            self._albums.forget(self._clock.monotonic())
            self._changes.forget(self._clock.monotonic())
            await self._clock.sleep(HOOK_CHECKED_S)

    async def _set_hook(self) -> None:
        """What waits is never dropped by it."""
        await done(
            self._bot.set_webhook(
                self._settings.hook_url,
                secret_token=self.secret,
                allowed_updates=WANTED,
                max_connections=HOOK_CONNECTIONS,
            )
        )

    async def _unreached(self, why: str) -> None:
        """Telegram comes and does not get in. A 404 is what our own door says to who shows another secret."""
        self.contact = self.contact.checked(f"Telegram can not reach us: {why}")
        if "404" in why:
            await self._set_hook()

    def _moves(self, reader: Reader) -> list[Inbound]:
        """Groups that became supergroups while nobody was told: Telegram said so when we wrote there."""
        untold, self._untold = self._untold, []
        return [reader.moved(was, str(self._moved[was])) for was in untold]

    async def _introduced(self) -> Reader:
        """Who we are there; a webhook that is in the way of polling is removed, and what waits behind it is kept."""
        if self._reader is None:
            me = await done(self._bot.get_me())
            if not self._settings.hook_url:
                await done(self._bot.delete_webhook(drop_pending_updates=False))
            self._reader = Reader(self.account, me.username or "", self._settings.listening)
            log.info("telegram", bot=f"@{me.username}", reads_groups=bool(me.can_read_all_group_messages))
        return self._reader

    def _received(self) -> None:
        """We asked, and were answered: that alone proves that we receive."""
        self.contact = self.contact.answered(self._clock.now())
        self._offer_menus()

    def _offer_menus(self) -> None:
        """The commands, beside the field in which people write; nobody's message waits for them."""
        if self._menus and self._clock.now() >= self._menus_at:
            self._menus_at = math.inf  # one at a time
            self._aside(self._set_menus())

    async def _set_menus(self) -> None:
        """What Telegram puts off is offered after a later read."""
        while self._menus:
            scope, commands = self._menus[0]
            try:
                await done(self._bot.set_my_commands(commands, scope=scope))
            except TryLater as error:
                self._menus_at = self._clock.now() + error.delay_s
                return
            except PlatformError as error:  # somebody who never wrote has no menu
                log.info("telegram did not take a menu", error=str(error))
            self._menus = self._menus[1:]

    def _aside(self, call: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(call)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def close_connections(self) -> None:
        """End them, and what is done beside the reading."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
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

    async def hear(self, body: bytes) -> list[Inbound]:
        """What was posted to us, with what it makes ours of its album, and with what it changes if that is not stored yet.
        Raises PlatformError while we do not know yet who we are.
        """
        reader = await self._introduced()
        # Nothing came before it: we were not spoken to, or not reached.
        self.contact = Contact(self._clock.now(), answers=self.contact.answers + 1)
        self._offer_menus()
        update = _understood(body)
        inbound = reader.read(update) if update else None
        now = self._clock.monotonic()
        return self._changes.heard(self._albums.heard(inbound, now), now) if inbound else []

    async def took(self, inbound: Inbound) -> None:
        """It is committed: who pressed a button is told, so that it stops turning. The next message does not wait for that."""
        self._albums.took(inbound)
        self._changes.took(inbound)
        if inbound.id.startswith("press-"):
            self._aside(self._answer_press(inbound.id.removeprefix("press-")))

    async def _answer_press(self, query: str) -> None:
        await at_best(self._bot.answer_callback_query(query))


def menus(rights: Rights) -> list[tuple[BotCommandScope, list[BotCommand]]]:
    """The registry's commands as Telegram lists them beside the field in which people write: what everybody may use in
    direct chats and in groups, and what owners and admins may in their own.
    """
    direct = SessionSource(platform=NAME)
    own = {each.removeprefix(f"{NAME}:") for each in rights.owners if each.startswith(f"{NAME}:")}
    own |= set(rights.scope(direct).admins)
    found: list[tuple[BotCommandScope, SessionSource]] = [
        (BotCommandScopeDefault(), replace(direct, chat_type="group")),
        (BotCommandScopeAllPrivateChats(), direct),
    ]
    found += [
        (BotCommandScopeChat(int(each)), replace(direct, user_id=each)) for each in sorted(own) if each.isdecimal()
    ]
    return [(scope, [_command(each) for each in menu(rights, source)]) for scope, source in found]


def _command(declared: Declared) -> BotCommand:
    return BotCommand(declared.name.replace("-", "_"), declared.line[:256])


def _heard(reader: Reader, batch: Mapping[int, msgspec.Raw]) -> dict[int, Inbound]:
    """What a batch says to us, in the order of its numbers, whatever their order on the way."""
    read = [(number, update) for number, raw in sorted(batch.items()) if (update := _understood(raw))]
    found = {number: heard for number, update in read if (heard := reader.read(update))}
    return dict(zip(found, whole(folded(list(found.values()))), strict=True))


def _understood(raw: bytes | msgspec.Raw) -> Update | None:
    """The update, or of a strange one its words, with a line in the log; None for one that no reading fits: it must not
    hold up the others.
    """
    try:
        return read_update(raw)
    except STRANGE as error:
        log.warning("an update of telegram is not understood", error=str(error))
    try:
        return only_words(raw)
    except STRANGE:
        return None
