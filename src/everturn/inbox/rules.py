"""Rules of the inbox: busy modes, the backlog of an outage, quotes, files that come in, and what a database cannot store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from operator import is_
from typing import TypeVar

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import asdict, fields, replace

from everturn.commands.rules.registry import parse_command
from everturn.home.rules import PROGRAM, TEXT, Upload, clean_file_name, size_text, without_addresses
from everturn.model import Attachment, Inbound, StoredFile
from everturn.outbox.rules.text import storable
from everturn.people.rules.access import clean_name

LONGEST_BURST_S = 1.0
ALBUM_S = 0.8  # when no further part of an album came for so long, it is whole
OUTCOME_UNKNOWN = "The outcome of this call is unknown: it was cut off while it ran. It was not run again."


class BusyMode(StrEnum):
    """The busy modes."""

    STEER = "steer"  # it joins the running turn before its next model call
    QUEUE = "queue"  # it is the next turn
    INTERRUPT = "interrupt"  # the running turn ends, it is the next one
    COLLECT = "collect"  # what comes until it is quiet is the next turn
    ROLLBACK = "rollback"  # the running turn is rolled back, it is the next one


TAKES_OVER = frozenset({BusyMode.INTERRUPT, BusyMode.ROLLBACK})
_BY_NAME: dict[str | None, BusyMode] = {mode.value: mode for mode in BusyMode}
_FORCED = {"steer": BusyMode.STEER, "queue": BusyMode.QUEUE}


def busy_of(
    forced: str | None, chosen: str | None, configured: str, *, turn_open: bool, others_wait: bool
) -> BusyMode | None:
    """The busy mode of an accepted message: its own, else that of /busy, else the configured one. None: no turn is open."""
    busy = _BY_NAME.get(forced) or _BY_NAME.get(chosen) or _BY_NAME.get(configured) or BusyMode.STEER
    if turn_open or (busy is BusyMode.COLLECT and others_wait):
        return busy
    return None


def forced_by(text: str) -> tuple[BusyMode, str] | None:
    """The busy mode and text of `/steer text` and `/queue text`; without a text they are commands."""
    command = parse_command(text) if text.startswith("/") else None
    if command is None or command.name not in _FORCED or not command.argument.strip():
        return None
    return _FORCED[command.name], command.argument


def skipped(because: str) -> str:
    """The result of a tool call that was never begun: calls and results stay paired."""
    return f"Skipped: this call was not run, because {because}."


NEW_MESSAGE = skipped("the user wrote a new message, which follows")


def steers(modes: Sequence[str | None]) -> int:
    """How many of the queued messages, in order, join the running turn: up to the first with another mode."""
    return sum(1 for _ in takewhile(lambda mode: mode == BusyMode.STEER, modes))


Author = TypeVar("Author")


def burst(waiting: Sequence[tuple[Author, float]], burst_s: float) -> int:
    """How many of the queued messages begin one turn: of one author, each soon after the last. At least the first does."""
    first_author, first_at = waiting[0]
    count, last_at = 1, first_at
    for author, at in waiting[1:]:
        if author != first_author or not 0 <= at - last_at <= burst_s or at - first_at > LONGEST_BURST_S:
            break
        count, last_at = count + 1, at
    return count if burst_s > 0 else 1


def quiet_at(collected: Sequence[float], collect_s: float) -> float:
    """When the collected messages, by the times they were accepted, have been followed by a quiet time of `collect_s`."""
    return max(collected) + collect_s


# The backlog policy: what becomes of messages that were sent while the gateway was disconnected.


GRACE_S = 5.0  # clocks differ, and the last process may have crashed before it stored a message
QUIET_S = 2.0  # a backlog comes in one go: it is complete when nothing came for so long
BACKLOG_REQUEST = "backlog"  # the kind of the reply that asks what to do with several messages
BACKLOG_REQUEST_OF_ONE = "backlog_one"
MOST_WAITING = 100  # of one conversation; who wrote more gets a notice
ASKED_S = 86_400.0  # how long a backlog request is open, where no greatest age is set


class BacklogPolicy(StrEnum):
    """The backlog policies."""

    ALL = "all"
    NEWEST = "newest"  # of each conversation only the newest is answered
    DIGEST = "digest"  # all of a conversation begin one turn
    ASK = "ask"  # their sender decides whether they are answered


class Arriving(StrEnum):
    """What happens to a message when it arrives."""

    NOW = "now"
    HOLD = "hold"  # it waits until the whole backlog is there
    EXPIRE = "expire"  # it is too old


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogRule:
    """The backlog settings of a platform; `age_s` 0: nothing is too old."""

    policy: str = BacklogPolicy.ALL
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogDecision:
    """What becomes of a backlog: all but the newest message expire, or all are answered."""

    newest: bool = False
    together: bool = False  # they begin one turn
    ask: bool = False  # they wait on, and their sender is asked


def arriving(backlog: BacklogRule, said_at: float | None, since: float, now: float, *, command: bool) -> Arriving:
    """What happens to a message that was sent at `said_at`, where the platform is connected since `since`.

    Commands are about the present: they do not wait.
    """
    if said_at is None:
        return Arriving.NOW
    if backlog.age_s and now - said_at > backlog.age_s:
        return Arriving.EXPIRE
    if command or backlog.policy == BacklogPolicy.ALL or not sent_during_outage(said_at, since):
        return Arriving.NOW
    return Arriving.HOLD


def sent_during_outage(said_at: float | None, since: float) -> bool:
    """Whether a message was sent while the gateway was disconnected."""
    return said_at is not None and said_at < since - GRACE_S


def outage_id(since: float) -> int:
    """The id of the outage that ended then: a chat gets one notice for each."""
    return round(since * 1000)


def room_in_queue(limit: int, said_at: float | None, since: float) -> int:
    """How many messages may be queued with this one. A backlog comes in one go: its author could not be asked to wait."""
    return max(limit, MOST_WAITING) if sent_during_outage(said_at, since) else limit


def count(albums: Sequence[str | None]) -> int:
    """How many messages these rows are, by the albums they belong to: the parts of one album are one message."""
    return sum(album is None or place == 0 or albums[place - 1] != album for place, album in enumerate(albums))


def before_newest(albums: Sequence[str | None]) -> int:
    """How many of these rows come before the newest message: an album is not torn apart."""
    newest = albums[-1] if albums else None
    together = sum(1 for _ in takewhile(lambda album: album == newest, reversed(albums))) if newest is not None else 1
    return max(0, len(albums) - together)


def settle(policy: str, messages: int) -> BacklogDecision:
    """What becomes of the backlog of one conversation when no more messages come."""
    match policy:
        case BacklogPolicy.NEWEST:
            return BacklogDecision(newest=messages > 1)
        case BacklogPolicy.DIGEST:
            return BacklogDecision(together=messages > 1)
        case BacklogPolicy.ASK:
            return BacklogDecision(ask=messages > 0)
        case _:
            return BacklogDecision()


# Quotes: the agent reads the message that somebody replies to before their text, as it may never have seen it.


QUOTED_CHARS = 500
_LINE = re.compile(r"\[in reply to [^\[\]\n]+\]\n")


def in_reply(text: str, quoted: str, author: str | None) -> str:
    """The text of a reply after a line that quotes the message it answers; the quote cannot end that line early.
    `author`: None for ourselves. A command stays as it is.
    """
    line = clean_name(quoted, QUOTED_CHARS)
    if not line or parse_command(text) is not None:
        return text
    whose = "your" if author is None else f"{clean_name(author) or 'somebody'}'s"
    return f"[in reply to {whose} message: {line}]\n{text}"


def edited(before: str, now: str) -> str:
    """The edited text, with the quote of the earlier text: not every platform sends the quote again."""
    line = _LINE.match(before)
    return now if line is None or _LINE.match(now) else line[0] + now


# Texts about attachments: a line for each file for the model, and a notice about missing files for the sender.


MOST_FILES = 20  # of one message; the rest is left
STILL = frozenset({"image/webp", "image/png", "image/jpeg"})
_ENDINGS = {"image": "jpg", "voice": "ogg", "audio": "mp3", "video": "mp4", "sticker": "webp"}
TOO_SLOW = "it could not be fetched in time"
NOT_FETCHED = "it could not be fetched"
TOO_MANY = f"a message may have {MOST_FILES} files at most"
NO_FILES = "I cannot receive files on this platform"
DESCRIBE = (
    "This is a sticker that somebody sent in a chat: {address}\n"
    "Say in one short sentence what it shows and which feeling it expresses. Nothing else."
)
DESCRIPTION_CHARS = 300
WHY_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRules:
    """The settings for files that come with messages."""

    fetch_s: float = 30.0  # how long to wait for them
    keep_s: float = 86_400.0  # how long they are kept
    text_chars: int = 20_000  # how much of a text document is put into the message
    forbidden: tuple[str, ...] = (PROGRAM,)


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The outcome of fetching one file: it is here, it is not needed, or `trouble` says why it is missing."""

    file: StoredFile | None = None
    trouble: str = ""
    text: str | None = None  # what a text document says, within the bound
    chars: int = 0  # how long it is as a whole; 0: not known
    described: str = ""  # what a sticker shows


