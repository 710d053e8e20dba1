"""Requests to Telegram: each failure becomes the error that names the right reaction.

python-telegram-bot makes and reads the requests; the responses are judged here, once, for its methods and for our own
polling. https://core.telegram.org/bots/api#making-requests
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import httpx
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from everturn.errors import OutcomeUnknown, PlatformError, TryLater
from everturn.platform.telegram.rules.errors import error_of
from everturn.platform.telegram.wire import UNREADABLE, BotResponse, read_answer

T = TypeVar("T")
CONNECTIONS = 16
CONNECT_S = 10.0
READ_S = 20.0
UPLOAD_S = 60.0
UNREACHABLE_S = 2.0
# Nothing left this machine.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)


class TelegramRequests(HTTPXRequest):
    """The library's HTTP requests; an error response raises one of our errors."""

    def __init__(self) -> None:
        super().__init__(
            connection_pool_size=CONNECTIONS,
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            write_timeout=READ_S,
            pool_timeout=READ_S,
            media_write_timeout=UPLOAD_S,
        )
        self._closed = False

    async def shutdown(self) -> None:
        """Close the connections: no request is made any more."""
        self._closed = True
        await super().shutdown()

    async def do_request(self, *args: Any, **named: Any) -> tuple[int, bytes]:
        """Make a request. Raises PlatformError."""
        if self._closed:
            raise TryLater("the connections to Telegram are closed", UNREACHABLE_S)
        try:
            code, payload = await super().do_request(*args, **named)
        except TelegramError as error:
            raise _unanswered(error.__cause__) from None  # its text may hold the URL, and that the token
        if 200 <= code <= 299:
            return code, payload
        answer = _answer(payload)
        more = answer.parameters
        raise error_of(code, answer.description, more.retry_after, more.migrate_to_chat_id)


async def done(call: Awaitable[T]) -> T:
    """The result of one of the library's methods. Raises PlatformError."""
    try:
        return await call
    except TelegramError as error:
        if isinstance(error.__cause__, PlatformError):
            raise error.__cause__ from None
        raise OutcomeUnknown(f"Telegram's response cannot be read: {type(error).__name__}") from None
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
    ) as error:  # the library reads the answer after all is done
        raise OutcomeUnknown(f"Telegram's response cannot be read: {type(error).__name__}") from error


def _unanswered(cause: BaseException | None) -> PlatformError:
    what = type(cause).__name__ if cause else "no answer"
    if isinstance(cause, NOT_SENT):
        return TryLater(f"Telegram cannot be reached: {what}", UNREACHABLE_S)
    return OutcomeUnknown(f"Telegram did not answer: {what}")


def _answer(payload: bytes) -> BotResponse:
    try:
        return read_answer(payload)
    except UNREADABLE:
        return BotResponse()  # from a proxy between us and Telegram
