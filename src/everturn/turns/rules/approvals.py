"""Rules of approvals: who may approve a tool call, for how long, and which messages close an open approval request."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from everturn.model import Effect, SessionSource, ToolCall
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


def person_of(source: SessionSource) -> str | None:
    """The sender of a message, as the settings name people; None where the platform knows nobody."""
    return f"{source.platform}:{source.user_id}" if source.user_id else None


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
