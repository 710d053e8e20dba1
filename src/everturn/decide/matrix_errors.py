"""What an answer of a Matrix homeserver that says no demands of us.

https://spec.matrix.org/latest/client-server-api/#standard-error-response
"""

from __future__ import annotations

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

PAUSE_S = 1.0
STRANGE_S = 10.0
OWNER_S = 60.0  # what only somebody else can put right
LONGEST_S = 86_400.0  # a homeserver that asks for more than a day is not believed
REVOKED = (
    "the homeserver does not know our access token any more; get a new one (everturn connect matrix), and keep its device:"
    " what was sent in the last day is recognised by it"
)
TOKENS = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
# Said of the account or the server, whatever we ask for: https://spec.matrix.org/latest/client-server-api/#other-error-codes
HELD = frozenset({"M_RESOURCE_LIMIT_EXCEEDED", "M_CONSENT_NOT_GIVEN", "M_USER_SUSPENDED", "M_USER_LOCKED"})


class Missing(Refused):
    """There is no such thing, or no such address on an older server."""


class Forbidden(Refused):
    """The homeserver itself says that we may not: we are not in the room any more, or may not write there."""


def error_of(
    status: int, code: str, words: str, *, retry_after_ms: float | None = None, retry_after: str = ""
) -> PlatformError:
    """The error that an answer with this status, errcode and words means. `retry_after` is the header of that name."""
    what = f"{words or 'no reason given'} ({code or f'HTTP {status}'})"
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        return TryLater(
            f"the homeserver wants to be left alone for a while: {what}", _wait_s(retry_after_ms, retry_after)
        )
    if status == 408 or status >= 500:
        return OutcomeUnknown(f"the homeserver had an error: {what}")
    if code in HELD:
        return TryLater(f"the homeserver holds the account back: {what}", OWNER_S)
    if code in TOKENS or status == 401:
        return TryLater(REVOKED, OWNER_S)  # nothing is wrong with what we say: it waits for the owner
    return _no(status, code, what)


def _no(status: int, code: str, what: str) -> PlatformError:
    """What is said of this request alone. A homeserver gives a code with every no; a size is limited by proxies, too."""
    if status == 413 or code == "M_TOO_LARGE":
        return Refused(f"larger than the homeserver takes: {what}")
    if status == 414:
        return Missing(f"the address is longer than the homeserver takes: {what}")
    if not code:
        return TryLater(f"something before the homeserver answered in its place: {what}", STRANGE_S)
    if status == 403:
        words = f"not allowed there: {what}; is the account still in the room, and may it write?"
        return Forbidden(words) if code == "M_FORBIDDEN" else Refused(words)
    return Missing(what) if status in {404, 405} else Refused(what)


def _wait_s(retry_after_ms: float | None, retry_after: str) -> float:
    """The header is the newer way, the field the older; a date in the header is not worth reading."""
    told = retry_after.strip()
    if told.isdecimal() and len(told) < 12:
        return min(float(told), LONGEST_S)
    return min(retry_after_ms / 1000, LONGEST_S) if retry_after_ms is not None and retry_after_ms > 0 else PAUSE_S
