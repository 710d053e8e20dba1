"""The turn context that an agent gets for one attempt. Everything durable of a turn goes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from everturn import points
from everturn.agent.interface import NO_USAGE, JudgeCall, RunTool, as_journaled
from everturn.errors import Conflict
from everturn.inbox.attachments import Attachments
from everturn.inbox.rows.request_extras import extras_of_messages
from everturn.model import Message, RequestExtras, SessionSource, ToolCall, Usage
from everturn.operator.rows.reading import transcript
from everturn.outbox.rows.previews import asked_calls
from everturn.outbox.rules.streaming import said_before
from everturn.outbox.rules.text import storable
from everturn.people.rules.names import author_of
from everturn.sessions.rows.transcripts import last_messages
from everturn.turns.attempt import Attempt
from everturn.turns.effects import Effects
from everturn.turns.joining import join_waiting
from everturn.turns.progress import notify
from everturn.turns.rows.spending import Plan
from everturn.turns.rows.turns import calling, calling_with_plan, failed_call, step
from everturn.turns.rules.spending import day_of, spender_of
from everturn.turns.rules.turn_place import without_person
from everturn.turns.session_resources import SessionResources, used_calls

OWN_ROWS = 10_000


class JournaledTurn:
    """The turn context of agent/interface.py, on the store."""

    def __init__(self, attempt: Attempt, proven: Callable[[str], None], attachments: Attachments) -> None:
        self._attachments = attachments
        self._attempt = attempt
        self._parts = attempt.parts
        self._store = attempt.parts.store
        self._effects = Effects(attempt)
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
            author = author_of(begun.source, self._parts.settings.isolation)
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
        self._attempt.start_model_call()
        if self._attempt.marked and not plan.requests:  # stored already, and there is nothing to count
            points.reached("turn.calling")
            future = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return future
        if plan.requests and self._parts.settings.limits.any():
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
        self._parts.hub.stream(self._attempt.begun.key, self.id, text)
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
        self._parts.observing.model_failed(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        number, now = self._parts.ids.next(), self._parts.clock.now()
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
            at=self._parts.clock.now(),
        )
        self._attempt.called = True
        self._parts.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
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
        self._parts.hub.moved(self._attempt.begun.key, self._attempt.begun.turn)
        if self._attempt.suspect:
            self._attempt.suspect = False
            self._proven(self._attempt.begun.key)
        return await self._effects.run(calls, run)

    async def settle(self, run: RunTool, judge: JudgeCall = as_journaled) -> list[Message]:
        """Finish the calls of the last committed response, each by its effect class as `judge` sees it now."""
        return await self._effects.settle(await self.own(), run, judge)


async def restore_earlier_text(attempt: Attempt, turn: JournaledTurn) -> None:
    """Restore in the streaming message what earlier attempts said before they used tools."""
    if attempt.bubble is not None and attempt.begun.attempt > 1:
        asked = await attempt.parts.store.read(asked_calls, attempt.begun.turn)
        attempt.bubble.text = attempt.bubble.before = said_before(await turn.own(), asked, attempt.look)


def _counted(attempt: Attempt, plan: Usage) -> Plan:
    parts, begun = attempt.parts, attempt.begun
    return Plan(
        call=parts.ids.next(),
        tokens=plan.input_tokens + plan.output_tokens,
        cost=plan.cost or 0.0,
        day=day_of(parts.clock.now()),
        spender=spender_of(begun.person, begun.key),
        limits=parts.settings.limits,
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
