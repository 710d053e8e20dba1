"""Rules of Matrix: errors, when an invitation or an unreadable room is tried again or skipped, and text in both directions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from everturn.commands.rules.registry import BY_NAME, canonical
from everturn.errors import EverturnError, OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.pauses import pause_s
from everturn.platform import rules
from everturn.platform.rules import addressed, trimmed

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
MOST_FAILURES = 20  # about a quarter of an hour
LONGEST_WAIT_S = 3600.0  # a longer delay that a homeserver asks for is cut to an hour
MATRIX = rules.Dialect(bold="strong", slanted="em", struck="del", newline="<br>", blocks=True)
TEXT_WEIGHT = 16_000
NOT_READ = (
    "This room is encrypted, and I cannot read encrypted messages. Please invite me to a room without encryption: it is"
    " chosen when a room is created, and cannot be switched off later."
)
NO_PLAIN_TEXT = (
    "the room is encrypted, and a plain message could be read by everybody on its homeserver; write in a room without"
    " encryption"
)
HTML_WEIGHT = 38_000  # with the text, an edit's fallback and what the server adds, an event stays below 64 KiB
_ESCAPED = re.compile(r'["\\\n\r\t\b\f]')
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
_QUOTED = re.compile(r"> (?:\* )?<@[^>\n]+>")
_BANG = re.compile(r"!([A-Za-z][A-Za-z_-]*)(?=\s|$)")
LOUD_FAILURES = 3
LAST_FAILURES = 5
LONGEST_UPGRADE_S = 3600.0  # an upgrade of the other side is over by then
TOO_MUCH = (
    "While I was disconnected, more messages arrived here than I can read, and I skipped the oldest ones. If I did not answer"
    " you, please send your message again."
)
UNREADABLE = (
    "For an hour the homeserver could not show me the messages here, and I had to skip them. If I did not answer you,"
    " please send your message again."
)


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


@dataclass(frozen=True, slots=True)
class RetryInvitation:
    """Retry after so many seconds; `failures` counts those so far."""

    in_s: float
    failures: int


def after_failure(error: EverturnError, failures: int, chance: float) -> RetryInvitation | None:
    """When to retry after so many failures before this one; None: not in this process.

    A delay that the server asked for is no failure: joining is what homeservers limit most. What is refused was withdrawn,
    or its room is gone.
    """
    if isinstance(error, Refused):
        return None
    if isinstance(error, TryLater) and error.delay_s > 0:
        return RetryInvitation(min(error.delay_s, LONGEST_WAIT_S), failures)
    if failures >= MOST_FAILURES:
        return None
    return RetryInvitation(pause_s(failures + 1, chance), failures + 1)


def weight(text: str) -> int:
    """The size of a text in an event: its bytes as JSON. Every character counts at least one."""
    return len(text.encode("utf-8", "replace")) + len(_ESCAPED.findall(text)) + 5 * len(_CONTROL.findall(text))


def to_html(text: str) -> str | None:
    """The text with its Markdown as HTML; None where that would show nothing more, or not fit into an event."""
    html = rules.to_html(text, MATRIX)
    plain = escape(text, quote=False).replace("\n", "<br>")
    return None if html == plain or weight(html) > HTML_WEIGHT else html


def exact_html(text: str) -> str:
    """The text as it is, in HTML: an approval request shows what runs, whatever marks stand in it."""
    return rules.exact_html(text, MATRIX).replace("  ", " &#160;")  # HTML shows several spaces as one


def without_fallback(text: str) -> str:
    """The text of a reply without the quotation that older clients put in front of it."""
    if not _QUOTED.match(text):
        return text
    lines = text.split("\n")
    kept = next((place for place, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[kept:]).lstrip("\n")


def for_us(
    text: str, user: str, name: str, *, direct: bool, mentioned: bool, reply_to_us: bool, listening: bool
) -> str | None:
    """The text for the agent; None when it is not for us. `user` is our id, `name` our display name in the room,
    `mentioned` what the sender's client reports.

    A command may begin with an exclamation mark: many clients keep the slash for themselves.
    """
    local = user[1:].partition(":")[0]
    named, rest = _without_names(text, tuple(each for each in (user[1:], name, local) if each), told=mentioned)
    return addressed(
        _slashed(rest), local, direct=direct, reply_to_us=reply_to_us, listening=listening or named or mentioned
    )


def _slashed(text: str) -> str:
    bang = _BANG.match(text)
    known = bang is not None and canonical(bang[1].lower()) in BY_NAME
    return f"/{text[1:]}" if known else text


def _without_names(text: str, names: Sequence[str], *, told: bool) -> tuple[bool, str]:
    """Whether our name is mentioned, and the text without it at its beginning or end: in the middle it is part of a
    sentence. A bare name counts only where it is followed by a colon or comma, or the client reports a mention.
    """
    name = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
    at = rf"(?<!\w)@(?:{name})(?!\w)"
    bare_first, bare_last = (rf"(?:{name})(?!\w)[,:]?", rf"|(?<!\w)(?:{name})") if told else (rf"(?:{name})[,:]", "")
    first = rf"{at}[,:]?|{bare_first}"
    found = any(re.search(each, text, re.IGNORECASE) for each in (rf"\A\s*(?:{first})", at))
    return found, trimmed(text, first, f"{at}{bare_last}") if found or told else text


def is_hopeless(failures: int, failing_s: float) -> bool:
    """Whether a room failed often enough, and for long enough: a server that is busy for a while loses no message."""
    return failures >= LAST_FAILURES and failing_s >= LONGEST_UPGRADE_S


def is_loud(failures: int) -> bool:
    """Whether the owner sees it in the status: one failed request is not shown."""
    return failures >= LOUD_FAILURES
