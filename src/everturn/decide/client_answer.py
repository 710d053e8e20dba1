"""What a program is told about its request: not yet, the answer, or why there is none. By the rows, whoever asks again."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.model import ToolCall, TurnState, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as its rows show it now."""

    inbox: str  # the state of its message
    turn: str | None = None  # the state of its turn
    why: str | None = None  # why the turn ended
    text: str = ""  # the answer; or what people were told in its place
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()  # noqa: RUF009  frozen
    asks: str | None = None  # what a person is asked before this can go on
    suspended: bool = False  # its session is set aside, and it waits there
    too_old: bool = False  # its turn was cut off too long ago to go on by itself


@dataclass(frozen=True, slots=True)
class Pending:
    """It is worked on, or waits for its turn."""

    running: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer; `finish` as chat completions name it."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no answer. What is `final` stays so, however often one asks."""

    status: int
    code: str
    message: str
    final: bool = True


SEAM = "\n\n"
Verdict = Pending | Answered | Problem
_ENDED = {
    TurnState.FAILED: ("turn_failed", "the turn failed"),
    TurnState.STOPPED: ("turn_stopped", "the turn was stopped"),
    TurnState.ROLLED_BACK: ("turn_stopped", "the turn was taken back"),
    TurnState.SUSPENDED: ("session_suspended", "the turn ended the gateway again and again; its session is set aside"),
}
_UNHEARD = {
    "dead": ("message_dead", "the message could not be answered"),
    "withdrawn": ("message_withdrawn", "the message was withdrawn"),
    "expired": ("message_expired", "the message waited for too long"),
}


def verdict(seen: Seen) -> Verdict:
    """What to say now."""
    if seen.turn == TurnState.ANSWERED:
        return Answered(seen.text, seen.calls, _finish(seen), seen.usage)
    if seen.turn in _ENDED:
        code, words = _ENDED[TurnState(seen.turn)]
        return Problem(500, code, seen.text or words)
    if seen.inbox in _UNHEARD:
        return Problem(500, *_UNHEARD[seen.inbox])
    if seen.asks is not None:
        return Problem(409, "approval_required", _asks(seen.asks), final=False)
    if seen.suspended:
        return Problem(
            409, "session_suspended", "the session is set aside; the next message begins afresh", final=False
        )
    if seen.too_old:
        return Problem(
            409,
            "turn_interrupted",
            "the turn was cut off too long ago to go on by itself; write again to go on",
            final=False,
        )
    return Pending(running=seen.turn == TurnState.RUNNING)


def _finish(seen: Seen) -> str:
    if seen.calls:
        return "tool_calls"
    return "length" if seen.why == "cut" else "stop"


def _asks(question: str) -> str:
    return f"a person must approve first: {question} Repeat this request with its Idempotency-Key when it was answered."


def grown(current: str, shown: str) -> str:
    """What to send to who has `current`, so that it ends with what is shown. What was sent cannot be taken back: text that
    does not go on from it begins a new paragraph.
    """
    return shown[len(current) :] if shown.startswith(current) else SEAM + shown
