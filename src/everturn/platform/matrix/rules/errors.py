"""Maps an error response of a Matrix homeserver to the error that names the right reaction.

https://spec.matrix.org/latest/client-server-api/#standard-error-response
"""

from __future__ import annotations

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

PAUSE_S = 1.0
STRANGE_S = 10.0
OWNER_S = 60.0  # for what only a person can correct
LONGEST_DELAY_S = 86_400.0  # a longer delay that a homeserver asks for is cut to a day
REVOKED = (
    "the homeserver rejects our access token; get a new one (everturn connect matrix), and keep its device:"
    " messages of the last day are recognised by it"
)
TOKENS = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
# Said of the account or the server, whatever we ask for: https://spec.matrix.org/latest/client-server-api/#other-error-codes
RESTRICTED = frozenset({"M_RESOURCE_LIMIT_EXCEEDED", "M_CONSENT_NOT_GIVEN", "M_USER_SUSPENDED", "M_USER_LOCKED"})


class MatrixNotFound(Refused):
    """There is no such thing, or no such endpoint on an older server."""


class Forbidden(Refused):
    """The homeserver forbids it: we left the room, or may not write there."""


def error_of(
    status: int, code: str, text: str, *, retry_after_ms: float | None = None, retry_after: str = ""
) -> PlatformError:
    """The error for a response with this status, errcode and message. `retry_after` is the header of that name."""
    what = f"{text or 'no reason given'} ({code or f'HTTP {status}'})"
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        return TryLater(f"the homeserver asks us to wait: {what}", _wait_s(retry_after_ms, retry_after))
    if status == 408 or status >= 500:
        return OutcomeUnknown(f"the homeserver had an error: {what}")
    if code in RESTRICTED:
        return TryLater(f"the homeserver restricts the account: {what}", OWNER_S)
    if code in TOKENS or status == 401:
        return TryLater(REVOKED, OWNER_S)  # the message itself is fine: it waits for the owner
    return _no(status, code, what)


def _no(status: int, code: str, what: str) -> PlatformError:
    """The error of a request that was rejected. A homeserver sends a code with every error; proxies limit sizes, too."""
    if status == 413 or code == "M_TOO_LARGE":
        return Refused(f"larger than the homeserver accepts: {what}")
    if status == 414:
        return MatrixNotFound(f"the address is longer than the homeserver accepts: {what}")
    if not code:
        return TryLater(f"a proxy in front of the homeserver answered in its place: {what}", STRANGE_S)
    if status == 403:
        text = f"not allowed there: {what}; is the account still in the room, and may it write?"
        return Forbidden(text) if code == "M_FORBIDDEN" else Refused(text)
    return MatrixNotFound(what) if status in {404, 405} else Refused(what)


def _wait_s(retry_after_ms: float | None, retry_after: str) -> float:
    """The delay that the server asks for: the header is the newer way, the field the older; a date is not supported."""
    told = retry_after.strip()
    if told.isdecimal() and len(told) < 12:
        return min(float(told), LONGEST_DELAY_S)
    return min(retry_after_ms / 1000, LONGEST_DELAY_S) if retry_after_ms is not None and retry_after_ms > 0 else PAUSE_S
