"""One protocol for agents that are elsewhere: requests and replies are lines of JSON, and each request holds everything.

An agent needs no memory: between any two lines it, or the gateway, may die. docs/reference/agent-protocol.md explains it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.errors import Unanswerable
from everturn.model import Effect, Message, SessionSource, ToolCall, Usage

PROTOCOL = 1
MOST_CALLS = 100
MOST_ID_CHARS = 200
MOST_ERROR_CHARS = 500


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call, as the agent asks for it and as it is asked to run it."""

    id: str
    name: str
    arguments: str = ""
    effect: Effect = Effect.ONCE
    ask: str | None = None


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the transcript."""

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    unknown: bool = False
    author: str | None = None
    extra: str | None = None
    outcome: str | None = None  # "stopped", "failed" or "skipped" (model.RowOutcome)


class TurnRequest(msgspec.Struct, frozen=True, tag="turn", kw_only=True):
    """What shall be the next response? `own` ends with the last thing that was committed in this turn."""

    protocol: int = PROTOCOL
    turn: str
    attempt: int
    session: str
    key: str
    source: SessionSource
    words: str
    note: str | None
    instructions: str
    model: str | None
    history: tuple[Row, ...]  # of the conversation, before this turn
    own: tuple[Row, ...]  # of this turn, the user's words included


class CallRequest(msgspec.Struct, frozen=True, tag="call", kw_only=True):
    """Run this call now; its beginning is committed."""

    protocol: int = PROTOCOL
    turn: str
    key: str  # the same for every repetition of this call
    session: str
    source: SessionSource  # who asks, and where
    call: Call


class StreamLine(msgspec.Struct, frozen=True, tag="stream"):
    """Show the answer's text so far."""

    text: str


class ActiveLine(msgspec.Struct, frozen=True, tag="active"):
    """Something moves."""


class TellLine(msgspec.Struct, frozen=True, tag="tell"):
    """Tell the user how it goes."""

    text: str


class StepLine(msgspec.Struct, frozen=True, tag="step", kw_only=True):
    """A response that wants tools to be run."""

    calls: tuple[Call, ...]
    content: str = ""
    extra: str | None = None
    usage: Usage = Usage()


class AnswerLine(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """The end of the turn."""

    text: str
    extra: str | None = None
    usage: Usage = Usage()
    cut: bool = False


class ResultLine(msgspec.Struct, frozen=True, tag="result"):
    """What a call gave."""

    content: str


class ErrorLine(msgspec.Struct, frozen=True, tag="error"):
    """It can not be done; the text is for the user. With `retry` it is asked again."""

    text: str
    retry: bool = False


Line = StreamLine | ActiveLine | TellLine | StepLine | AnswerLine | ResultLine | ErrorLine

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Malformed(Unanswerable):
    """The agent said something that the protocol does not know."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the agent does not keep to the agent protocol ({why}); its owner must correct it", "malformed"
        )


def encoded(request: TurnRequest | CallRequest) -> bytes:
    """A request as a line."""
    return _ENCODER.encode(request) + b"\n"


def decoded(line: bytes) -> Line:
    """A line of a reply. Raises Malformed; what the line held is not in its message."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise Malformed(f"a line of its reply is not as it must be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Malformed("a line of its reply is not JSON") from None


def rows(messages: Sequence[Message]) -> tuple[Row, ...]:
    """Transcript rows as the agent sees them."""
    return tuple(
        Row(
            each.role,
            each.content,
            _calls(each.calls),
            each.call_id,
            each.unknown,
            each.author,
            each.extra,
            each.outcome,
        )
        for each in messages
    )


def _calls(calls: Sequence[ToolCall]) -> tuple[Call, ...]:
    return tuple(Call(each.id, each.name, each.arguments, each.effect) for each in calls)


def call_of(call: ToolCall) -> Call:
    """A call that the agent is asked to run."""
    return Call(call.id, call.name, call.arguments, call.effect)


def tool_calls(step: StepLine, own: Sequence[Message]) -> list[ToolCall]:
    """The calls of a step, checked: their ids are new in this turn."""
    used = {call.id for row in own for call in row.calls}
    if not 0 < len(step.calls) <= MOST_CALLS:
        raise Malformed(f"a step must have 1 to {MOST_CALLS} calls")
    for call in step.calls:
        if not 0 < len(call.id) <= MOST_ID_CHARS or not call.name or not (call.id + call.name).isprintable():
            raise Malformed(f"a call must have a name, and an id of at most {MOST_ID_CHARS} printable characters")
        if call.id in used:
            raise Malformed("two calls of one turn have the same id")
        used.add(call.id)
    return [ToolCall(each.id, each.name, each.arguments, each.effect, each.ask) for each in step.calls]


def bounded(text: str) -> str:
    """What the agent says about its failure, as it is shown to the user."""
    one_line = " ".join("".join(each if each.isprintable() else " " for each in text).split()).rstrip(".")
    return one_line[:MOST_ERROR_CHARS] or "the agent gave no reason"
