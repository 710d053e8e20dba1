"""What a failed call of a model means: the outcome of a provider's error, how long it asks to wait, and its message without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from everturn.agent.interface import NO_USAGE
from everturn.agent.rules import CallOutcome, scrub
from everturn.model import Usage

_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|size)|maximum context|prompt is too long|too many tokens|exceed_context_size"
    r"|reduce the length of the messages",
    re.IGNORECASE,
)
_NO_CREDIT = {
    "insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted", "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded", "organization_usage_limit_exceeded",
}  # fmt: skip
# What a provider's own code says, be it in the body of an error or inside a stream.
_CODES = {
    **dict.fromkeys(_NO_CREDIT, CallOutcome.QUOTA),
    "context_length_exceeded": CallOutcome.OVERFLOW,
    "model_not_found": CallOutcome.MISSING,
    "invalid_api_key": CallOutcome.DENIED,
    "content_filter": CallOutcome.REFUSED,
}
# What it says where there is no status: inside a stream.
_STREAMED = {
    "rate_limit_exceeded": 429, "rate_limit_error": 429, "too_many_requests": 429, "service_unavailable": 503,
    "service_unavailable_error": 503, "server_error": 500,
}  # fmt: skip
_STATUSES = {
    401: CallOutcome.DENIED,
    402: CallOutcome.QUOTA,
    403: CallOutcome.DENIED,
    404: CallOutcome.MISSING,
    408: CallOutcome.SERVER,  # a server that closes a kept connection says so, sometimes as our next request leaves
    425: CallOutcome.SERVER,
    429: CallOutcome.LIMITED,
}
_DETAIL_CHARS = 300


class Stalled(Exception):
    """No token came for too long; the call was cancelled."""


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A call that gave no answer."""

    kind: CallOutcome
    detail: str = ""
    retry_after_s: float | None = None
    used: Usage = NO_USAGE  # what the call used all the same, as far as that is known


class CallFailed(Exception):
    """A call gave no answer; what it means is known."""

    def __init__(self, kind: CallOutcome, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.retry_after_s = retry_after_s


def failure_of(error: Exception, secrets: tuple[str | None, ...]) -> ModelFailure:
    """The outcome, delay and message of an error."""
    if isinstance(error, CallFailed):
        return ModelFailure(error.kind, scrub(error.detail, secrets)[:_DETAIL_CHARS], error.retry_after_s)
    detail = scrub(type(error).__name__, secrets)
    if isinstance(error, Stalled):
        return ModelFailure(CallOutcome.STALLED, detail)
    if isinstance(error, OSError):
        return ModelFailure(CallOutcome.CONNECTION, scrub(str(error), secrets)[:_DETAIL_CHARS] or detail)
    return ModelFailure(CallOutcome.UNKNOWN, detail)


def refused_by(status: int | None, body: object, retry_after_s: float | None = None) -> CallFailed:
    """The error of a provider that speaks OpenAI's API: the body of a refused request, or with no status an object in a stream."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    fields: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    code, kind = (str(fields.get(each) or "") for each in ("code", "type"))
    said = fields.get("message") if fields else inner
    detail = str(said) if said else f"{code or kind}" or f"the server answered {status}"
    return CallFailed(_outcome(status, code, kind, fields, detail), detail, retry_after_s)


def _outcome(status: int | None, code: str, kind: str, fields: Mapping[str, Any], detail: str) -> CallOutcome:
    exact = _CODES.get(code) or (CallOutcome.QUOTA if kind in _NO_CREDIT else None)
    if exact is not None:
        return exact
    if status is None:
        status = _STREAMED.get(code) or _STREAMED.get(kind) or (int(code) if re.fullmatch(r"[45]\d\d", code) else 500)
    metadata = fields.get("metadata")
    if status == 403 and isinstance(metadata, dict) and {"flagged_input", "reasons"} & metadata.keys():
        return CallOutcome.REJECTED  # OpenRouter: the text is refused, not the key
    if "overloaded" in f"{code} {kind}".lower():
        return CallOutcome.SERVER
    found = of_status(status)
    if found in {CallOutcome.REJECTED, CallOutcome.SERVER} and too_long(f"{detail} {kind}"):
        return CallOutcome.OVERFLOW
    return found


def of_status(status: int) -> CallOutcome:
    """What a status means that nothing explains. A redirect is a wrong address: a request with a key does not follow it."""
    if 300 <= status < 400:
        return CallOutcome.MISSING
    return _STATUSES.get(status) or (CallOutcome.REJECTED if 400 <= status < 500 else CallOutcome.SERVER)


def too_long(detail: str) -> bool:
    """Whether a provider's message says that the conversation is too long."""
    return _TOO_LONG.search(detail) is not None


def retry_after(headers: Mapping[bytes, bytes], now: float) -> float | None:
    """Seconds that a server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date."""
    wait_ms = _number(headers.get(b"retry-after-ms", b""))
    if wait_ms is not None:
        return wait_ms / 1000
    said = headers.get(b"retry-after", b"")
    wait_s = _number(said)
    if wait_s is not None or not said:
        return wait_s
    try:
        at = parsedate_to_datetime(said.decode("latin-1"))
    except ValueError:
        return None
    return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)


def _number(said: bytes) -> float | None:
    return float(said) if re.fullmatch(rb"\s*\d{1,12}(?:\.\d{1,9})?\s*", said) else None