def placeholders(attachments: Sequence[Attachment]) -> str:
    """The text of a message that has only files, such as [image] or [document: name]."""
    return " ".join(_placeholder(each) for each in attachments)


def _placeholder(attachment: Attachment) -> str:
    what = attachment.text or attachment.name
    return f"[{attachment.kind}: {what}]" if what else f"[{attachment.kind}]"


def is_wanted(attachment: Attachment, *, described: bool, sees: bool) -> bool:
    """Whether the bytes of a file are needed. A sticker is its picture's description; one that moves is its emoji."""
    return attachment.kind != "sticker" or not (described or attachment.moving or not sees)


def share_of(chars: int, attachments: Sequence[Attachment]) -> int:
    """How many characters of each text document are put into a message: all documents share one limit."""
    return chars // max(1, sum(each.kind == "document" for each in attachments))


def name_of(attachment: Attachment) -> str:
    """The file name of an attachment: from its sender, or from its kind."""
    ending = _ENDINGS.get(attachment.kind)
    return clean_file_name(attachment.name or (f"{attachment.kind}.{ending}" if ending else attachment.kind))


def is_forbidden(kind: str, forbidden: Sequence[str]) -> bool:
    """Whether a file type is forbidden: named itself, or by its first half (`video/*`)."""
    return any(kind == each or (each.endswith("/*") and kind.startswith(each[:-1])) for each in forbidden)


