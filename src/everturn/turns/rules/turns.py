"""Rules of a running turn: how long it may take, what of an output enters the transcript, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from msgspec import structs

from everturn.model import SessionSource
from everturn.people.rules.access import clean_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTimeouts:
    """Limits in seconds; 0 switches one off. All but `working_s` count from the last activity."""

    inactive_s: float = 1800  # the turn fails
    warn_s: float = 900  # its user is warned, once
    working_s: float = 180  # "still working", again and again
    stall_s: float = 300  # a message is queued behind it: its sender gets a notice, once


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The times of a running turn as they are now."""

    running_s: float
    idle_s: float
    behind: bool  # a message is queued behind it


@dataclass(frozen=True, slots=True)
class NoticesSent:
    """The notices sent about a turn: the last two are reset by new activity."""

    working: int = 0  # how many times `working_s` had passed
    warned: bool = False
    stalled: bool = False


class Notice(StrEnum):
    """The notice that is due, or that the turn fails as inactive."""

    INACTIVE = "inactive"
    STALL = "stalled"
    WARN = "inactivity_warning"
    WORKING = "still_working"


def due(patience: TurnTimeouts, moment: Moment, sent: NoticesSent) -> tuple[Notice | None, NoticesSent]:
    """The one notice that is due now, the most serious first, and the notices sent once it is sent."""
    sent = sent if _over(moment.idle_s, shortest_silence(patience)) else replace(sent, warned=False, stalled=False)
    passed = int(moment.running_s // patience.working_s) if patience.working_s > 0 else 0
    if _over(moment.idle_s, patience.inactive_s):
        return Notice.INACTIVE, sent
    if moment.behind and not sent.stalled and _over(moment.idle_s, patience.stall_s):
        return Notice.STALL, NoticesSent(passed, sent.warned, stalled=True)
    if not sent.warned and _over(moment.idle_s, patience.warn_s):
        return Notice.WARN, NoticesSent(passed, warned=True, stalled=sent.stalled)
    if passed > sent.working:
        return Notice.WORKING, replace(sent, working=passed)
    return None, sent


def shortest_silence(patience: TurnTimeouts) -> float:
    """The shortest inactivity that gets a notice: a turn with later activity is not stalled any more."""
    return min((each for each in (patience.warn_s, patience.stall_s) if each > 0), default=0.0)


def _over(seconds: float, limit_s: float) -> bool:
    return limit_s > 0 and seconds >= limit_s


# Shorten a tool's output for the transcript: all of it, or its head and tail with the way to read the rest.


_NEVER_STORED = "\x00"
_INSTEAD = "\ufffd"


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """The text for the transcript; `whole` is what is kept beside it, None when nothing was left out."""

    text: str
    whole: str | None = None


def output_id(turn: int, call_id: str) -> str:
    """The name by which the model asks for the rest of an output."""
    return f"{turn}:{call_id}"


def parse_output_id(text: str) -> tuple[int, str] | None:
    """The turn and the call id in the name of an output; None when the text is no such name."""
    turn, _, call_id = text.strip().partition(":")
    if not (turn.isascii() and turn.isdigit() and len(turn) < 20 and call_id):
        return None
    return int(turn), call_id


def storable(text: str) -> str:
    """The text as every database can keep it: no zero bytes, no halves of characters."""
    if _NEVER_STORED in text:
        text = text.replace(_NEVER_STORED, _INSTEAD)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shorten(text: str, name: str, limit: int, kept: int) -> ShortenedOutput:
    """Split an output into the text for the transcript and the whole that is stored; both are bounded."""
    text = storable(text)
    if len(text) <= limit:
        return ShortenedOutput(text)
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    whole = text[:kept]
    lost = f" Only the first {kept} characters were kept." if len(text) > kept else ""
    gap = (
        f"\n[... {len(text) - limit} of {len(text)} characters are left out here.{lost}"
        f" To read them: read_output with id {name!r}, start {head}. ...]\n"
    )
    return ShortenedOutput(text[:head] + gap + text[-tail:], whole)


# The sender and the chat of a turn, for the programs that its tools start or call.
# It is made from the turn for every call and kept nowhere, so that it cannot be another person's. Every name is
# always there; what is not known is empty, so that nothing inherited shows through.


PREFIX = "TURN_"
ID_CHARS = 400


def place_of_turn(source: SessionSource, key: str, session_id: str, turn: str) -> dict[str, str]:
    """The sender and chat of a turn as texts. Names were chosen by people in the chat: one line each, bounded."""
    ids = {
        "id": turn,
        "key": key,
        "session": session_id,
        "platform": source.platform,
        "account": source.account,
        "chat": source.chat_id,
        "chat_type": source.chat_type,
        "thread": source.thread_id,
        "user": source.user_id,
        "message": source.message_id,
    }
    names = {"chat_name": source.chat_name, "user_name": source.user_name}
    told = {name: clean_text(value, ID_CHARS) for name, value in ids.items()}
    return told | {name: clean_text(value) for name, value in names.items()}


def without_person(source: SessionSource) -> SessionSource:
    """The source of a turn that answers several people, without the person: it acts for none of them alone."""
    return structs.replace(source, user_id=None, user_id_alt=None, user_name=None)


def as_variables(place: Mapping[str, str]) -> dict[str, str]:
    """The sender and chat as environment variables of a program: `TURN_USER`, `TURN_CHAT`, ..."""
    return {f"{PREFIX}{name.upper()}": value for name, value in place.items()}
