"""Writing to Telegram: messages, questions with buttons, edits, files and small signs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import httpx2
import structlog
from msgspec.structs import replace
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Message, ReplyParameters

from everturn.decide.delivery import Surety
from everturn.decide.telegram_errors import Gone, Moved, NoThread, NotModified, Unfit, Unparsed
from everturn.decide.telegram_text import exact_html, shows, to_html
from everturn.decide.text import utf16
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.http_client import HttpClient
from everturn.model import Attachment, SessionSource
from everturn.platform.interface import Choice, Limits, Outgoing
from everturn.platform.telegram.calls import done
from everturn.platform.trust import trusted

log = structlog.get_logger()
T = TypeVar("T")
TEXT_UNITS = 4096
CAPTION_UNITS = 1024
BUTTON_BYTES = 64
FILE_BYTES = 20_000_000
PHOTO_BYTES = 10_000_000
PIECE_BYTES = 1 << 16
FETCH_AGAIN_S = 1.0
TOO_LARGE = "the file is larger than the 20 MB that Telegram gives to a bot"
GONE = "Telegram does not have the file any more"
GENERAL = "1"  # the topic of a forum that must not be named


class Writer:
    """What goes out. Telegram knows no keys and lets no bot read back: class C."""

    surety = Surety.NEITHER
    limits = Limits(text=TEXT_UNITS, unit=utf16, caption=CAPTION_UNITS)

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._moved: dict[str, int] = {}  # groups that became supergroups, as Telegram told us in this life
        self._untold: list[str] = []  # those of which the gateway does not know yet

    async def send(self, to: SessionSource, text: str, key: str) -> str:  # noqa: ARG002  Telegram knows no keys
        """Send one part."""
        return await self._post(to, text)

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:  # noqa: ARG002
        """Send a question with its buttons, its text as it is; a command that is too long for a button stands in the text."""
        fit = [each for each in choices if len(each.command.encode()) <= BUTTON_BYTES]
        rest = "".join(f"\n{each.label}: {each.command}" for each in choices if each not in fit)
        buttons = [InlineKeyboardButton(each.label, callback_data=each.command) for each in fit]
        keyboard = InlineKeyboardMarkup([buttons]) if buttons else None
        return await self._post(to, text + rest, keyboard, render=exact_html)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace a part that was sent."""

        async def call(chat: int | str, words: str, mode: str | None) -> object:
            return await done(self._bot.edit_message_text(words, chat, _number(message_id), parse_mode=mode))

        try:
            await self._styled(to, text, call)
        except NotModified:
            return

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Take a part away; Telegram lets a bot do so for 48 hours."""
        try:
            await done(self._bot.delete_message(self._chat(to), _number(message_id)))
        except Gone:
            return

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Send one file as what it is."""
        content = await asyncio.to_thread(file.path.read_bytes)

        async def call(chat: int | str, caption: str, mode: str | None) -> Message:
            about = {"caption": caption, "parse_mode": mode, "message_thread_id": _thread(to), "filename": file.name}
            with suppress(Unfit):  # a picture that is too long, a person who wants no voice: it comes as a document
                if file.mime in {"image/jpeg", "image/png"} and len(content) <= PHOTO_BYTES:
                    return await done(self._bot.send_photo(chat, content, **about))  # type: ignore[arg-type]
                if file.mime == "audio/ogg":
                    return await done(self._bot.send_voice(chat, content, **about))  # type: ignore[arg-type]
            return await done(self._bot.send_document(chat, content, **about))  # type: ignore[arg-type]

        try:
            return str((await self._styled(to, file.words, call)).message_id)
        except NoThread:
            return await self.send_file(_general(to), file, key)

    async def typing(self, to: SessionSource) -> None:
        """Show that we are at work."""
        with suppress(Refused):
            await at_best(self._bot.send_chat_action(self._chat(to), "typing", message_thread_id=_thread(to)))

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put an emoji on a message."""
        with suppress(Refused):
            await at_best(self._bot.set_message_reaction(self._chat(to), _number(message_id), mark or None))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of a file, which Telegram gives to bots up to 20 MB."""
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
                    raise TryLater(f"Telegram does not give the file: HTTP {response.status_code}", FETCH_AGAIN_S)
                async for piece in response.aiter_bytes(PIECE_BYTES):
                    yield piece
        except httpx2.HTTPError as error:  # its text may hold the address, and that the token
            raise TryLater(f"the file could not be fetched: {type(error).__name__}", FETCH_AGAIN_S) from None

    async def _address_of(self, attachment: Attachment) -> str:
        """Where its bytes are, for an hour. The address holds the token."""
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
        async def call(chat: int | str, words: str, mode: str | None) -> Message:
            return await done(
                self._bot.send_message(
                    chat,
                    words,
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
        """With formatting, else without; to the group, else to what it became. Telegram did nothing when it refused.

        Of some texts nothing is left but marks, as of a block of code that has only begun: they are shown as they are.
        """
        html = render(text)
        try:
            if shows(html) or not text:
                return await self._where_it_is(to, lambda chat: call(chat, html, "HTML"))
        except Unparsed:
            log.warning("telegram did not understand our formatting; plain text is sent", chat=to.chat_id)
        return await self._where_it_is(to, lambda chat: call(chat, text, None))

    async def _where_it_is(self, to: SessionSource, call: Callable[[int | str], Awaitable[T]]) -> T:
        """To the group, else to the supergroup that it became; the gateway is told of that."""
        try:
            return await call(self._chat(to))
        except Moved as moved:
            self._moved[to.chat_id or ""] = moved.chat_id
            self._untold.append(to.chat_id or "")
            return await call(moved.chat_id)

    def _chat(self, to: SessionSource) -> int | str:
        return self._moved.get(to.chat_id or "") or to.chat_id or ""


def _thread(to: SessionSource) -> int | None:
    return _number(to.thread_id) if to.thread_id and to.thread_id != GENERAL else None


def _general(to: SessionSource) -> SessionSource:
    """The forum itself, when a topic of it was deleted."""
    if to.thread_id is None:
        raise Refused("there is no such topic, and none was named")
    return replace(to, thread_id=None)


def _number(text: str) -> int:
    """The number of a message or a topic. What is none was not made by Telegram, and nothing is sent."""
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{text!r} is no number of Telegram's") from None


def _answered(to: SessionSource) -> ReplyParameters | None:
    """The message that is answered; when it was deleted, Telegram sends without it."""
    if not to.message_id or not to.message_id.isdigit():
        return None
    return ReplyParameters(int(to.message_id), allow_sending_without_reply=True)


async def at_best(call: Awaitable[object]) -> None:
    """What is never worth a retry."""
    try:
        await done(call)
    except PlatformError as error:
        log.info("telegram did not do what was nice to have", error=str(error))