def failed(attachment: Attachment, why: str) -> FetchOutcome:
    """The outcome of a failed fetch; for a sticker its emoji is enough."""
    return (
        FetchOutcome()
        if attachment.kind == "sticker"
        else FetchOutcome(trouble=" ".join(why.split())[:WHY_CHARS] or NOT_FETCHED)
    )


def too_slow(attachment: Attachment) -> FetchOutcome:
    """The outcome of a fetch that took too long."""
    return failed(attachment, TOO_SLOW)


def not_taken(kind: str) -> str:
    """Why a file of a forbidden type is missing."""
    return f"files of the type {kind} are not accepted here"


def inlined(data: bytes, chars: int, *, whole: bool) -> tuple[str, int] | None:
    """The content of a text document within the limit, and its length; None when it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 4:
            return None
        text = data[: error.start].decode()
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\x00", "")
    return text[:chars], len(text) if whole else 0


def settled_text(text: str, attachments: Sequence[Attachment], outcomes: Sequence[FetchOutcome]) -> str:
    """The text of a message with the lines of its files; placeholders are left out."""
    lines = [_line(each, outcome) for each, outcome in zip(attachments, outcomes, strict=True)]
    said = [] if text == placeholders(attachments) else [text]
    return "\n\n".join([*said, *lines])


def _line(attachment: Attachment, outcome: FetchOutcome) -> str:
    if attachment.kind == "sticker":
        return _sticker(attachment, outcome.described)
    name = name_of(attachment)
    if outcome.file is None:
        return f"[{attachment.kind} {name} did not arrive: {outcome.trouble or NOT_FETCHED}]"
    file, address = outcome.file, Upload(outcome.file.id, outcome.file.name).address
    lasts = f", {attachment.seconds} s" if attachment.seconds else ""
    heard = ", not transcribed" if attachment.kind == "voice" else ""
    line = f"[{attachment.kind}: {file.name}{lasts}, {file.type}, {size_text(file.size)}{heard}, {address}]"
    return line if outcome.text is None else f"{line}\n{outcome.text}\n{_end(file, outcome)}"


def _end(file: StoredFile, outcome: FetchOutcome) -> str:
    shown = len(outcome.text or "")
    if outcome.chars == shown:
        return f"[end of {file.name}]"
    of = f" of {outcome.chars}" if outcome.chars else ""
    return f"[{file.name} goes on: these were the first {shown}{of} characters]"


def _sticker(attachment: Attachment, described: str) -> str:
    parts = ["sticker", attachment.text, f"from the set {attachment.family}" if attachment.family else ""]
    about = " ".join(part for part in parts if part)
    if described:
        return f"[{about}: {described}]"
    return f"[{about}; it moves and cannot be seen]" if attachment.moving else f"[{about}]"


def is_text(kind: str) -> bool:
    """Whether the content of a document may be put into the message."""
    return kind == TEXT


def missing(attachments: Sequence[Attachment], outcomes: Sequence[FetchOutcome]) -> list[str]:
    """The missing files, each with its reason."""
    pairs = zip(attachments, outcomes, strict=True)
    return [f"{name_of(each)} ({outcome.trouble})" for each, outcome in pairs if outcome.trouble]


def missing_notice(reasons: Sequence[str]) -> str:
    """The notice about missing files for their sender."""
    which = reasons[0] if len(reasons) == 1 else f"{', '.join(reasons[:-1])} and {reasons[-1]}"
    return f"I did not get {which}. I answer without {'it' if len(reasons) == 1 else 'them'}."


def description_of(text: str) -> str:
    """A model's description of a sticker, as one line of limited length."""
    line = " ".join(without_addresses(text).split()).replace("[", "(").replace("]", ")")
    return line if len(line) <= DESCRIPTION_CHARS else f"{line[:DESCRIPTION_CHARS]}…"


