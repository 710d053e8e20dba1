"""Writes to Telegram: messages, approval requests with buttons, edits, files, reactions and typing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import httpx2
import structlog
from msgspec.structs import replace
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Message, ReplyParameters

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.http_client import HttpClient, trusted
from everturn.model import Attachment, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.outbox.rules.text import utf16
from everturn.platform.interface import Choice, Outgoing, TextLimits
from everturn.platform.telegram.rules import (
    AlreadyGone,
    ChatMoved,
    NoThread,
    NotModified,
    Unfit,
    Unparsed,
    exact_html,
    shows,
    to_html,
)
from everturn.platform.telegram.wire import done

log = structlog.get_logger()
T = TypeVar("T")
TEXT_UNITS = 4096
CAPTION_UNITS = 1024
BUTTON_BYTES = 64
FILE_BYTES = 20_000_000
PHOTO_BYTES = 10_000_000
PIECE_BYTES = 1 << 16
FETCH_AGAIN_S = 1.0
TOO_LARGE = "the file is larger than the 20 MB that Telegram lets a bot download"
GONE = "Telegram does not have the file any more"
GENERAL = "1"  # the topic of a forum that must not be named


class TelegramWriter:
    """Sends, edits and deletes. Telegram knows no idempotency keys and lets no bot read back: class C."""

    surety = Surety.NEITHER
    limits = TextLimits(text=TEXT_UNITS, unit=utf16, caption=CAPTION_UNITS)

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._moved: dict[str, int] = {}  # groups that became supergroups, as Telegram reported to this process
        self._unreported: list[str] = []  # those of which the gateway does not know yet

    async def send(self, to: SessionSource, text: str, key: str) -> str:  # noqa: ARG002  Telegram knows no keys
        """Send one message."""
        return await self._post(to, text)

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:  # noqa: ARG002
        """Send an approval request with buttons, its text as it is; a command that is too long for a button is in the text."""
        fit = [each for each in choices if len(each.command.encode()) <= BUTTON_BYTES]
        rest = "".join(f"\n{each.label}: {each.command}" for each in choices if each not in fit)
        buttons = [InlineKeyboardButton(each.label, callback_data=each.command) for each in fit]
        keyboard = InlineKeyboardMarkup([buttons]) if buttons else None
        return await self._post(to, text + rest, keyboard, render=exact_html)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace the text of a message."""

        async def call(chat: int | str, body: str, mode: str | None) -> object:
            return await done(self._bot.edit_message_text(body, chat, _number(message_id), parse_mode=mode))

        try:
            await self._styled(to, text, call)
        except NotModified:
            return

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Delete a message; Telegram lets a bot do so for 48 hours."""
        try:
            await done(self._bot.delete_message(self._chat(to), _number(message_id)))
        except AlreadyGone:
            return

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Send one file as a photo, voice message or document."""
        content = await asyncio.to_thread(file.path.read_bytes)

        async def call(chat: int | str, caption: str, mode: str | None) -> Message:
            about = {"caption": caption, "parse_mode": mode, "message_thread_id": _thread(to), "filename": file.name}
            with suppress(Unfit):  # a picture that is too long, a person who accepts no voice: it is sent as a document
                if file.mime in {"image/jpeg", "image/png"} and len(content) <= PHOTO_BYTES:
                    return await done(self._bot.send_photo(chat, content, **about))  # type: ignore[arg-type]
                if file.mime == "audio/ogg":
                    return await done(self._bot.send_voice(chat, content, **about))  # type: ignore[arg-type]
            return await done(self._bot.send_document(chat, content, **about))  # type: ignore[arg-type]

        try:
            return str((await self._styled(to, file.text, call)).message_id)
        except NoThread:
            return await self.send_file(_general(to), file, key)

    async def typing(self, to: SessionSource) -> None:
        """Show the typing indicator."""
        with suppress(Refused):
            await best_effort(self._bot.send_chat_action(self._chat(to), "typing", message_thread_id=_thread(to)))

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put an emoji on a message."""
        with suppress(Refused):
            await best_effort(self._bot.set_message_reaction(self._chat(to), _number(message_id), mark or None))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Download a file in chunks; Telegram lets bots download up to 20 MB."""
        if attachment.size > FILE_BYTES:
            raise Refused(TOO_LARGE)
        address = await self._address_of(attachment)
        try:
            async with (
                HttpClient(timeout=60.0, verify=trusted()) as client,
                client.stream("GET", address) as response,
            ):
                if response.status_code == 404:
                    raise Refused(GONE)
                if not response.is_success:
                    raise TryLater(f"Telegram does not return the file: HTTP {response.status_code}", FETCH_AGAIN_S)
                async for piece in response.aiter_bytes(PIECE_BYTES):
                    yield piece
        except httpx2.HTTPError as error:  # its text may hold the URL, and that the token
            raise TryLater(f"the file could not be fetched: {type(error).__name__}", FETCH_AGAIN_S) from None

    async def _address_of(self, attachment: Attachment) -> str:
        """The URL of a file, valid for an hour. It holds the token."""
        try:
            return (await done(self._bot.get_file(attachment.ref))).file_path or ""
        except OutcomeUnknown as error:  # asking again does no harm
            raise TryLater(str(error), FETCH_AGAIN_S) from None
        except Refused as error:
            raise Refused(TOO_LARGE if "too big" in str(error) else GONE) from None

    async def _post(
        self,
        to: SessionSource,
        text: str,
        buttons: InlineKeyboardMarkup | None = None,
        *,
        render: Callable[[str], str] = to_html,
    ) -> str:
        async def call(chat: int | str, body: str, mode: str | None) -> Message:
            return await done(
                self._bot.send_message(
                    chat,
                    body,
                    parse_mode=mode,
                    message_thread_id=_thread(to),
                    reply_markup=buttons,
                    reply_parameters=_answered(to),
                )
            )

        try:
            return str((await self._styled(to, text, call, render=render)).message_id)
        except NoThread:
            return await self._post(_general(to), text, buttons, render=render)

    async def _styled(
        self,
        to: SessionSource,
        text: str,
        call: Callable[[int | str, str, str | None], Awaitable[T]],
        *,
        render: Callable[[str], str] = to_html,
    ) -> T:
        """Send with formatting, else without; to the group, else to its supergroup. A refusal means nothing was sent.

        Some texts consist of nothing but marks, such as a block of code that has only begun: they are sent as they are.
        """
        html = render(text)
        try:
            if shows(html) or not text:
                return await self._where_it_is(to, lambda chat: call(chat, html, "HTML"))
        except Unparsed:
            log.warning("telegram rejected formatting, plain text is sent", chat=to.chat_id)
        return await self._where_it_is(to, lambda chat: call(chat, text, None))

    async def _where_it_is(self, to: SessionSource, call: Callable[[int | str], Awaitable[T]]) -> T:
        """Send to the group, else to the supergroup that it became, which is then reported to the gateway."""
        try:
            return await call(self._chat(to))
        except ChatMoved as moved:
            self._moved[to.chat_id or ""] = moved.chat_id
            self._unreported.append(to.chat_id or "")
            return await call(moved.chat_id)

    def _chat(self, to: SessionSource) -> int | str:
        return self._moved.get(to.chat_id or "") or to.chat_id or ""


def _thread(to: SessionSource) -> int | None:
    return _number(to.thread_id) if to.thread_id and to.thread_id != GENERAL else None


def _general(to: SessionSource) -> SessionSource:
    """The forum without the topic, when that was deleted."""
    if to.thread_id is None:
        raise Refused("Telegram reports a missing topic, but none was named")
    return replace(to, thread_id=None)


def _number(text: str) -> int:
    """The number of a message or a topic. Raises Refused for anything else: Telegram did not make it."""
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{text!r} is not an id of a Telegram message or topic") from None


def _answered(to: SessionSource) -> ReplyParameters | None:
    """The message to reply to; when it was deleted, Telegram sends without it."""
    if not to.message_id or not to.message_id.isdigit():
        return None
    return ReplyParameters(int(to.message_id), allow_sending_without_reply=True)


async def best_effort(call: Awaitable[object]) -> None:
    """Make a call that is not worth a retry; a failure is only logged."""
    try:
        await done(call)
    except PlatformError as error:
        log.info("optional Telegram call failed", error=str(error))
