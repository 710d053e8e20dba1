"""A library's error as one of our outcomes, with what the provider said in words that hold no secret."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_ai import exceptions as library

from everturn.agent.interface import NO_USAGE
from everturn.decide.outcomes import Kind
from everturn.decide.secrets import scrub
from everturn.model import Usage

_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|size)|maximum context|prompt is too long|too many tokens|exceed_context_size",
    re.IGNORECASE,
)
# The first that fits decides: the exact before the general.
_KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (library.ModelContextWindowExceededError, Kind.OVERFLOW),
    (library.ModelAuthenticationError, Kind.DENIED),
    (library.ModelNotFoundError, Kind.MISSING),
    (library.ModelQuotaExceededError, Kind.QUOTA),
    (library.ModelRateLimitError, Kind.LIMITED),
    (library.ModelRequestRejectedError, Kind.REJECTED),
    (library.ModelUnavailableError, Kind.SERVER),
    (library.ModelServerError, Kind.SERVER),
    (library.ModelRequestTimeout, Kind.STALLED),
    (library.ModelConnectionError, Kind.CONNECTION),
    (library.ContentFilterError, Kind.REFUSED),
    (library.UnexpectedModelBehavior, Kind.UNREADABLE),
    (ValidationError, Kind.UNREADABLE),
    (library.ModelAPIError, Kind.SERVER),
    (OSError, Kind.CONNECTION),
    (ValueError, Kind.UNREADABLE),
)
_NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "anyio")


class Stalled(Exception):
    """No token came for too long; the call was cancelled."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no answer."""

    kind: Kind
    detail: str = ""
    retry_after_s: float | None = None
    used: Usage = NO_USAGE  # what the call used all the same, as far as that is known


def failure_of(error: Exception, secrets: tuple[str | None, ...]) -> Failure:
    """What happened, by our table."""
    detail = scrub(_said(error), secrets)
    return Failure(_kind(error, detail), detail, getattr(error, "retry_after", None))


def _kind(error: Exception, detail: str) -> Kind:
    if isinstance(error, Stalled):
        return Kind.STALLED
    if isinstance(error, library.ModelAPIError) and isinstance(error.__cause__, ValueError):
        return Kind.UNREADABLE  # a chunk that is not JSON
    kind = next((kind for type_, kind in _KINDS if isinstance(error, type_)), None)
    status = getattr(error, "status_code", 0)
    if kind in {None, Kind.SERVER} and 400 <= status < 500:
        kind = {401: Kind.DENIED, 403: Kind.DENIED, 404: Kind.MISSING, 429: Kind.LIMITED}.get(status, Kind.REJECTED)
    if kind in {Kind.REJECTED, Kind.SERVER} and _TOO_LONG.search(detail):
        return Kind.OVERFLOW
    if kind is None and type(error).__module__.partition(".")[0] in _NETWORK_LIBRARIES:
        return Kind.CONNECTION
    return kind or Kind.UNKNOWN


def _said(error: Exception) -> str:
    """What the provider said about it, short; else what kind of error it is."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    return str(message)[:300] if message else type(error).__name__