# Cleans messages of what a database cannot store: strangers wrote them.


S = TypeVar("S", bound=Struct)
_json = Encoder().encode
ZERO = b"\\u0000"
MOST_NUMBER = 1 << 63


def storable_message(inbound: Inbound) -> Inbound:
    """The message without what a database cannot store; almost always the message itself. JSON cannot hold half a surrogate
    pair or a number that is too large either, and writes a zero character out, so that one check of all of it is enough.
    """
    try:
        if ZERO not in _json(inbound) and (inbound.edition or 0) < MOST_NUMBER:
            return inbound
    except (UnicodeEncodeError, OverflowError):
        pass
    inbound = _cleaned(inbound)
    source, files = _cleaned(inbound.source), tuple(_cleaned(each) for each in inbound.attachments)
    same = source is inbound.source and all(map(is_, files, inbound.attachments))
    return inbound if same else replace(inbound, source=source, attachments=files)


def _cleaned(value: S) -> S:
    """The value with storable texts, and without numbers that are too large for a column."""
    odd: dict[str, object] = {}
    for name, given in asdict(value).items():
        if isinstance(given, str):
            if (fit := storable(given)) != given:
                odd[name] = fit
        elif isinstance(given, int) and not -MOST_NUMBER <= given < MOST_NUMBER:
            odd[name] = next(field.default for field in fields(value) if field.name == name)
    return replace(value, **odd) if odd else value
