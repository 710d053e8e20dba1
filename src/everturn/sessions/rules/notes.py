"""The one note to the model that an attempt may get: why it was cut off, what its tools left open, or why it was reset.

A note is for the model during that attempt. It is never stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from everturn.model import Message, ResumePending, SessionEntry
from everturn.people.rules.access import clean_text

UNDONE_SHOWN = 20
ARGUMENTS_SHOWN = 200

_CUT_OFF_BY = {"restart_timeout": "gateway restart", "shutdown_timeout": "gateway shutdown"}
_RESET_BECAUSE = {
    "suspended": "the previous one was suspended after repeated interruptions",
    "idle": "the previous one was inactive for too long",
    "daily": "conversations are reset on a daily schedule",
    "resume_pending_expired": "the previous one was cut off by a gateway interruption too long ago to be resumed",
}


@dataclass(frozen=True, slots=True)
class Note:
    """`kind` may be shown and logged; `text` goes to the model only; `tail_key` is the tail it covers."""

    kind: str
    text: str
    tail_key: str | None = None


@dataclass(frozen=True, slots=True)
class Undone:
    """A tool call of a turn that was rolled back: it did happen, or may have."""

    name: str
    arguments: str
    known: bool


def choose_note(
    entry: SessionEntry,
    tail: Sequence[Message],
    now: float,
    fresh_s: float,
    reset_reason: str | None = None,
    undone: Sequence[Undone] = (),
) -> Note | None:
    """One note at most: reset, else resume (which covers the tail), else rolled-back calls, else a fresh tail that
    nobody has answered yet. A resume note lists rolled-back calls, too.
    """
    if reset_reason is not None:
        return Note(f"reset:{reset_reason}", _reset_text(entry, reset_reason))
    key = tail_key(tail)
    if isinstance(entry.state, ResumePending):
        reason = entry.state.reason or "restart_timeout"
        said = [_resume_text(reason), _undone_text(undone)] if undone else [_resume_text(reason)]
        return Note(f"resume:{reason}", _marked(" Also: ".join(said)), key)
    if undone:
        return Note("rolled_back", _marked(_undone_text(undone)))
    if key is None or tail_acknowledged(entry, key) or not _fresh(tail[-1].at, now, fresh_s):
        return None
    return Note("tool_tail", _marked(_TAIL_TEXT), key)


def tail_key(messages: Sequence[Message]) -> str | None:
    """A stable name for the trailing consecutive tool results; None when the history does not end with one."""
    tail = list(takewhile(lambda message: message.role == "tool", reversed(messages)))
    if not tail:
        return None
    # JSON keeps ids and contents apart, so that no two different tails are hashed as the same text.
    named = json.dumps([[message.call_id, message.content] for message in reversed(tail)])
    return hashlib.sha256(named.encode()).hexdigest()


def tail_acknowledged(entry: SessionEntry, key: str | None) -> bool:
    """Whether the model has already answered with this tail in front of it."""
    return key is not None and entry.tail_key == key


def with_note(note: Note | str | None, message: str) -> str:
    """The note, a blank line, and the user's message unchanged."""
    text = note.text if isinstance(note, Note) else note
    return "\n\n".join(part for part in (text, message) if part)


def _fresh(at: float, now: float, fresh_s: float) -> bool:
    return fresh_s <= 0 or not at or now - at <= fresh_s


def _marked(text: str) -> str:
    """A note as the model sees it: one marker around the whole text."""
    return f"[System note: {text}]"


def _resume_text(reason: str) -> str:
    return (
        f"your last turn in this conversation was interrupted by a"
        f" {_CUT_OFF_BY.get(reason, 'gateway interruption')}. The history is intact. Continue the work from where it"
        " stopped: finish what the recorded results left open, do not repeat a call that already has one, and check"
        " before you repeat a call whose outcome is unknown. Say what was accomplished. If a new message follows this"
        " note, then answer it."
    )


_TAIL_TEXT = (
    "this conversation ends with at least one tool result that you have not answered yet. The history is"
    " intact. First finish what each tool result left open, say what was accomplished, then answer the new message."
)


def _undone_text(undone: Sequence[Undone]) -> str:
    listed = "; ".join(_call_text(each) for each in undone[:UNDONE_SHOWN])
    more = f"; and {len(undone) - UNDONE_SHOWN} more" if len(undone) > UNDONE_SHOWN else ""
    return (
        "the user took back an earlier request while you worked on it; it is no longer in your history."
        f" These tool calls of it did happen and were not undone: {listed}{more}."
    )


def _call_text(each: Undone) -> str:
    arguments = clean_text(each.arguments, ARGUMENTS_SHOWN)
    return f"{clean_text(each.name)}({arguments})" + ("" if each.known else " (outcome unknown)")


def _reset_text(entry: SessionEntry, reason: str) -> str:
    because = _RESET_BECAUSE.get(reason, "the previous one was reset")
    text = f"this is a fresh conversation, because {because}. Nothing said before is in your history."
    if entry.reset_had_activity and entry.previous_session_id:
        text += (
            f" The previous session is {entry.previous_session_id}; it is kept, and the user can resume it with"
            " /resume."
        )
    return _marked(text)
