"""Who may allow a tool call, for how long an answer holds, and what the user's other words do to an open question."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from everturn.decide.rights import is_home
from everturn.model import Effect, SessionSource, ToolCall

OWNER = "owner"
OWNERS = frozenset(
    {f"api:{OWNER}", f"web:{OWNER}", f"v1:{OWNER}"}
)  # one person: the home's token, its page, its OpenAI API
_STRICTNESS = (Effect.PURE, Effect.IDEMPOTENT, Effect.ONCE)
LETS_WAIT = frozenset({"queue", "collect"})


class Scope(StrEnum):
    """For how long a yes holds."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


def person_of(source: SessionSource) -> str | None:
    """The person behind a message, as the settings name people; None where the platform knows nobody."""
    return f"{source.platform}:{source.user_id}" if source.user_id else None


def approver_of(source: SessionSource) -> str | None:
    """The person behind a message, for approvals. The holder of the home's token is the owner: a turn of theirs is not nobody's."""
    return person_of(source) or (f"{source.platform}:{OWNER}" if is_home(source) else None)


def may_answer(
    asked_for: str | None, by: str | None, *, allow: bool, approvers: Sequence[str], there: bool = True
) -> bool:
    """Whether this person's answer counts. Named approvers alone allow; whose turn it is may always say no.

    A turn of nobody (the platform knows no people) is answered by whoever may speak in its chat; `there`: the answer comes from it.
    """
    if approvers and by in approvers:
        return True
    if approvers and allow:
        return False
    return there if asked_for is None else by == asked_for or {by, asked_for} <= OWNERS


def stricter(journaled: ToolCall, present: ToolCall) -> ToolCall:
    """The journaled call with the stricter of both classes, and with an approval if either asks for one.

    Its tool may have been away when it was journaled, or the owner may have changed the rules since.
    """
    effect = max(journaled.effect, present.effect, key=_STRICTNESS.index)
    return replace(journaled, effect=effect, ask=present.ask if journaled.ask is None else journaled.ask)


def scope_of(scope: Scope, session_id: str, key: str, person: str | None) -> str | None:
    """Under which name a yes is remembered; None when it is not. It holds for the person it was asked for, nobody else."""
    match scope:
        case Scope.SESSION:
            return f"session:{session_id}:{person or ''}"
        case Scope.ALWAYS:
            return f"person:{person}" if person else f"key:{key}"
        case _:
            return None


def person_in(scope: str) -> str | None:
    """For whom the yes of this name holds; None: for a conversation in which nobody is known."""
    kind, _, rest = scope.partition(":")
    person = rest.partition(":")[2] if kind == "session" else rest if kind == "person" else ""
    return person or None


def remembered(session_id: str, key: str, person: str | None) -> tuple[str, ...]:
    """The names under which an earlier yes may be found."""
    scopes = (scope_of(scope, session_id, key, person) for scope in (Scope.SESSION, Scope.ALWAYS))
    return tuple(scope for scope in scopes if scope)


def closes(busy: str | None) -> bool:
    """Whether the user's other words close an open question as not approved; in these modes they wait for its answer."""
    return busy not in LETS_WAIT
