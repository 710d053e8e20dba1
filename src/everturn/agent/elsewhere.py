"""Runs an agent outside the gateway (a program or an HTTP endpoint): each step is committed before the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from everturn.agent import wire
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import Clock
from everturn.errors import ToolFailed, Unanswerable
from everturn.model import Effect, ToolCall, Usage

log = structlog.get_logger()
T = TypeVar("T")
HISTORY_ROWS = 200
CHARS_OF_A_TOKEN = 4
FIRST_WAIT_S, MOST_WAIT_S = 0.5, 30.0
OUTCOME_UNKNOWN = "The outcome of this call is unknown: the agent's program ended while it ran. It was not run again."


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
            if isinstance(reply, wire.AnswerLine):
                return Answer(reply.text, reply.extra, reply.usage, reply.cut)
            own = await turn.own()
            calls = wire.tool_calls(reply, own)
            if sum(bool(row.calls) for row in own) >= self._settings.max_steps:
                raise Unanswerable(f"the agent wanted more than {self._settings.max_steps} steps", "max_steps")
            await turn.step(reply.content, calls, self._run_call, extra=reply.extra, usage=reply.usage)

    async def _response(self) -> wire.StepLine | wire.AnswerLine:
        tries = 0
        while True:
            request = await self._turn_request()
            # Nobody knows what the agent will use: the size of the request is the estimate, until the agent reports its usage.
            await self._turn.calling(Usage(requests=1, input_tokens=len(request) // CHARS_OF_A_TOKEN))
            try:
                return await self._ask(request, (wire.StepLine, wire.AnswerLine))
            except AgentGone as gone:
                tries += 1
                await self._wait(gone, tries)

    async def _wait(self, gone: AgentGone, tries: int) -> None:
        """Journal the failure and wait; the journal counts across restarts, so that the retries are bounded."""
        self._peer.drop()
        wait_s = min(gone.wait_s if gone.wait_s is not None else FIRST_WAIT_S * 2 ** (tries - 1), MOST_WAIT_S)
        failures = await self._turn.failed("agent_gone", str(gone), wait_s)
        log.warning("agent did not answer", turn_id=self._turn.id, error=str(gone), failures=failures)
        if failures > self._settings.retries:
            raise Unanswerable(f"{gone}, {failures} times in a row", "agent_gone")
        await self._clock.sleep(wait_s)

    async def _run_call(self, call: ToolCall, key: str) -> str:
        """Have the agent run one of its own tools. A call that must not be repeated is sent once, even if the agent dies."""
        turn = self._turn
        asked = wire.CallRequest(
            turn=turn.id, key=key, session=turn.session_id, source=turn.source, call=wire.call_of(call)
        )
        request = wire.encoded(asked)
        tries = 0
        while True:
            try:
                return (await self._ask(request, (wire.ResultLine,))).content
            except AgentGone as gone:
                if call.effect is Effect.ONCE:
                    self._peer.drop()
                    raise ToolFailed(OUTCOME_UNKNOWN, unknown=True) from gone
                tries += 1
                await self._wait(gone, tries)
            except Unanswerable as error:
                if isinstance(error, wire.ProtocolViolation):
                    raise
                raise ToolFailed(f"Error: {error}") from error

    async def _turn_request(self) -> bytes:
        turn = self._turn
        own = await turn.own()
        earlier = [row for row in await turn.history(HISTORY_ROWS) if row.seq < own[0].seq] if turn.earlier else []
        return wire.encoded(
            wire.TurnRequest(
                turn=turn.id, attempt=turn.attempt, session=turn.session_id, key=turn.key, source=turn.source,
                text=turn.text, note=turn.note, instructions=self._settings.instructions, model=turn.session.model,
                history=wire.rows(earlier), own=wire.rows(own),
            )
        )  # fmt: skip

    async def _ask(self, request: bytes, wanted: tuple[type[T], ...]) -> T:
        taken = 0
        async with aclosing(self._peer.ask(request)) as reply:
            while True:
                line = await self._next(reply)
                taken += len(line)
                if taken > self._settings.reply_bytes:
                    raise wire.ProtocolViolation(f"a reply is longer than {self._settings.reply_bytes} bytes")
                if line.strip() and (final := await self._take(wire.decoded(line), wanted)) is not None:
                    return final

    async def _take(self, line: wire.Line, wanted: tuple[type[T], ...]) -> T | None:
        """Handle one line of a reply; returns it if it ends the reply."""
        if isinstance(line, wanted):
            return line
        self._turn.active()
        match line:
            case wire.StreamLine(text=text):
                self._turn.stream(text)
            case wire.NotifyLine(text=text):
                await self._turn.notify(text)
            case wire.ErrorLine(text=text, retry=retry):
                raise AgentGone(wire.bounded(text)) if retry else Unanswerable(wire.bounded(text), "agent_error")
            case wire.ActiveLine():
                pass
            case _:
                raise wire.ProtocolViolation("a line of its reply is of the wrong type for this request")
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
