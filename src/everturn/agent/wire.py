"""Agents outside the gateway, a program or an HTTP endpoint: the wire protocol, and what drives it for a turn.

Requests and replies are lines of JSON, and each request is complete. An agent needs no memory: between any two lines it, or the
gateway, may die; each step is committed before the next. See docs/reference/agent-protocol.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import structlog

from everturn.agent.interface import Answer, TurnContext
from everturn.clock import Clock
from everturn.errors import ToolFailed, Unanswerable
from everturn.model import Effect, Message, SessionSource, ToolCall, Usage
from everturn.pauses import grown_s

PROTOCOL = 1
MOST_CALLS = 100
MOST_ID_CHARS = 200
MOST_ERROR_CHARS = 500
_ENCODER = msgspec.json.Encoder()
log = structlog.get_logger()
T = TypeVar("T")
HISTORY_ROWS = 200
CHARS_OF_A_TOKEN = 4
FIRST_WAIT_S, MOST_WAIT_S = 0.5, 30.0
OUTCOME_UNKNOWN = "The outcome of this call is unknown: the agent's program ended while it ran. It was not run again."


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


class AgentGone(Exception):
    """The agent disconnected or went silent before its reply was complete; a retry may help. The text is for people."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s  # the delay that the agent asked for


class Peer(Protocol):
    """The connection to the agent for one attempt of a turn."""

    def ask(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the lines of the reply. Raises AgentGone, or Unanswerable when a retry would not help."""
        ...

    def drop(self) -> None:
        """Discard the connection in an unknown state; the next request opens another."""
        ...

    def leave(self) -> None:
        """End the connection after the attempt. Does not wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Limits and instructions of an agent outside the gateway."""

    instructions: str = ""
    max_steps: int = 50
    retries: int = 5
    stall_s: float = 120
    reply_bytes: int = 16_000_000
    line_bytes: int = 4_000_000


class WireAgent:
    """Drives an agent through the wire protocol. All durable state is here; the agent may die between any two lines."""

    def __init__(self, connect: Callable[[], Peer], clock: Clock, settings: WireSettings) -> None:
        self._connect = connect
        self._clock = clock
        self._settings = settings

    async def run(self, turn: TurnContext) -> Answer:
        """Ask for a response, commit it, have its calls run, and ask again until there is an answer."""
        peer = self._connect()
        try:
            return await _Asking(turn, peer, self._clock, self._settings).run()
        except BaseException:
            peer.drop()
            raise
        finally:
            peer.leave()


class _Asking:
    """One attempt of a turn."""

    def __init__(self, turn: TurnContext, peer: Peer, clock: Clock, settings: WireSettings) -> None:
        self._turn = turn
        self._peer = peer
        self._clock = clock
        self._settings = settings

    async def run(self) -> Answer:
        turn = self._turn
        if turn.attempt > 1:
            await turn.settle(self._run_call)
        while True:
            await turn.joined()
            reply = await self._response()
            if isinstance(reply, AnswerLine):
                return Answer(reply.text, reply.extra, reply.usage, reply.cut)
            own = await turn.own()
            calls = tool_calls(reply, own)
            if sum(bool(row.calls) for row in own) >= self._settings.max_steps:
                raise Unanswerable(f"the agent wanted more than {self._settings.max_steps} steps", "max_steps")
            await turn.step(reply.content, calls, self._run_call, extra=reply.extra, usage=reply.usage)

    async def _response(self) -> StepLine | AnswerLine:
        tries = 0
        while True:
            request = await self._turn_request()
            # Nobody knows what the agent will use: the size of the request is the estimate, until the agent reports its usage.
            await self._turn.calling(Usage(requests=1, input_tokens=len(request) // CHARS_OF_A_TOKEN))
            try:
                return await self._ask(request, (StepLine, AnswerLine))
            except AgentGone as gone:
                tries += 1
                await self._wait(gone, tries)

    async def _wait(self, gone: AgentGone, tries: int) -> None:
        """Journal the failure and wait; the journal counts across restarts, so that the retries are bounded."""
        self._peer.drop()
        grown = grown_s(tries, FIRST_WAIT_S, MOST_WAIT_S)
        wait_s = grown if gone.wait_s is None else min(gone.wait_s, MOST_WAIT_S)
        failures = await self._turn.failed("agent_gone", str(gone), wait_s)
        log.warning("agent did not answer", turn_id=self._turn.id, error=str(gone), failures=failures)
        if failures > self._settings.retries:
            raise Unanswerable(f"{gone}, {failures} times in a row", "agent_gone")
        await self._clock.sleep(wait_s)

    async def _run_call(self, call: ToolCall, key: str) -> str:
        """Have the agent run one of its own tools. A call that must not be repeated is sent once, even if the agent dies."""
        turn = self._turn
        asked = CallRequest(turn=turn.id, key=key, session=turn.session_id, source=turn.source, call=call_of(call))
        request = encoded(asked)
        tries = 0
        while True:
            try:
                return (await self._ask(request, (ResultLine,))).content
            except AgentGone as gone:
                if call.effect is Effect.ONCE:
                    self._peer.drop()
                    raise ToolFailed(OUTCOME_UNKNOWN, unknown=True) from gone
                tries += 1
                await self._wait(gone, tries)
            except Unanswerable as error:
                if isinstance(error, ProtocolViolation):
                    raise
                raise ToolFailed(f"Error: {error}") from error

    async def _turn_request(self) -> bytes:
        turn = self._turn
        own = await turn.own()
        earlier = [row for row in await turn.history(HISTORY_ROWS) if row.seq < own[0].seq] if turn.earlier else []
        return encoded(
            TurnRequest(
                turn=turn.id, attempt=turn.attempt, session=turn.session_id, key=turn.key, source=turn.source,
                text=turn.text, note=turn.note, instructions=self._settings.instructions, model=turn.session.model,
                history=rows(earlier), own=rows(own),
            )
        )  # fmt: skip

    async def _ask(self, request: bytes, wanted: tuple[type[T], ...]) -> T:
        taken = 0
        async with aclosing(self._peer.ask(request)) as reply:
            while True:
                line = await self._next(reply)
                taken += len(line)
                if taken > self._settings.reply_bytes:
                    raise ProtocolViolation(f"a reply is longer than {self._settings.reply_bytes} bytes")
                if line.strip() and (final := await self._take(decoded(line), wanted)) is not None:
                    return final

    async def _take(self, line: Line, wanted: tuple[type[T], ...]) -> T | None:
        """Handle one line of a reply; returns it if it ends the reply."""
        if isinstance(line, wanted):
            return line
        self._turn.active()
        match line:
            case StreamLine(text=text):
                self._turn.stream(text)
            case NotifyLine(text=text):
                await self._turn.notify(text)
            case ErrorLine(text=text, retry=retry):
                raise AgentGone(bounded(text)) if retry else Unanswerable(bounded(text), "agent_error")
            case ActiveLine():
                pass
            case _:
                raise ProtocolViolation("a line of its reply is of the wrong type for this request")
        return None

    async def _next(self, reply: AsyncGenerator[bytes, None]) -> bytes:
        """Read the next line of the reply, within the time that the agent may be silent."""
        reading = asyncio.ensure_future(anext(reply))
        timer = asyncio.ensure_future(self._clock.sleep(self._settings.stall_s))
        try:
            await asyncio.wait({reading, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise AgentGone(f"the agent sent nothing for {self._settings.stall_s:.0f} seconds")
            return reading.result()
        except StopAsyncIteration:
            raise AgentGone("the agent's reply ended before it was complete") from None
        finally:
            timer.cancel()
            if reading.cancel():
                await asyncio.wait({reading})
