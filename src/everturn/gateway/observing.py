"""What the loops tell whoever watches this gateway: figures for /metrics, and spans of each message where traces are wanted.
Nothing here decides anything, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from everturn.clock import Clock
from everturn.decide.recovery import Verdict
from everturn.gateway.traces import Traces
from everturn.ids import made_at
from everturn.meters import Meters
from everturn.model import Reply, Usage
from everturn.store.operations.inbox import Accepted, Arrival, Outcome
from everturn.store.operations.turn_values import Begun

NOTHING = Usage()
_OUTCOMES = {Verdict.REQUEUE: "returned", Verdict.SUSPEND: "suspended"}


def outcome_of(verdict: Verdict) -> str:
    """What an attempt that was cut off counts as."""
    return _OUTCOMES.get(verdict, "interrupted")


class Observing:
    """Told of everything that happens, once it has happened. Times that it is given are of the monotonic clock."""

    def __init__(self, clock: Clock, platforms: Iterable[str], traces: Traces | None = None) -> None:
        self.meters = Meters(platforms)
        self._clock = clock
        self._traces = traces

    def too_long(self, platform: str) -> None:
        """A message was refused before the store was asked."""
        self.meters.messages[platform, "too_long"] += 1

    def arrived(self, arrival: Arrival, accepted: Accepted | None) -> None:
        """A message at the door has its answer; None: it could not be stored."""
        outcome = accepted.outcome if accepted is not None else "unavailable"
        self.meters.messages[arrival.source.platform, outcome] += 1
        if self._traces is not None and outcome is Outcome.ACCEPTED:
            self._traces.accepted(arrival)

    def began(self, begun: Begun) -> None:
        """A turn runs here."""
        self.meters.running += 1
        if self._traces is not None:
            self._traces.began(begun)

    def joined(self, before: Begun, begun: Begun) -> None:
        """Messages became part of it."""
        if self._traces is not None:
            self._traces.joined(begun, set(begun.inbox) - set(before.inbox))

    def answered(self, begun: Begun) -> None:
        """A turn's answer is committed. Ids say when they were made, in whichever life that was."""
        meters, now = self.meters, self._clock.now()
        meters.turn.add(now - made_at(begun.turn))
        meters.answer.add(now - made_at(begun.inbox[0] if begun.inbox else begun.turn))

    def told(self, begun: Begun) -> None:
        """The commit of its answer was its delivery."""
        self.meters.deliveries[begun.source.platform, "sent"] += 1
        if self._traces is not None:
            self._traces.told(begun)

    def ended(self, begun: Begun, began: float, outcome: str | None) -> None:
        """A turn runs here no more; None: it is for the next life to say what became of it."""
        self.meters.running -= 1
        if outcome is None:
            return
        self.meters.turns[outcome,] += 1
        if self._traces is not None:
            self._traces.ended(begun, began, outcome)

    def heard(self, begun: Begun, asked_at: float | None, usage: Usage) -> None:
        """A model that was asked then has answered; one answer may come as several steps."""
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

    def model_failed(self, begun: Begun, asked_at: float | None, usage: Usage = NOTHING) -> None:
        """A model call failed; what it used all the same is counted."""
        self.meters.failures += 1
        self.heard(begun, None, usage)
        if self._traces is not None and asked_at is not None:
            self._traces.model(begun, asked_at, usage, failed=True)

    def tool_used(self, begun: Begun, name: str, began: float) -> None:
        """A tool that began then has returned."""
        self.meters.tool.add(self._clock.monotonic() - began)
        if self._traces is not None:
            self._traces.tool(begun, name, began)

    def delivered(self, reply: Reply, began: float, outcome: str) -> None:
        """A try to deliver has ended."""
        self.meters.deliveries[reply.source.platform, outcome] += 1
        if self._traces is not None:
            self._traces.delivered(reply, began, outcome)

    def recovers(self) -> None:
        """A life that ended without a word is put right."""
        self.meters.lives += 1

    def recovered(self, verdict: str) -> None:
        """A turn of it is put right."""
        self.meters.recovered[verdict,] += 1
