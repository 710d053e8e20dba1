"""The journal of a turn: every committed step is returned instead of done again, and every tool call keeps its promise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from everturn import points
from everturn.agent.interface import NO_USAGE, JudgeCall, RunTool, as_journaled
from everturn.errors import Conflict, ToolFailed
from everturn.inbox.attachments import Attachments
from everturn.inbox.rows.attachments import extras_of_messages
from everturn.inbox.rows.steering import steer_waits
from everturn.inbox.rules import NEW_MESSAGE, OUTCOME_UNKNOWN
from everturn.model import Effect, Message, RequestExtras, RowOutcome, SessionSource, ToolCall, Usage
from everturn.outbox.rules.text import storable, utf16
from everturn.people.rules.access import author_of
from everturn.sessions.rows.entries import last_messages, transcript
from everturn.turns.approvals import request_approval
from everturn.turns.attempt import Attempt, SessionResources, join_waiting, notify, used_calls
from everturn.turns.rows.approvals import May, decided_calls
from everturn.turns.rows.spending import Plan
from everturn.turns.rows.turns import (
    begin_effect,
    calling,
    calling_with_plan,
    effects_of,
    failed_call,
    finish_effect,
    skip_calls,
    step,
)
from everturn.turns.rules.approvals import LONGEST_REQUEST, shown
from everturn.turns.rules.spending import day_of, spender_of
from everturn.turns.rules.turn_texts import TOO_LONG
from everturn.turns.rules.turns import output_id, shorten, without_person

OWN_ROWS = 10_000


class JournaledTurn:
    """The turn context of agent/interface.py, on the store."""

    def __init__(self, attempt: Attempt, proven: Callable[[str], None], attachments: Attachments) -> None:
        self._attachments = attachments
        self._attempt = attempt
        self._env = attempt.env
        self._store = attempt.env.store
        self._proven = proven
        self.session = SessionResources(attempt)

    @property
    def id(self) -> str:
        """The id of the turn, the same in every attempt."""
        return str(self._attempt.begun.turn)

    @property
    def key(self) -> str:
        """The session key."""
        return self._attempt.begun.key

    @property
    def session_id(self) -> str:
        """The session the turn belongs to."""
        return self._attempt.begun.session_id

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1, or more after an interruption."""
        return self._attempt.begun.attempt

    @property
    def source(self) -> SessionSource:
        """Where the (last) message came from, with its sender if the turn has only one."""
        begun = self._attempt.begun
        return without_person(begun.source) if len(begun.authors) > 1 else begun.source

    @property
    def text(self) -> str:
        """What the user wrote, unchanged."""
        return "\n".join(self._attempt.begun.texts)

    @property
    def note(self) -> str | None:
        """Text for the model in this attempt only."""
        return self._attempt.begun.note.text if self._attempt.begun.note else None

    @property
    def earlier(self) -> int:
        """How many messages the session had before this turn."""
        return self._attempt.begun.first_seq - 1

    async def history(self, last: int = 100) -> list[Message]:
        """The newest rows of the transcript, oldest first."""
        return await self._store.read(last_messages, self._attempt.begun.session_id, last)

    async def own(self) -> list[Message]:
        """This turn's committed rows. A first attempt without steps has only the user's message and reads nothing."""
        begun = self._attempt.begun
        if begun.attempt == 1 and self._attempt.seq == begun.first_seq:
            author = author_of(begun.source, self._env.settings.isolation)
            return [Message(role="user", content=self.text, seq=self._attempt.seq, author=author, turn=begun.turn)]
        rows = await self._store.read(
            transcript, self._attempt.begun.session_id, self._attempt.begun.first_seq - 1, OWN_ROWS
        )
        return [row for row in rows if row.turn == self._attempt.begun.turn]

    async def extras(self) -> RequestExtras:
        """The request extras that a program sent with its message."""
        return await self._store.read(extras_of_messages, self._attempt.begun.inbox)

    async def joined(self) -> list[Message]:
        """Messages that the user wrote meanwhile and that are now part of this turn."""
        await join_waiting(self._attempt)
        await self._attachments.settle(self._attempt, self)
        return self._attempt.pop_joined()

    def calling(self, plan: Usage = NO_USAGE) -> asyncio.Future[None]:
        """Store that a model is about to be called; with spending limits, count first what it may use."""
        self._attempt.called = True
        self._attempt.asked_at = self._env.clock.monotonic()
        if self._attempt.marked and not plan.requests:  # stored already, and there is nothing to count
            points.reached("turn.calling")
            future = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return future
        if plan.requests and self._env.settings.limits.any():
            future = self._store.run(calling_with_plan, self._attempt.begun, _counted(self._attempt, plan))
        else:  # a call that is paid for is stored each time, so that it is counted if it is cut off
            future = self._store.run(calling, self._attempt.begun, plan)
        future.add_done_callback(partial(_called, self._attempt))
        return future

    def stream(self, text: str) -> None:
        """Show the answer's text so far."""
        self._attempt.mark_active()
        if not self._attempt.record_stream(text):
            return
        self._env.hub.stream(self._attempt.begun.key, self.id, text)
        if self._attempt.bubble is not None:
            self._attempt.bubble.say(text)

    def active(self) -> None:
        """Record activity that has nothing to show, for the inactivity limits."""
        self._attempt.mark_active()

    async def notify(self, text: str) -> None:
        """Send the user a progress notice."""
        await notify(self._attempt, storable(text))

    async def failed(self, kind: str, why: str, wait_s: float, usage: Usage = NO_USAGE) -> int:
        """Journal a model call that failed and will be tried again, with what it used."""
        self._attempt.mark_active()
        self._env.observing.model_failed(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        number, now = self._env.instance.ids.next(), self._env.clock.now()
        return await self._store.run(failed_call, self._attempt.begun, number, kind, why, wait_s, now, usage)

    async def step(
        self,
        content: str,
        calls: Sequence[ToolCall],
        run: RunTool,
        *,
        extra: str | None = None,
        usage: Usage = NO_USAGE,
    ) -> list[Message]:
        """Commit a model response, run its calls in order, commit each result. An id names one call of the turn: what was
        approved, begun or answered under it holds for that call, which a later attempt may repeat.
        """
        used = self._attempt.used if self._attempt.used is not None else await used_calls(self._attempt)
        mine: dict[str, ToolCall] = {}
        for call in calls:
            known = mine.get(call.id) or used.get(call.id)
            if known is not None and (known.name, known.arguments) != (call.name, call.arguments):
                raise _used_twice(call.id)
            mine[call.id] = call
        response = Message(
            role="assistant",
            content=storable(content),
            seq=self._attempt.next_seq(),
            calls=tuple(calls),
            extra=extra,
            at=self._env.clock.now(),
        )
        self._attempt.called = True
        self._env.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        first = calls[0] if calls and calls[0].ask is None else None
        self._attempt.waiting = await self._store.run(
            step,
            self._attempt.begun,
            response,
            first,
            self._attempt.pop_tail_key(),
            usage,
            prove_it=self._attempt.suspect,
        )
        used.update(mine)
        self._attempt.mark_active()
        if self._attempt.bubble is not None and calls:
            self._attempt.bubble.keep_text(response.content)
        points.reached("step.committed")
        self._env.hub.moved(self._attempt.begun.key, self._attempt.begun.turn)
        if self._attempt.suspect:
            self._attempt.suspect = False
            self._proven(self._attempt.begun.key)
        return await Effects(self._attempt).run(calls, run)

    async def settle(self, run: RunTool, judge: JudgeCall = as_journaled) -> list[Message]:
        """Finish the calls of the last committed response, each by its effect class as `judge` sees it now."""
        return await Effects(self._attempt).settle(await self.own(), run, judge)


def _counted(attempt: Attempt, plan: Usage) -> Plan:
    env, begun = attempt.env, attempt.begun
    return Plan(
        call=env.instance.ids.next(),
        tokens=plan.input_tokens + plan.output_tokens,
        cost=plan.cost or 0.0,
        day=day_of(env.clock.now()),
        spender=spender_of(begun.person, begun.key),
        limits=env.settings.limits,
        asked=plan,
    )


def _used_twice(call_id: str) -> Conflict:
    return Conflict(
        f"the call id {call_id!r} was used for another call of this turn: give each call of a turn an id of its own"
    )


def _called(attempt: Attempt, future: asyncio.Future[None]) -> None:
    if not future.cancelled() and future.exception() is None:
        attempt.marked = True
        points.reached("turn.calling")


class Effects:
    """Runs the tool calls of one attempt: commits the start, runs, commits the result. After an interruption each call ends by
    its effect class.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._store = attempt.env.store

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
        await self._store.run(begin_effect, self._attempt.begun, call, self._attempt.env.clock.now())
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
        self._attempt.env.observing.tool_used(self._attempt.begun, call.name, began)
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
        settings, begun = self._attempt.env.settings, self._attempt.begun
        short = shorten(content, output_id(begun.turn, call.id), settings.output_chars, settings.output_kept_chars)
        steered = bool(rest) and await self._steered()
        result = self._result(call, short.text, unknown=unknown, outcome=outcome)
        dropped = [self._result(each, NEW_MESSAGE, outcome=RowOutcome.SKIPPED) for each in rest] if steered else []
        then = rest[0] if rest and not steered and rest[0].ask is None else None
        self._attempt.waiting = await self._store.run(finish_effect, begun, result, then, short.whole, dropped)
        points.reached("effect.committed")
        self._attempt.env.hub.moved(begun.key, begun.turn)
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
            at=self._attempt.env.clock.now(),
        )
