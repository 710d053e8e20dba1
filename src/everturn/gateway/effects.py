"""Running tool calls: write, act, write. Each call ends by its class, whatever an interruption left of it."""

from __future__ import annotations

from collections.abc import Sequence

from everturn import points
from everturn.agent.interface import RunTool
from everturn.decide.outputs import output_id, shorten
from everturn.decide.text import storable
from everturn.gateway.asking import ask
from everturn.gateway.attempt import Attempt
from everturn.model import Effect, Message, ToolCall
from everturn.store.operations.approvals import May
from everturn.store.operations.turns import begin_effect, effects_of, finish_effect

OUTCOME_UNKNOWN = "The outcome of this call is unknown: the gateway was interrupted while it ran. It was not run again."


class Effects:
    """The calls of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._store = attempt.parts.store

    async def run(self, calls: Sequence[ToolCall], run: RunTool) -> list[Message]:
        """Run the calls of a response that was just committed with the beginning of its first call, if that asks nobody."""
        following = [call if call.ask is None else None for call in calls[1:]]
        return [
            await (self._act if call.ask is None else self._ask)(call, run, then)
            for call, then in zip(calls, [*following, None], strict=True)
        ]

    async def settle(self, rows: Sequence[Message], run: RunTool) -> list[Message]:
        """Bring the calls of the last response among the turn's rows to an end."""
        response = next((row for row in reversed(rows) if row.calls), None)
        if response is None:
            return []
        answered = {row.call_id for row in rows if row.role == "tool"}
        states = await self._store.read(effects_of, self._attempt.begun.turn)
        open_calls = [call for call in response.calls if call.id not in answered]
        return [await self._settle(call, states.get(call.id), run) for call in open_calls]

    async def _settle(self, call: ToolCall, state: str | None, run: RunTool) -> Message:
        if state is not None and call.effect is Effect.ONCE:
            return await self._record(call, OUTCOME_UNKNOWN, None, unknown=True)
        if state is None and call.ask is not None:
            return await self._ask(call, run, None)
        self._attempt.called = True
        await self._store.run(begin_effect, self._attempt.begun, call, self._attempt.parts.clock.now())
        return await self._act(call, run, None)

    async def _ask(self, call: ToolCall, run: RunTool, then: ToolCall | None) -> Message:
        """A call that begins only when a person has said yes; the turn unwinds here until there is an answer."""
        permission = await ask(self._attempt, call)
        if permission.may is May.REFUSED:
            return await self._record(call, permission.why, then, unknown=False)
        self._attempt.called = True
        return await self._act(call, run, then)

    async def _act(self, call: ToolCall, run: RunTool, then: ToolCall | None) -> Message:
        points.reached("effect.begun")
        content = storable(await run(call, f"{self._attempt.begun.turn}:{call.id}"))
        points.reached("effect.acted")
        return await self._record(call, content, then, unknown=False)

    async def _record(self, call: ToolCall, content: str, then: ToolCall | None, *, unknown: bool) -> Message:
        settings, turn = self._attempt.parts.settings, self._attempt.begun.turn
        shown = shorten(content, output_id(turn, call.id), settings.output_chars, settings.output_kept_chars)
        result = Message(
            role="tool",
            content=shown.text,
            seq=self._attempt.next_seq(),
            call_id=call.id,
            unknown=unknown,
            at=self._attempt.parts.clock.now(),
        )
        await self._store.run(finish_effect, self._attempt.begun, result, then, shown.whole)
        points.reached("effect.committed")
        return result
