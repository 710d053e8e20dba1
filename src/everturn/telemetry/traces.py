"""The trace of each message: intake, wait, turn (one span for each attempt), model, tool, send. All of a turn's spans are in the
trace of its number; a command's in that of its own number. No message text, no names of people or chats.
"""

from __future__ import annotations

import asyncio
from functools import partial

from everturn.clock import Clock
from everturn.ids import made_at
from everturn.inbox.rows.inbox import Arrival
from everturn.model import Reply, Usage
from everturn.operator.rows.reading import CutOffAttempt, attempt_cut_off
from everturn.store.interface import Store
from everturn.telemetry.spans import WHOLE, Attributes, Span, Tracer
from everturn.turns.rows.turn_values import StartedTurn

REMEMBERED = 1_000
FINAL = frozenset({"answered", "failed", "stopped", "suspended"})
BAD = frozenset({"failed", "suspended", "dead", "unknown", "retried"})


class Traces:
    """Records spans of events after they happened."""

    def __init__(self, tracer: Tracer, store: Store, clock: Clock) -> None:
        self._record = tracer.record
        self._store = store
        self._clock = clock
        self._accepted: dict[int, float] = {}  # when the commit of a message ended whose turn has not begun

    def accepted(self, arrival: Arrival) -> None:
        """Record a stored command, or remember a stored message until its turn starts."""
        now = self._clock.now()
        if arrival.kind == "command":
            about = {"everturn.platform": arrival.source.platform}
            self._record(Span(trace=arrival.id, name="command", start=arrival.at, end=now, place=WHOLE, parent=None,
                              attributes=about))  # fmt: skip
            return
        self._accepted[arrival.id] = now
        if len(self._accepted) > REMEMBERED:
            oldest = next(iter(self._accepted))
            self._intake(oldest, oldest)

    def began(self, begun: StartedTurn) -> None:
        """Record intake and wait of a turn's messages when it starts; a later attempt does not record them again."""
        if begun.attempt > 1:
            reading = self._store.read(attempt_cut_off, begun.turn, begun.attempt - 1)
            reading.add_done_callback(partial(self._found, begun.turn))
        now = self._clock.now()
        for message in begun.inbox if begun.attempt == 1 else ():
            since = self._intake(message, begun.turn)
            if now - since > 0.001:
                self._record(Span(trace=begun.turn, name="wait", start=since, end=now))

    def joined(self, begun: StartedTurn, messages: set[int]) -> None:
        """Record messages that joined a running turn: each has a trace of its own, linked with the turn's."""
        now = self._clock.now()
        for message in sorted(messages):
            since = self._intake(message, message)
            self._record(Span(trace=message, name="wait", start=since, end=now))
            self._record(Span(trace=message, name="message", start=made_at(message), end=now, place=WHOLE, parent=None,
                              attributes=_about(begun), links=(begun.turn,)))  # fmt: skip
            self._record(Span(trace=begun.turn, name="joined", start=now, end=now, parent=_place(begun.attempt),
                              links=(message,)))  # fmt: skip

    def ended(self, begun: StartedTurn, began: float, outcome: str) -> None:
        """Record an attempt that started at `began` (monotonic clock), and the whole message if the outcome is final."""
        now = self._clock.now()
        about = {**_about(begun), "everturn.outcome": outcome}
        self._record(Span(trace=begun.turn, name="turn", start=self._start(began, now), end=now, attributes=about,
                          place=_place(begun.attempt), failed=outcome in BAD))  # fmt: skip
        if outcome in FINAL:
            first = min(begun.inbox, default=begun.turn)
            self._record(Span(trace=begun.turn, name="message", start=made_at(first), end=now, place=WHOLE, parent=None,
                              attributes=about, failed=outcome in BAD))  # fmt: skip

    def model(self, begun: StartedTurn, asked_at: float, usage: Usage, *, failed: bool = False) -> None:
        """Record a model call that started at `asked_at`."""
        used: Attributes = {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        self._step(begun, "model", asked_at, {} if failed else used, failed=failed)

    def tool(self, begun: StartedTurn, name: str, began: float) -> None:
        """Record a tool call that started at `began`."""
        self._step(begun, "tool", began, {"gen_ai.tool.name": name})

    def delivered(self, reply: Reply, began: float, outcome: str) -> None:
        """Record an attempt to deliver an answer. An answer has the number of its turn or its command."""
        if reply.kind != "reply":
            return
        now = self._clock.now()
        about: Attributes = {
            "everturn.platform": reply.source.platform, "everturn.outcome": outcome, "everturn.attempt": reply.attempts + 1,
        }  # fmt: skip
        self._record(Span(trace=reply.id, name="send", start=self._start(began, now), end=now, attributes=about,
                          failed=outcome in BAD))  # fmt: skip

    def sent_by_commit(self, begun: StartedTurn) -> None:
        """Record the delivery of an answer that people read as events: its commit is its delivery."""
        now = self._clock.now()
        about = {"everturn.platform": begun.source.platform, "everturn.outcome": "sent"}
        self._record(Span(trace=begun.turn, name="send", start=now, end=now, attributes=about))

    def _intake(self, message: int, trace: int) -> float:
        """Record a message's intake, if this process accepted it. Returns when the message began to wait."""
        start, end = made_at(message), self._accepted.pop(message, None)
        if end is None:
            return start
        self._record(Span(trace=trace, name="intake", start=start, end=end))
        return end

    def _step(self, begun: StartedTurn, name: str, began: float, about: Attributes, *, failed: bool = False) -> None:
        now = self._clock.now()
        self._record(Span(trace=begun.turn, name=name, start=self._start(began, now), end=now, attributes=about,
                          parent=_place(begun.attempt), failed=failed))  # fmt: skip

    def _start(self, began: float, now: float) -> float:
        return now - (self._clock.monotonic() - began)

    def _found(self, turn: int, reading: asyncio.Future[CutOffAttempt | None]) -> None:
        """Record the attempt that a crash cut off, on behalf of the process that died."""
        found = None if reading.cancelled() or reading.exception() else reading.result()
        if found is not None:
            about: Attributes = {
                "everturn.turn": str(turn), "everturn.attempt": found.attempt, "everturn.outcome": "interrupted",
            }  # fmt: skip
            self._record(Span(trace=turn, name="turn", start=found.started_at, end=max(found.started_at, found.ended_at),
                              attributes=about, place=_place(found.attempt), failed=True))  # fmt: skip


def _place(attempt: int) -> str:
    return f"attempt {attempt}"


def _about(begun: StartedTurn) -> dict[str, str | int | float | bool]:
    return {
        "everturn.turn": str(begun.turn), "everturn.attempt": begun.attempt,
        "everturn.platform": begun.source.platform,
    }  # fmt: skip
