"""What is observed of the gateway: its work, and the delay of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from everturn.clock import Clock
from everturn.ids import made_at
from everturn.inbox.rows.inbox import Accepted, AcceptOutcome, Arrival
from everturn.model import Reply, Usage
from everturn.telemetry.meters import Histogram, Meters
from everturn.telemetry.traces import Traces
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rules.recovery import RecoveryVerdict

NOTHING = Usage()
_OUTCOMES = {RecoveryVerdict.REQUEUE: "returned", RecoveryVerdict.SUSPEND: "suspended"}


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


# Measures event loop delay: the first sign that something blocks the loop, or that the machine is too small.


EVERY_S = 0.25


def watch_delay(delays: Histogram) -> None:
    """Sample the delay of the running loop until it ends; a sample costs two reads of the clock."""
    loop = asyncio.get_running_loop()

    def sample(due: float) -> None:
        now = time.perf_counter()
        delays.add(max(0.0, now - due))
        loop.call_later(EVERY_S, sample, now + EVERY_S)

    loop.call_later(EVERY_S, sample, time.perf_counter() + EVERY_S)
