"""Writing to Telegram: messages, questions with buttons, edits, files and small signs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import httpx
import structlog
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Message

from everturn.decide.delivery import Surety
from everturn.decide.telegram_errors import Moved, NotModified, Unparsed
from everturn.decide.telegram_text import to_html
from everturn.decide.text import utf16
from everturn.errors import PlatformError, Refused, TryLater
from everturn.model import Attachment, SessionSource
from everturn.platform.interface import Choice, Limits, Outgoing
from everturn.platform.telegram.calls import done

log = structlog.get_logger()
T = TypeVar("T")
TEXT_UNITS = 4096
CAPTION_UNITS = 1024
BUTTON_BYTES = 64
FILE_BYTES = 20_000_000
PHOTO_BYTES = 10_000_000
PIECE_BYTES = 1 << 16
GENERAL = "1"  # the topic of a forum that must not be named


class Writer:
    """What goes out. Telegram knows no keys and lets no bot read back: class C."""

    surety = Surety.NEITHER
    limits = Limits(text=TEXT_UNITS, unit=utf16)

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._moved: dict[str, int] = {}  # groups that became supergroups, as Telegram told us in this life

    async def send(self, to: SessionSource, text: str, key: str) -> str:  # noqa: ARG002  Telegram knows no keys
        """Send one part."""
        return await self._post(to, text)

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:  # noqa: ARG002
        """Send a question with its buttons; a command that is too long for one stands in the text."""
        fit = [each for each in choices if len(each.command.encode()) <= BUTTON_BYTES]
        rest = "".join(f"\n{each.label}: {each.command}" for each in choices if each not in fit)
        buttons = [InlineKeyboardButton(each.label, callback_data=each.command) for each in fit]
        return await self._post(to, text + rest, InlineKeyboardMarkup([buttons]) if buttons else None)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace a part that was sent."""

        async def call(chat: int | str, words: str, mode: str | None) -> object:
            return await done(self._bot.edit_message_text(words, chat, int(message_id), parse_mode=mode))

        try:
            await self._styled(to, text, call)
        except NotModified:
            return

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:  # noqa: ARG002
        """Send one file as what it is."""
        content = await asyncio.to_thread(file.path.read_bytes)
        words = file.words if utf16(file.words) <= CAPTION_UNITS else f"{file.words[: CAPTION_UNITS // 2]}…"

        async def call(chat: int | str, caption: str, mode: str | None) -> Message:
            about = {"caption": caption, "parse_mode": mode, "message_thread_id": _thread(to)}
            if file.mime in {"image/jpeg", "image/png"} and len(content) <= PHOTO_BYTES:
                return await done(self._bot.send_photo(chat, content, filename=file.name, **about))  # type: ignore[arg-type]
            if file.mime == "audio/ogg":
                return await done(self._bot.send_voice(chat, content, filename=file.name, **about))  # type: ignore[arg-type]
            return await done(self._bot.send_document(chat, content, filename=file.name, **about))  # type: ignore[arg-type]

        return str((await self._styled(to, words, call)).message_id)

    async def typing(self, to: SessionSource) -> None:
        """Show that we are at work."""
        await at_best(self._bot.send_chat_action(self._chat(to), "typing", message_thread_id=_thread(to)))

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put an emoji on a message."""
        await at_best(self._bot.set_message_reaction(self._chat(to), int(message_id), mark or None))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of a file, which Telegram gives to bots up to 20 MB."""
        if attachment.size > FILE_BYTES:
            raise Refused("the file is larger than the 20 MB that Telegram gives to a bot")
        file = await done(self._bot.get_file(attachment.ref))
        try:
            async with (
                httpx.AsyncClient(timeout=60.0) as client,
                client.stream("GET", file.file_path or "") as response,
            ):
                if not response.is_success:
                    raise TryLater(f"Telegram does not give the file: HTTP {response.status_code}", 5.0)
                async for piece in response.aiter_bytes(PIECE_BYTES):
                    yield piece
        except httpx.HTTPError as error:  # its text may hold the address, and that the token
            raise TryLater(f"the file could not be fetched: {type(error).__name__}", 5.0) from None

    async def _post(self, to: SessionSource, text: str, buttons: InlineKeyboardMarkup | None = None) -> str:
        async def call(chat: int | str, words: str, mode: str | None) -> Message:
            return await done(
                self._bot.send_message(
                    chat, words, parse_mode=mode, message_thread_id=_thread(to), reply_markup=buttons
                )
            )

        return str((await self._styled(to, text, call)).message_id)

    async def _styled(
        self, to: SessionSource, text: str, call: Callable[[int | str, str, str | None], Awaitable[T]]
    ) -> T:
        """With formatting, else without; to the group, else to what it became. Telegram did nothing when it refused."""
        words, mode = to_html(text), "HTML"
        try:
            return await call(self._chat(to), words, mode)
        except Unparsed:
            log.warning("telegram did not understand our formatting; plain text is sent", chat=to.chat_id)
            return await call(self._chat(to), text, None)
        except Moved as moved:
            self._moved[to.chat_id or ""] = moved.chat_id
            return await call(moved.chat_id, words, mode)

    def _chat(self, to: SessionSource) -> int | str:
        return self._moved.get(to.chat_id or "") or to.chat_id or ""


def _thread(to: SessionSource) -> int | None:
    return int(to.thread_id) if to.thread_id and to.thread_id != GENERAL else None


async def at_best(call: Awaitable[object]) -> None:
    """What is never worth a retry."""
    try:
        await done(call)
    except PlatformError as error:
        log.info("telegram did not do what was nice to have", error=str(error))
