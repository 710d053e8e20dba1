"""The Telegram adapter: read by polls of our own or by a webhook, written through python-telegram-bot's `Bot`.

The libraries' pollers acknowledge messages to Telegram before they are saved. Here a batch is passed on message by message,
each is committed by then, and only the next poll names the offset that lets Telegram forget them. The offset is used for that
alone: without a batch to acknowledge none is sent, because Telegram chooses its numbers anew after a quiet week, and an old
offset would make it forget messages that nobody has read.
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
from everturn.commands.rules.registry import Declared
from everturn.errors import PlatformError, TryLater
from everturn.inbox.rules import ALBUM_S
from everturn.model import Inbound, SessionSource
from everturn.people.rules.rights import NO_RIGHTS, Rights, menu
from everturn.platform.interface import Contact
from everturn.platform.telegram.reading import NAME, Albums, RecentEdits, TelegramReader
from everturn.platform.telegram.rules import folded, undecided, whole
from everturn.platform.telegram.wire import (
    UNREADABLE,
    WANTED,
    TelegramRequests,
    Update,
    done,
    read_answer,
    read_batch,
    read_number,
    read_update,
    text_only,
)
from everturn.platform.telegram.writing import TelegramWriter, best_effort

log = structlog.get_logger()
SPARE_S = 10.0
STRANGE_S = 10.0
HOOK_CHECKED_S = 60.0
ALBUM_CHECKED_S = ALBUM_S / 4
# Telegram keeps no order between connections, and we cannot restore it: who answers 200 does not know what is still to come.
HOOK_CONNECTIONS = 1
SECRET_HEADER = b"x-telegram-bot-api-secret-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings:
    """The settings of one bot."""

    token: str
    api_url: str = "https://api.telegram.org"
    hook_url: str = ""  # the URL of our webhook; empty: we poll
    listening: bool = False
    poll_s: float = 30.0
    rights: Rights = NO_RIGHTS  # which commands the menus offer to whom


class TelegramPlatform(TelegramWriter):
    """One Telegram bot as a platform."""

    name = NAME

    def __init__(self, settings: TelegramSettings, clock: Clock) -> None:
        self.account = settings.token.partition(":")[0]
        self.credential = hashlib.sha256(settings.token.encode()).hexdigest()
        self.contact = Contact()
        self._settings = settings
        self._clock = clock
        self._requests = TelegramRequests()
        self._reader: TelegramReader | None = None
        self._albums, self._changes = Albums(), RecentEdits()  # that arrive by webhook
        self._background: set[asyncio.Task[None]] = set()  # what reading does not wait for
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
        """Yield messages for ever; with a webhook it yields none, and keeps the webhook in place. Raises PlatformError."""
        reader = await self._get_reader()
        async for each in self._watch_hook(reader) if self._settings.hook_url else self._poll(reader):
            yield each

    async def _poll(self, reader: TelegramReader) -> AsyncIterator[Inbound]:
        """Poll batch by batch. A photo that is for us only if another one of its album names us is not acknowledged before that
        one had time to arrive: Telegram keeps it meanwhile, and nobody else does. What follows it does not wait.
        """
        acknowledge: int | None = None
        since: dict[int, float] = {}  # updates that are not decided
        passed_on: set[int] = set()  # those after them, which come again with the next batch
        while True:
            batch = await self._batch(acknowledge)
            for moved in self._moves(reader) if self._unreported else ():
                yield moved
            heard = _heard(reader, {number: raw for number, raw in batch.items() if number not in passed_on})
            for inbound in heard.values():
                yield inbound
                await self.acknowledge(inbound)
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
        except UNREADABLE as error:
            raise TryLater(f"Telegram's response to a poll cannot be read: {error}", STRANGE_S) from None
        self._received()
        return batch

    async def _watch_hook(self, reader: TelegramReader) -> AsyncIterator[Inbound]:
        """Set the webhook, and check now and then that Telegram still has it and reaches us.

        It is set once at least, whatever Telegram reports: Telegram does not say with which secret it posts.
        """
        await self._set_hook()
        while True:
            told = await done(self._bot.get_webhook_info())
            if told.url != self._settings.hook_url:
                await self._set_hook()
            elif told.last_error_message and told.pending_update_count:
                await self._report_unreachable(told.last_error_message)
            else:
                self.contact = self.contact.checked()
                self._offer_menus()
            for moved in self._moves(reader):  # messages arrive by the webhook
                yield moved
            self._albums.forget(self._clock.monotonic())
            self._changes.forget(self._clock.monotonic())
            await self._clock.sleep(HOOK_CHECKED_S)

    async def _set_hook(self) -> None:
        """Set the webhook; pending updates are kept."""
        await done(
            self._bot.set_webhook(
                self._settings.hook_url,
                secret_token=self.secret,
                allowed_updates=WANTED,
                max_connections=HOOK_CONNECTIONS,
            )
        )

    async def _report_unreachable(self, why: str) -> None:
        """Report that Telegram cannot reach the webhook. A 404 is our own answer to a wrong secret: then set it again."""
        self.contact = self.contact.checked(f"Telegram cannot reach our webhook: {why}")
        if "404" in why:
            await self._set_hook()

    def _moves(self, reader: TelegramReader) -> list[Inbound]:
        """The groups that became supergroups without an update: Telegram reported it when we wrote there."""
        unreported, self._unreported = self._unreported, []
        return [reader.moved(was, str(self._moved[was])) for was in unreported]

    async def _get_reader(self) -> TelegramReader:
        """Ask Telegram who we are; a webhook that prevents polling is removed, and its pending updates are kept."""
        if self._reader is None:
            me = await done(self._bot.get_me())
            if not self._settings.hook_url:
                await done(self._bot.delete_webhook(drop_pending_updates=False))
            self._reader = TelegramReader(self.account, me.username or "", self._settings.listening)
            log.info("telegram", bot=f"@{me.username}", reads_groups=bool(me.can_read_all_group_messages))
        return self._reader

    def _received(self) -> None:
        """Record an answer to a poll: that alone proves that we receive."""
        self.contact = self.contact.answered(self._clock.now())
        if self._menus:
            self._offer_menus()

    def _offer_menus(self) -> None:
        """Set the command menus in the background; no message waits for them."""
        if self._menus and self._clock.now() >= self._menus_at:
            self._menus_at = math.inf  # one at a time
            self._in_background(self._set_menus())

    async def _set_menus(self) -> None:
        """Set the command menus; what Telegram delays is set after a later read."""
        while self._menus:
            scope, commands = self._menus[0]
            try:
                await done(self._bot.set_my_commands(commands, scope=scope))
            except TryLater as error:
                self._menus_at = self._clock.now() + error.delay_s
                return
            except PlatformError as error:  # a user who never wrote to the bot has no menu
                log.info("telegram menu not set", error=str(error))
            self._menus = self._menus[1:]

    def _in_background(self, call: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(call)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close_connections(self) -> None:
        """Close the connections and end the background tasks."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._requests.shutdown()

    # -- a webhook -----------------------------------------------------------------------------------------------------

    @property
    def secret(self) -> str:
        """The secret that Telegram sends with a webhook request; made from the token, so that every process knows it."""
        return hmac.new(self._settings.token.encode(), b"everturn webhook", hashlib.sha256).hexdigest()

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers comes from Telegram."""
        given = headers.get(SECRET_HEADER, b"")
        return bool(self._settings.hook_url) and hmac.compare_digest(given, self.secret.encode())

    async def read_webhook(self, body: bytes) -> list[Inbound]:
        """Read a webhook request; returns its message, earlier parts of its album that it makes ours, and the message it edits
        if that is not stored yet. Raises PlatformError while the bot is not known yet.
        """
        reader = await self._get_reader()
        # Nothing arrived before it: nobody wrote, or Telegram could not reach us.
        self.contact = Contact(self._clock.now(), answers=self.contact.answers + 1)
        self._offer_menus()
        update = _understood(body)
        inbound = reader.read(update) if update else None
        now = self._clock.monotonic()
        return self._changes.add(self._albums.add(inbound, now), now) if inbound else []

    async def acknowledge(self, inbound: Inbound) -> None:
        """Acknowledge a committed button press in the background, so that the button stops spinning."""
        if self._settings.hook_url:
            self._albums.mark_stored(inbound)
            self._changes.mark_stored(inbound)
        if inbound.id.startswith("press-"):
            self._in_background(self._answer_press(inbound.id.removeprefix("press-")))

    async def _answer_press(self, query: str) -> None:
        await best_effort(self._bot.answer_callback_query(query))


def menus(rights: Rights) -> list[tuple[BotCommandScope, list[BotCommand]]]:
    """The commands as Telegram lists them in its menu: what everybody may use in
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


def _heard(reader: TelegramReader, batch: Mapping[int, msgspec.Raw]) -> dict[int, Inbound]:
    """The messages for us of a batch, in the order of their update ids."""
    read = [(number, update) for number, raw in sorted(batch.items()) if (update := _understood(raw))]
    found = {number: heard for number, update in read if (heard := reader.read(update))}
    if len(found) < 2:
        return found
    return dict(zip(found, whole(folded(list(found.values()))), strict=True))


def _understood(raw: bytes | msgspec.Raw) -> Update | None:
    """Decode an update; of one with wrong fields only its text, with a line in the log. None for what cannot be decoded: it
    must not block the others.
    """
    try:
        return read_update(raw)
    except UNREADABLE as error:
        log.warning("telegram update not readable", error=str(error))
    try:
        return text_only(raw)
    except UNREADABLE:
        return None
