"""One attempt of a turn as the agent sees it: write, act, write. Everything durable of a turn goes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from everturn import points
from everturn.agent.interface import NO_USAGE, RunTool
from everturn.decide.recovery import is_suspect
from everturn.gateway.kept import KeptSession
from everturn.gateway.parts import Parts
from everturn.model import Effect, Message, SessionSource, ToolCall, Usage
from everturn.store.operations.reading import transcript
from everturn.store.operations.transcripts import last_messages
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import begin_effect, calling, effects_of, failed_call, finish_effect, step

OUTCOME_UNKNOWN = "The outcome of this call is unknown: the gateway was interrupted while it ran. It was not run again."
OWN_ROWS = 10_000


class JournaledTurn:
    """The turn context of agent/interface.py, on the store."""

    def __init__(self, parts: Parts, begun: Begun, proven: Callable[[str], None]) -> None:
        self._parts = parts
        self._store = parts.store
        self._begun = begun
        self._seq = begun.seq
        self._proven = proven
        self._suspect = is_suspect(begun.unclean_ends, parts.settings.stuck_after)
        self._acknowledge = begun.note.tail_key if begun.note else None
        self.session = KeptSession(parts.store, begun)
        self.called = False

    @property
    def id(self) -> str:
        """The turn; the same in every attempt."""
        return str(self._begun.turn)

    @property
    def key(self) -> str:
        """The session key."""
        return self._begun.key

    @property
    def session_id(self) -> str:
        """The session the turn belongs to."""
        return self._begun.session_id

    @property
    def attempt(self) -> int:
        """1, or more after an interruption."""
        return self._begun.attempt

    @property
    def source(self) -> SessionSource:
        """Where the (last) message came from."""
        return self._begun.source

    @property
    def words(self) -> str:
        """What the user wrote, unchanged."""
        return "\n".join(self._begun.words)

    @property
    def note(self) -> str | None:
        """Text for the model in this attempt only."""
        return self._begun.note.text if self._begun.note else None

    @property
    def earlier(self) -> int:
        """How many messages the session had before this turn."""
        return self._begun.first_seq - 1

    async def history(self, last: int = 100) -> list[Message]:
        """The newest rows of the transcript, oldest first."""
        return await self._store.read(last_messages, self._begun.session_id, last)

    async def own(self) -> list[Message]:
        """This turn's committed rows; a first attempt without steps has only the words, and costs no look."""
        if self._begun.attempt == 1 and self._seq == self._begun.seq:
            return [Message(role="user", content=self.words, seq=self._seq, turn=self._begun.turn)]
        rows = await self._store.read(transcript, self._begun.session_id, self._begun.first_seq - 1, OWN_ROWS)
        return [row for row in rows if row.turn == self._begun.turn]

    async def joined(self) -> list[Message]:
        """What the user wrote meanwhile and is now part of this turn."""
        return []

    def calling(self, plan: Usage = NO_USAGE) -> asyncio.Future[None]:  # noqa: ARG002
        """Say that a model is about to be called."""
        self.called = True
        future = self._store.run(calling, self._begun.turn)
        future.add_done_callback(_called)
        return future

    def stream(self, text: str) -> None:
        """Show the answer's text so far."""
        self._parts.hub.stream(self._begun.key, self.id, text)

    def active(self) -> None:
        """Something moves, though there is nothing to show."""

    async def tell(self, text: str) -> None:
        """Tell the user how it goes."""

    async def failed(self, kind: str, why: str, wait_s: float) -> int:
        """Journal a model call that failed and will be tried again."""
        return await self._store.run(failed_call, self._begun, kind, why, wait_s, self._parts.clock.now())

    async def step(
        self,
        content: str,
        calls: Sequence[ToolCall],
        run: RunTool,
        *,
        extra: str | None = None,
        usage: Usage = NO_USAGE,
    ) -> list[Message]:
        """Commit a model response, run its calls in order, commit each result."""
        response = Message(
            role="assistant",
            content=content,
            seq=self.next_seq(),
            calls=tuple(calls),
            extra=extra,
            at=self._parts.clock.now(),
        )
        self.called = True
        first = calls[0] if calls else None
        await self._store.run(step, self._begun, response, first, self.acknowledge(), usage, prove_it=self._suspect)
        points.reached("step.committed")
        if self._suspect:
            self._suspect = False
            self._proven(self._begun.key)
        return [
            await self._act(call, run, calls[place + 1] if place + 1 < len(calls) else None)
            for place, call in enumerate(calls)
        ]

    async def settle(self, run: RunTool) -> list[Message]:
        """Bring the calls of the last committed response to an end, each by its class."""
        rows = await self.own()
        response = next((row for row in reversed(rows) if row.calls), None)
        if response is None:
            return []
        answered = {row.call_id for row in rows if row.role == "tool"}
        states = await self._store.read(effects_of, self._begun.turn)
        open_calls = [call for call in response.calls if call.id not in answered]
        return [await self._settle(call, states.get(call.id), run) for call in open_calls]

    async def _settle(self, call: ToolCall, state: str | None, run: RunTool) -> Message:
        if state is not None and call.effect is Effect.ONCE:
            return await self._record(call, OUTCOME_UNKNOWN, None, unknown=True)
        if state is None:
            await self._store.run(begin_effect, self._begun, call, self._parts.clock.now())
        return await self._act(call, run, None)

    async def _act(self, call: ToolCall, run: RunTool, then: ToolCall | None) -> Message:
        points.reached("effect.begun")
        content = await run(call, f"{self._begun.turn}:{call.id}")
        points.reached("effect.acted")
        return await self._record(call, content, then, unknown=False)

    async def _record(self, call: ToolCall, content: str, then: ToolCall | None, *, unknown: bool) -> Message:
        result = Message(
            role="tool",
            content=content,
            seq=self.next_seq(),
            call_id=call.id,
            unknown=unknown,
            at=self._parts.clock.now(),
        )
        await self._store.run(finish_effect, self._begun, result, then)
        points.reached("effect.committed")
        return result

    def next_seq(self) -> int:
        """The place of the next transcript row; the fence makes us its only writer."""
        self._seq += 1
        return self._seq

    def acknowledge(self) -> str | None:
        """The tail that the model has now answered for, once."""
        tail, self._acknowledge = self._acknowledge, None
        return tail


def _called(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and future.exception() is None:
        points.reached("turn.calling")
