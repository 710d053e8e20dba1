"""Errors in the OpenAI format, which clients turn into their typed exceptions."""

from __future__ import annotations

import msgspec

from everturn.errors import Conflict, EverturnError, Full, TooLong
from everturn.model import Json
from everturn.web.v1.rules import CompletionError, MalformedRequest
from everturn.web.wire.requests import RETRY_AFTER_S, CompleteResponse, Header, encode, retry_after

NO_RETRY: Header = (b"x-should-retry", b"false")
_INVALID = "invalid_request_error"
_KINDS: dict[int, tuple[str, str | None]] = {
    400: (_INVALID, None),
    401: (_INVALID, "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    404: (_INVALID, "not_found"),
    405: (_INVALID, "method_not_allowed"),
    409: ("conflict_error", "conflict"),
    413: (_INVALID, "request_too_large"),
    421: (_INVALID, "wrong_host"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "unavailable"),
}
_SERVER = ("server_error", "internal_error")


class NotPossible(Exception):
    """The request failed; the reply says why."""

    def __init__(self, reply: CompleteResponse) -> None:
        super().__init__(reply.status)
        self.reply = reply


def not_possible(status: int, message: str, param: str | None = None, code: str | None = None) -> NotPossible:
    """Return the exception to raise."""
    return NotPossible(error_reply(status, message, param=param, code=code))


def _error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    kind, usual = _KINDS.get(status, _SERVER)
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def error_reply(
    status: int, message: str, *headers: Header, param: str | None = None, code: str | None = None
) -> CompleteResponse:
    """Return an error response. A conflict also says that a retry does not help."""
    more = (*headers, NO_RETRY) if status == 409 and NO_RETRY not in headers else headers
    return CompleteResponse(status, encode(_error(status, message, param=param, code=code)), more)


def to_openai_error(reply: CompleteResponse) -> CompleteResponse:
    """Convert one of the gateway's own error responses to the OpenAI format."""
    try:
        why = str(msgspec.json.decode(reply.body, type=dict[str, object])["error"])
    except (msgspec.MsgspecError, KeyError):
        why = "the request was refused"
    return error_reply(reply.status, why, *reply.headers)


def malformed(error: MalformedRequest) -> CompleteResponse:
    """Return a MalformedRequest as a 400."""
    return error_reply(400, str(error), param=error.param, code=error.code)


def not_accepted(error: EverturnError) -> CompleteResponse:
    """Return the error of a request that was not stored."""
    match error:
        case Conflict():
            why = "this Idempotency-Key was used before, for another request; send this one with a new key"
            return error_reply(409, why, code="idempotency_key_reused")
        case Full():
            return error_reply(429, str(error), retry_after(error.retry_after_s), code="queue_full")
        case TooLong():
            return error_reply(413, str(error), param="messages", code="message_too_long")
        case _:
            return error_reply(
                503, f"the request is not stored yet: {error}; send it again", retry_after(RETRY_AFTER_S)
            )


def problem_reply(problem: CompletionError) -> CompleteResponse:
    """Return the error of a request that has no answer."""
    return error_reply(problem.status, problem.message, NO_RETRY, code=problem.code)


def stopping() -> CompleteResponse:
    """Return the error of a request that waits while the gateway stops."""
    why = "the gateway is stopping; send the request again with its Idempotency-Key"
    return error_reply(503, why, retry_after(1), code="restarting")
