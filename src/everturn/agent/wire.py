"""The wire protocol for agents outside the gateway: requests and replies are lines of JSON, and each request is complete.

An agent needs no memory: between any two lines it, or the gateway, may die. See docs/reference/agent-protocol.md.
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


class WireCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call, as the agent makes it and as it is asked to run it."""

    id: str
    name: str
    arguments: str = ""
    effect: Effect = Effect.ONCE
    ask: str | None = None


class WireRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the transcript."""

    role: str
    content: str
    calls: tuple[WireCall, ...] = ()
    call_id: str | None = None
    unknown: bool = False
    author: str | None = None
    extra: str | None = None
    outcome: str | None = None  # "stopped", "failed" or "skipped" (model.RowOutcome)


class TurnRequest(msgspec.Struct, frozen=True, tag="turn", kw_only=True):
    """Asks for the next response. `own` ends with the last row that was committed in this turn."""

    protocol: int = PROTOCOL
    turn: str
    attempt: int
    session: str
    key: str
    source: SessionSource
    text: str
    note: str | None
    instructions: str
    model: str | None
    history: tuple[WireRow, ...]  # of the conversation, before this turn
    own: tuple[WireRow, ...]  # of this turn, the user's message included


class CallRequest(msgspec.Struct, frozen=True, tag="call", kw_only=True):
    """Asks the agent to run this call now; its start is committed."""

    protocol: int = PROTOCOL
    turn: str
    key: str  # the same for every repetition of this call
    session: str
    source: SessionSource  # the sender and the chat
    call: WireCall


class StreamLine(msgspec.Struct, frozen=True, tag="stream"):
    """Shows the answer's text so far."""

    text: str


class ActiveLine(msgspec.Struct, frozen=True, tag="active"):
    """Reports activity, without anything to show."""


class NotifyLine(msgspec.Struct, frozen=True, tag="notify"):
    """Sends the user a progress notice."""

    text: str


class StepLine(msgspec.Struct, frozen=True, tag="step", kw_only=True):
    """A response with tool calls to run."""

    calls: tuple[WireCall, ...]
    content: str = ""
    extra: str | None = None
    usage: Usage = Usage()


class AnswerLine(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """The answer, which ends the turn."""

    text: str
    extra: str | None = None
    usage: Usage = Usage()
    cut: bool = False


class ResultLine(msgspec.Struct, frozen=True, tag="result"):
    """The result of a call."""

    content: str


class ErrorLine(msgspec.Struct, frozen=True, tag="error"):
    """A failure; the text is for the user. With `retry` the gateway asks again."""

    text: str
    retry: bool = False


Line = StreamLine | ActiveLine | NotifyLine | StepLine | AnswerLine | ResultLine | ErrorLine

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class ProtocolViolation(Unanswerable):
    """The agent broke the wire protocol."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the agent does not follow the agent protocol ({why}); its owner must correct it", "malformed"
        )


def encoded(request: TurnRequest | CallRequest) -> bytes:
    """Encode a request as a line of JSON."""
    return _ENCODER.encode(request) + b"\n"


def decoded(line: bytes) -> Line:
    """Decode a line of a reply. Raises ProtocolViolation, whose message does not contain the line."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(f"a line of its reply has a wrong field: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ProtocolViolation("a line of its reply is not JSON") from None


def rows(messages: Sequence[Message]) -> tuple[WireRow, ...]:
    """Encode transcript rows for the agent."""
    return tuple(
        WireRow(
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


def _calls(calls: Sequence[ToolCall]) -> tuple[WireCall, ...]:
    return tuple(WireCall(each.id, each.name, each.arguments, each.effect) for each in calls)


def call_of(call: ToolCall) -> WireCall:
    """Encode a call for the agent to run."""
    return WireCall(call.id, call.name, call.arguments, call.effect)


def tool_calls(step: StepLine, own: Sequence[Message]) -> list[ToolCall]:
    """The calls of a step. Raises ProtocolViolation unless their ids are new in this turn."""
    used = {call.id for row in own for call in row.calls}
    if not 0 < len(step.calls) <= MOST_CALLS:
        raise ProtocolViolation(f"a step must have 1 to {MOST_CALLS} calls")
    for call in step.calls:
        if not 0 < len(call.id) <= MOST_ID_CHARS or not call.name or not (call.id + call.name).isprintable():
            raise ProtocolViolation(
                f"a call must have a name, and an id of at most {MOST_ID_CHARS} printable characters"
            )
        if call.id in used:
            raise ProtocolViolation("two calls of one turn have the same id")
        used.add(call.id)
    return [ToolCall(each.id, each.name, each.arguments, each.effect, each.ask) for each in step.calls]


def bounded(text: str) -> str:
    """The agent's reason for its failure on one line, cut to a length that can be shown to the user."""
    one_line = " ".join("".join(each if each.isprintable() else " " for each in text).split()).rstrip(".")
    return one_line[:MOST_ERROR_CHARS] or "the agent gave no reason"
