"""Run tool calls: commit the start, run, commit the result. After an interruption each call ends by its effect class."""

from __future__ import annotations

from collections.abc import Sequence

from everturn import points
from everturn.agent.interface import JudgeCall, RunTool
from everturn.errors import ToolFailed
from everturn.inbox.rows.joining import steer_waits
from everturn.inbox.rules.busy import NEW_MESSAGE, OUTCOME_UNKNOWN
from everturn.model import Effect, Message, RowOutcome, ToolCall
from everturn.outbox.rules.text import storable, utf16
from everturn.turns.approvals import request_approval
from everturn.turns.attempt import Attempt
from everturn.turns.rows.approvals import May, decided_calls
from everturn.turns.rows.turns import begin_effect, effects_of, finish_effect, skip_calls
from everturn.turns.rules.approval_texts import TOO_LONG
from everturn.turns.rules.exact_text import LONGEST_REQUEST, shown
from everturn.turns.rules.outputs import output_id, shorten


class Effects:
    """Runs the tool calls of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._store = attempt.parts.store

    async def run(self, calls: Sequence[ToolCall], run: RunTool) -> list[Message]:
        """Run the calls of a committed response. Its first call is committed as begun, unless it needs an approval."""
        results: list[Message] = []
        while len(results) < len(calls):
            call, rest = calls[len(results)], calls[len(results) + 1 :]
            results += await (self._act if call.ask is None else self._run_with_approval)(call, run, rest)
        return results

    async def settle(self, rows: Sequence[Message], run: RunTool, judge: JudgeCall) -> list[Message]:
        """Finish the calls of the last response among the turn's rows."""
        response = next((row for row in reversed(rows) if row.calls), None)
        if response is None:
            return []
        answered = {row.call_id for row in rows if row.role == "tool"}
        states = await self._store.read(effects_of, self._attempt.begun.turn)
        calls = [judge(call) for call in response.calls if call.id not in answered]
        asks = any(call.ask is not None for call in calls)
        decided = await self._store.read(decided_calls, self._attempt.begun.turn) if asks else set()
        results: list[Message] = []
        for call in calls:
            if call.id in decided and call.id not in states:
                results += await self._run_with_approval(call, run, ())  # decided: an earlier message does not undo it
            else:
                results += await self._settle(call, states.get(call.id), run)
        return results

    async def _settle(self, call: ToolCall, state: str | None, run: RunTool) -> list[Message]:
        if state is not None and call.effect is Effect.ONCE:
            return await self._record(call, OUTCOME_UNKNOWN, (), unknown=True)
        if state is None and await self._steered():
            result = self._result(call, NEW_MESSAGE, outcome=RowOutcome.SKIPPED)
            await self._store.run(skip_calls, self._attempt.begun, [result])
            return [result]
        if call.ask is not None:  # also of a call that was begun: it may not have needed an approval then
            return await self._run_with_approval(call, run, ())
        self._attempt.called = True
        await self._store.run(begin_effect, self._attempt.begun, call, self._attempt.parts.clock.now())
        return await self._act(call, run, ())

    async def _run_with_approval(self, call: ToolCall, run: RunTool, rest: Sequence[ToolCall]) -> list[Message]:
        """Run a call that needs an approval. Without an answer the turn's task ends here and the turn awaits approval."""
        if utf16(shown(call.ask or "")) > LONGEST_REQUEST:
            return await self._record(call, f"Error: {TOO_LONG}", rest, outcome=RowOutcome.SKIPPED)
        permission = await request_approval(self._attempt, call)
        if permission.may is May.REFUSED:
            return await self._record(call, permission.why, rest, outcome=RowOutcome.SKIPPED)
        self._attempt.called = True
        return await self._act(call, run, rest)

    async def _act(self, call: ToolCall, run: RunTool, rest: Sequence[ToolCall]) -> list[Message]:
        points.reached("effect.begun")
        self._attempt.set_tool(call.name)
        began = self._attempt.active_at
        failure: ToolFailed | None = None
        try:
            content = await run(call, f"{self._attempt.begun.turn}:{call.id}")
        except ToolFailed as error:
            content, failure = str(error), error
        self._attempt.set_tool(None)
        self._attempt.parts.observing.tool_used(self._attempt.begun, call.name, began)
        points.reached("effect.acted")
        unknown = failure is not None and failure.unknown
        outcome = RowOutcome.FAILED if failure is not None and not unknown else None
        return await self._record(call, storable(content), rest, unknown=unknown, outcome=outcome)

    async def _record(
        self,
        call: ToolCall,
        content: str,
        rest: Sequence[ToolCall],
        *,
        unknown: bool = False,
        outcome: RowOutcome | None = None,
    ) -> list[Message]:
        """Commit a result, and with it the start of the next call, or that a new message skips the rest."""
        settings, begun = self._attempt.parts.settings, self._attempt.begun
        short = shorten(content, output_id(begun.turn, call.id), settings.output_chars, settings.output_kept_chars)
        steered = bool(rest) and await self._steered()
        result = self._result(call, short.text, unknown=unknown, outcome=outcome)
        dropped = [self._result(each, NEW_MESSAGE, outcome=RowOutcome.SKIPPED) for each in rest] if steered else []
        then = rest[0] if rest and not steered and rest[0].ask is None else None
        self._attempt.waiting = await self._store.run(finish_effect, begun, result, then, short.whole, dropped)
        points.reached("effect.committed")
        self._attempt.parts.hub.moved(begun.key, begun.turn)
        return [result, *dropped]

    async def _steered(self) -> bool:
        """Whether a queued message joins this turn before its next call; reads nothing while none is queued."""
        return self._attempt.has_waiting() and await self._store.read(steer_waits, self._attempt.begun.key)

    def _result(
        self, call: ToolCall, content: str, *, unknown: bool = False, outcome: RowOutcome | None = None
    ) -> Message:
        return Message(
            role="tool",
            content=content,
            seq=self._attempt.next_seq(),
            call_id=call.id,
            unknown=unknown,
            outcome=outcome,
            at=self._attempt.parts.clock.now(),
        )
