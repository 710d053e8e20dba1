"""What is observed of the gateway: counts and traces of its work, and the delay of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial

from everturn.clock import Clock
from everturn.ids import made_at
from everturn.inbox.rows.inbox import Accepted, AcceptOutcome, Arrival
from everturn.model import Reply, Usage
from everturn.operator.rows.reading import CutOffAttempt, attempt_cut_off
from everturn.store.interface import Store
from everturn.telemetry.meters import Histogram, Meters
from everturn.telemetry.spans import WHOLE, Attributes, Span, Tracer
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rules.recovery import RecoveryVerdict

REMEMBERED = 1_000
FINAL = frozenset({"answered", "failed", "stopped", "suspended"})
BAD = frozenset({"failed", "suspended", "dead", "unknown", "retried"})
NOTHING = Usage()
_OUTCOMES = {RecoveryVerdict.REQUEUE: "returned", RecoveryVerdict.SUSPEND: "suspended"}
EVERY_S = 0.25


class Traces:
    """Records spans after they happened: intake, wait, turn (one span for each attempt), model, tool, send.

    All of a turn's spans are in the trace of its number; a command's in that of its own number. No message text, no names of
    people or chats.
    """

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


def outcome_of(verdict: RecoveryVerdict) -> str:
    """Return the label `outcome` of an attempt that was cut off."""
    return _OUTCOMES.get(verdict, "interrupted")


class Observing:
    """Counts and traces events after they happened. Times passed in are of the monotonic clock."""

    def __init__(self, clock: Clock, platforms: Iterable[str], traces: Traces | None = None) -> None:
        self.meters = Meters(platforms)
        self._clock = clock
        self._traces = traces

    def too_long(self, platform: str) -> None:
        """Count a message that was rejected before it reached the store."""
        self.meters.messages[platform, "too_long"] += 1

    def arrived(self, arrival: Arrival, accepted: Accepted | None) -> None:
        """Count a received message by its outcome; None: it could not be stored."""
        outcome = accepted.outcome if accepted is not None else "unavailable"
        self.meters.messages[arrival.source.platform, outcome] += 1
        if self._traces is not None and outcome is AcceptOutcome.ACCEPTED:
            self._traces.accepted(arrival)

    def began(self, begun: StartedTurn) -> None:
        """Count a turn that started here."""
        self.meters.running += 1
        if self._traces is not None:
            self._traces.began(begun)

    def joined(self, before: StartedTurn, begun: StartedTurn) -> None:
        """Trace messages that joined a running turn."""
        if self._traces is not None:
            self._traces.joined(begun, set(begun.inbox) - set(before.inbox))

    def answered(self, begun: StartedTurn) -> None:
        """Record the durations of a turn whose answer is committed. Ids contain when they were made, by whichever process."""
        meters, now = self.meters, self._clock.now()
        meters.turn.add(now - made_at(begun.turn))
        meters.answer.add(now - made_at(begun.inbox[0] if begun.inbox else begun.turn))

    def sent_by_commit(self, begun: StartedTurn) -> None:
        """Count an answer whose commit was its delivery."""
        self.meters.deliveries[begun.source.platform, "sent"] += 1
        if self._traces is not None:
            self._traces.sent_by_commit(begun)

    def ended(self, begun: StartedTurn, began: float, outcome: str | None) -> None:
        """Count a turn that no longer runs here; None: the next process records its outcome."""
        self.meters.running -= 1
        if outcome is None:
            return
        self.meters.turns[outcome,] += 1
        if self._traces is not None:
            self._traces.ended(begun, began, outcome)

    def model_answered(self, begun: StartedTurn, asked_at: float | None, usage: Usage) -> None:
        """Record a model call and its usage; one answer may come as several steps."""
        if asked_at is not None:
            self.meters.model.add(self._clock.monotonic() - asked_at)
            if self._traces is not None:
                self._traces.model(begun, asked_at, usage)
        meters = self.meters
        meters.requests += usage.requests
        meters.input_tokens += usage.input_tokens
        meters.output_tokens += usage.output_tokens
        meters.cached_tokens += usage.cached_tokens
        meters.cost += usage.cost or 0.0

    def model_failed(self, begun: StartedTurn, asked_at: float | None, usage: Usage = NOTHING) -> None:
        """Count a failed model call, and what it used."""
        self.meters.failures += 1
        self.model_answered(begun, None, usage)
        if self._traces is not None and asked_at is not None:
            self._traces.model(begun, asked_at, usage, failed=True)

    def tool_used(self, begun: StartedTurn, name: str, began: float) -> None:
        """Record a tool call that returned."""
        self.meters.tool.add(self._clock.monotonic() - began)
        if self._traces is not None:
            self._traces.tool(begun, name, began)

    def delivered(self, reply: Reply, began: float, outcome: str) -> None:
        """Count an attempt to deliver a reply."""
        self.meters.deliveries[reply.source.platform, outcome] += 1
        if self._traces is not None:
            self._traces.delivered(reply, began, outcome)

    def instance_recovered(self) -> None:
        """Count a dead process that is being recovered."""
        self.meters.instances += 1

    def turn_recovered(self, verdict: str) -> None:
        """Count a recovered turn of a dead process."""
        self.meters.recovered[verdict,] += 1


def watch_delay(delays: Histogram) -> None:
    """Sample the delay of the running loop until it ends; a sample costs two reads of the clock.

    It is the first sign that something blocks the loop, or that the machine is too small.
    """
    loop = asyncio.get_running_loop()

    def sample(due: float) -> None:
        now = time.perf_counter()
        delays.add(max(0.0, now - due))
        loop.call_later(EVERY_S, sample, now + EVERY_S)

    loop.call_later(EVERY_S, sample, time.perf_counter() + EVERY_S)
