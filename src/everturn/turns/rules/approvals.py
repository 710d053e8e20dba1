"""Rules of approvals: which call needs one, who may answer, and the exact text that is approved."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from everturn.model import Effect, SessionSource, ToolCall
from everturn.outbox.rules.text import utf16
from everturn.people.rules.access import person_of
from everturn.people.rules.rights import is_home

OWNER = "owner"
OWNERS = frozenset(
    {f"api:{OWNER}", f"web:{OWNER}", f"v1:{OWNER}"}
)  # one person: the home's token, its page, its OpenAI API
_STRICTNESS = (Effect.PURE, Effect.IDEMPOTENT, Effect.ONCE)
QUEUING_MODES = frozenset({"queue", "collect"})


class ApprovalScope(StrEnum):
    """For how long an approval holds."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


def approver_of(source: SessionSource) -> str | None:
    """The sender of a message, for approvals. The holder of the home's token counts as the owner, not as nobody."""
    return person_of(source) or (f"{source.platform}:{OWNER}" if is_home(source) else None)


def may_answer(
    asked_for: str | None, by: str | None, *, allow: bool, approvers: Sequence[str], there: bool = True
) -> bool:
    """Whether this person's answer counts. Only named approvers may approve, if there are any; the turn's person may always deny.

    A turn of nobody (the platform knows no people) is answered by whoever may speak in its chat; `there`: the answer comes from it.
    """
    if approvers and by in approvers:
        return True
    if approvers and allow:
        return False
    return there if asked_for is None else by == asked_for or {by, asked_for} <= OWNERS


def stricter(journaled: ToolCall, present: ToolCall) -> ToolCall:
    """The journaled call with the stricter of both classes, and with an approval request if either has one.

    Its tool may have been away when it was journaled, or the owner may have changed the rules since.
    """
    effect = max(journaled.effect, present.effect, key=_STRICTNESS.index)
    return replace(journaled, effect=effect, ask=present.ask if journaled.ask is None else journaled.ask)


def scope_of(scope: ApprovalScope, session_id: str, key: str, person: str | None) -> str | None:
    """The name under which an approval is remembered; None when it is not. It holds for the person of the request, nobody else."""
    match scope:
        case ApprovalScope.SESSION:
            return f"session:{session_id}:{person or ''}"
        case ApprovalScope.ALWAYS:
            return f"person:{person}" if person else f"key:{key}"
        case _:
            return None


def person_in(scope: str) -> str | None:
    """The person for whom the approval of this name holds; None: for a conversation in which nobody is known."""
    kind, _, rest = scope.partition(":")
    person = rest.partition(":")[2] if kind == "session" else rest if kind == "person" else ""
    return person or None


def remembered(session_id: str, key: str, person: str | None) -> tuple[str, ...]:
    """The names under which an earlier approval may be found."""
    scopes = (scope_of(scope, session_id, key, person) for scope in (ApprovalScope.SESSION, ApprovalScope.ALWAYS))
    return tuple(scope for scope in scopes if scope)


def closes(busy: str | None) -> bool:
    """Whether another message closes an open approval request as not approved; the queuing modes keep it queued instead."""
    return busy not in QUEUING_MODES


# Format a tool call for its approval request: every character can be seen, and no two calls look alike.
# The text becomes one line. A character that has no shape of its own, or that changes the order or the look of
# others, is written as an escape; a backslash of the text is written twice, so that it differs from an escape of
# ours. Letters of scripts that are written from right to left stay as they are: a person who reads them could not
# approve escapes.


LONGEST_CALL = 1_900  # in UTF-16 units; a longer one cannot be approved, and so does not run
LONGEST_REQUEST = 2_000  # with the text of a tool in front; the whole fits into one message on every built-in platform
INDENT = "    "  # in front of each line of a call in a request: adapters show such lines in monospace
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# Letters, marks and symbols without a shape: fillers, variation selectors and blanks. The other invisible ones are controls or spaces.
# Some are letters only since a newer Unicode: what is escaped must not depend on the version of Python.
BLANK = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFFC, 0xFFFC), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)  # fmt: skip
_MOST_MARKS = 2  # on one letter; more of them cover what stands around it


def exact(text: str) -> str:
    """The text in one line, so that what is seen is what runs."""
    return _escaped(text.replace("\\", "\\\\"))


def exact_json(value: object) -> str:
    """The arguments of a tool as exact JSON in one line; JSON doubles the backslashes of its texts by itself."""
    return _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def shown(request: str) -> str:
    """A tool's or an agent's own text about a call, escaped line by line; what is exact already stays as it is."""
    return "\n".join(map(_escaped, request.split("\n")))


def fits(call: str) -> bool:
    """Whether an approval request can show the whole call."""
    return utf16(call) <= LONGEST_CALL


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = _MOST_MARKS  # a mark at the beginning has no letter to stand on
    for char in text:
        kind = unicodedata.category(char)
        marks = marks + 1 if kind[0] == "M" else 0 if kind[0] == "L" else _MOST_MARKS
        hidden = kind[0] in "CZ" and char != " "
        loose = kind == "Me" or (kind[0] == "M" and marks > _MOST_MARKS)
        shown.append(_escape(char) if hidden or loose or char in BLANK else char)
    return "".join(shown)


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
