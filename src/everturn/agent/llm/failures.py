"""Maps a library's error to one of our outcomes, with the provider's message without secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_ai import exceptions as library

from everturn.agent.interface import NO_USAGE
from everturn.agent.rules import CallOutcome, scrub
from everturn.model import Usage

_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|size)|maximum context|prompt is too long|too many tokens|exceed_context_size",
    re.IGNORECASE,
)
# The first that fits decides: the exact before the general.
_KINDS: tuple[tuple[type[Exception], CallOutcome], ...] = (
    (library.ModelContextWindowExceededError, CallOutcome.OVERFLOW),
    (library.ModelAuthenticationError, CallOutcome.DENIED),
    (library.ModelNotFoundError, CallOutcome.MISSING),
    (library.ModelQuotaExceededError, CallOutcome.QUOTA),
    (library.ModelRateLimitError, CallOutcome.LIMITED),
    (library.ModelRequestRejectedError, CallOutcome.REJECTED),
    (library.ModelUnavailableError, CallOutcome.SERVER),
    (library.ModelServerError, CallOutcome.SERVER),
    (library.ModelRequestTimeout, CallOutcome.STALLED),
    (library.ModelConnectionError, CallOutcome.CONNECTION),
    (library.ContentFilterError, CallOutcome.REFUSED),
    (library.UnexpectedModelBehavior, CallOutcome.UNREADABLE),
    (ValidationError, CallOutcome.UNREADABLE),
    (library.ModelAPIError, CallOutcome.SERVER),
    (OSError, CallOutcome.CONNECTION),
    (ValueError, CallOutcome.UNREADABLE),
)
_NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "anyio")


class Stalled(Exception):
    """No token came for too long; the call was cancelled."""


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A call that gave no answer."""

    kind: CallOutcome
    detail: str = ""
    retry_after_s: float | None = None
    used: Usage = NO_USAGE  # what the call used all the same, as far as that is known


def failure_of(error: Exception, secrets: tuple[str | None, ...]) -> ModelFailure:
    """The outcome, delay and message of an error."""
    detail = scrub(_said(error), secrets)
    return ModelFailure(_kind(error, detail), detail, getattr(error, "retry_after", None))


def _kind(error: Exception, detail: str) -> CallOutcome:
    if isinstance(error, Stalled):
        return CallOutcome.STALLED
    if isinstance(error, library.ModelAPIError) and isinstance(error.__cause__, ValueError):
        return CallOutcome.UNREADABLE  # a chunk that is not JSON
    kind = next((kind for type_, kind in _KINDS if isinstance(error, type_)), None)
    status = getattr(error, "status_code", 0)
    if kind in {None, CallOutcome.SERVER} and 400 <= status < 500:
        kind = {
            401: CallOutcome.DENIED,
            403: CallOutcome.DENIED,
            404: CallOutcome.MISSING,
            429: CallOutcome.LIMITED,
        }.get(status, CallOutcome.REJECTED)
    if kind in {CallOutcome.REJECTED, CallOutcome.SERVER} and _TOO_LONG.search(detail):
        return CallOutcome.OVERFLOW
    if kind is None and type(error).__module__.partition(".")[0] in _NETWORK_LIBRARIES:
        return CallOutcome.CONNECTION
    return kind or CallOutcome.UNKNOWN


def _said(error: Exception) -> str:
    """The provider's message, short; else the kind of the error."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    return str(message)[:300] if message else type(error).__name__
