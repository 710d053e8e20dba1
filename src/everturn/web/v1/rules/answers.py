"""Decides the reply to a /v1 request: pending, the answer, or an error. Only the stored rows count, so a repeat gets the same."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.model import ToolCall, TurnState, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgress:
    """The state of a request in the store."""

    inbox: str  # the state of its message
    turn: str | None = None  # the state of its turn
    why: str | None = None  # why the turn ended
    text: str = ""  # the answer; or the notice in its place
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()  # noqa: RUF009  frozen
    approval: str | None = None  # what a person must approve first
    suspended: bool = False  # its session is suspended, and it waits there
    too_old: bool = False  # its turn was interrupted too long ago to resume by itself


@dataclass(frozen=True, slots=True)
class Pending:
    """The request runs, or is queued."""

    running: bool


@dataclass(frozen=True, slots=True)
class FinishedAnswer:
    """The answer; `finish` as chat completions name it."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class CompletionError:
    """Why there is no answer. A `final` error does not change when the request is repeated."""

    status: int
    code: str
    message: str
    final: bool = True


SEAM = "\n\n"
Verdict = Pending | FinishedAnswer | CompletionError
_ENDED = {
    TurnState.FAILED: ("turn_failed", "the turn failed"),
    TurnState.STOPPED: ("turn_stopped", "the turn was stopped"),
    TurnState.ROLLED_BACK: ("turn_stopped", "the turn was rolled back"),
    TurnState.SUSPENDED: ("session_suspended", "the turn crashed the gateway repeatedly; its session is suspended"),
}
_NOT_RUN = {
    "dead": ("message_dead", "the message could not be answered"),
    "withdrawn": ("message_withdrawn", "the message was withdrawn"),
    "expired": ("message_expired", "the message was queued for too long"),
}


def verdict(seen: RequestProgress) -> Verdict:
    """Return the reply for this state."""
    if seen.turn == TurnState.ANSWERED:
        return FinishedAnswer(seen.text, seen.calls, _finish(seen), seen.usage)
    if seen.turn in _ENDED:
        code, text = _ENDED[TurnState(seen.turn)]
        return CompletionError(500, code, seen.text or text)
    if seen.inbox in _NOT_RUN:
        return CompletionError(500, *_NOT_RUN[seen.inbox])
    if seen.approval is not None:
        return CompletionError(409, "approval_required", _approval_message(seen.approval), final=False)
    if seen.suspended:
        return CompletionError(
            409, "session_suspended", "the session is suspended; the next message starts a new one", final=False
        )
    if seen.too_old:
        return CompletionError(
            409,
            "turn_interrupted",
            "the turn was interrupted too long ago to resume by itself; send another message to continue",
            final=False,
        )
    return Pending(running=seen.turn == TurnState.RUNNING)


def _finish(seen: RequestProgress) -> str:
    if seen.calls:
        return "tool_calls"
    return "length" if seen.why == "cut" else "stop"


def _approval_message(request: str) -> str:
    return f"a person must approve first: {request} Repeat this request with its Idempotency-Key after the approval was answered."


def grown(current: str, shown: str) -> str:
    """Return what to send after `current`, so that the client's text ends with `shown`. Sent text cannot be taken back: text
    that does not continue it starts a new paragraph.
    """
    return shown[len(current) :] if shown.startswith(current) else SEAM + shown
