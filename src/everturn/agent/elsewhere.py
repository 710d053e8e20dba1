"""An agent that is elsewhere, in a program or behind an address: asked step by step, each step committed before the next."""

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


class Gone(Exception):
    """The agent went away, or kept silent, before its reply was whole; asking again may help. The text is for people."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s  # what it asked for itself


class Peer(Protocol):
    """The agent for one attempt of a turn."""

    def ask(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """The lines of its reply. Raises Gone, or Unanswerable when asking again would not help."""
        ...

    def drop(self) -> None:
        """It is not to be trusted with the next request: begin anew with that."""
        ...

    def leave(self) -> None:
        """The attempt is over. Does not wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """The numbers for an agent that is elsewhere."""

    instructions: str = ""
    max_steps: int = 50
    retries: int = 5
    stall_s: float = 120
    reply_bytes: int = 16_000_000
    line_bytes: int = 4_000_000


class WireAgent:
    """Drives an agent through the wire protocol. What is durable is here; the agent may die between any two lines."""

    def __init__(self, connect: Callable[[], Peer], clock: Clock, settings: WireSettings) -> None:
        self._connect = connect
        self._clock = clock
        self._settings = settings

    async def run(self, turn: TurnContext) -> Answer:
        """Ask for a response, commit it, have its calls run, ask again."""
        peer = self._connect()
        try:
            return await _Asking(turn, peer, self._clock, self._settings).run()
        except BaseException:
            peer.drop()
            raise
        finally:
            peer.leave()


class _Asking:
    """One attempt."""

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
            # Nobody knows what the agent will use: what it is sent is a fair guess, until it says so itself.
            await self._turn.calling(Usage(requests=1, input_tokens=len(request) // CHARS_OF_A_TOKEN))
            try:
                return await self._ask(request, (wire.StepLine, wire.AnswerLine))
            except Gone as gone:
                tries += 1
                await self._wait(gone, tries)

    async def _wait(self, gone: Gone, tries: int) -> None:
        """Journal the failure and wait; the journal counts over restarts, so that nobody asks for ever."""
        self._peer.drop()
        wait_s = min(gone.wait_s if gone.wait_s is not None else FIRST_WAIT_S * 2 ** (tries - 1), MOST_WAIT_S)
        failures = await self._turn.failed("agent_gone", str(gone), wait_s)
        log.warning("agent did not answer", turn=self._turn.id, why=str(gone), failures=failures)
        if failures > self._settings.retries:
            raise Unanswerable(f"{gone}, {failures} times in a row", "agent_gone")
        await self._clock.sleep(wait_s)

    async def _run_call(self, call: ToolCall, key: str) -> str:
        """The agent runs its own tools. One that must not be repeated is asked for once, whatever becomes of the agent."""
        turn = self._turn
        asked = wire.CallRequest(
            turn=turn.id, key=key, session=turn.session_id, source=turn.source, call=wire.call_of(call)
        )
        request = wire.encoded(asked)
        tries = 0
        while True:
            try:
                return (await self._ask(request, (wire.ResultLine,))).content
            except Gone as gone:
                if call.effect is Effect.ONCE:
                    self._peer.drop()
                    raise ToolFailed(OUTCOME_UNKNOWN, unknown=True) from gone
                tries += 1
                await self._wait(gone, tries)
            except Unanswerable as error:
                if isinstance(error, wire.Malformed):
                    raise
                raise ToolFailed(f"Error: {error}") from error

    async def _turn_request(self) -> bytes:
        turn = self._turn
        own = await turn.own()
        earlier = [row for row in await turn.history(HISTORY_ROWS) if row.seq < own[0].seq] if turn.earlier else []
        return wire.encoded(
            wire.TurnRequest(
                turn=turn.id, attempt=turn.attempt, session=turn.session_id, key=turn.key, source=turn.source,
                words=turn.words, note=turn.note, instructions=self._settings.instructions, model=turn.session.model,
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
                    raise wire.Malformed(f"a reply is longer than {self._settings.reply_bytes} bytes")
                if line.strip() and (final := await self._take(wire.decoded(line), wanted)) is not None:
                    return final

    async def _take(self, line: wire.Line, wanted: tuple[type[T], ...]) -> T | None:
        """The end of a reply, if this is it."""
        if isinstance(line, wanted):
            return line
        self._turn.active()
        match line:
            case wire.StreamLine(text=text):
                self._turn.stream(text)
            case wire.TellLine(text=text):
                await self._turn.tell(text)
            case wire.ErrorLine(text=text, retry=retry):
                raise Gone(wire.bounded(text)) if retry else Unanswerable(wire.bounded(text), "agent_error")
            case wire.ActiveLine():
                pass
            case _:
                raise wire.Malformed("a line of its reply does not belong there")
        return None

    async def _next(self, reply: AsyncGenerator[bytes, None]) -> bytes:
        """The next line, within the time that the agent may be silent."""
        reading = asyncio.ensure_future(anext(reply))
        timer = asyncio.ensure_future(self._clock.sleep(self._settings.stall_s))
        try:
            await asyncio.wait({reading, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Gone(f"the agent said nothing for {self._settings.stall_s:.0f} seconds")
            return reading.result()
        except StopAsyncIteration:
            raise Gone("the agent's reply ended before it was whole") from None
        finally:
            timer.cancel()
            if reading.cancel():
                await asyncio.wait({reading})
