"""What the loops tell whoever watches this gateway: figures for /metrics. Nothing here decides anything, and nothing waits."""

from __future__ import annotations

from collections.abc import Iterable

from everturn.clock import Clock
from everturn.decide.recovery import Verdict
from everturn.ids import made_at
from everturn.meters import Meters
from everturn.model import Usage
from everturn.store.operations.turn_values import Begun

_OUTCOMES = {Verdict.REQUEUE: "returned", Verdict.SUSPEND: "suspended"}


def outcome_of(verdict: Verdict) -> str:
    """What an attempt that was cut off counts as."""
    return _OUTCOMES.get(verdict, "interrupted")


class Observing:
    """Told of everything that happens, once it has happened."""

    def __init__(self, clock: Clock, platforms: Iterable[str]) -> None:
        self.meters = Meters(platforms)
        self._clock = clock

    def arrived(self, platform: str, outcome: str) -> None:
        """A message at the door has its answer."""
        self.meters.messages[platform, outcome] += 1

    def began(self) -> None:
        """A turn runs here."""
        self.meters.running += 1

    def answered(self, begun: Begun) -> None:
        """A turn's answer is committed. Ids say when they were made, in whichever life that was."""
        meters, now = self.meters, self._clock.now()
        meters.turn.add(now - made_at(begun.turn))
        meters.answer.add(now - made_at(begun.inbox[0] if begun.inbox else begun.turn))

    def ended(self, outcome: str | None) -> None:
        """A turn runs here no more; None: it is for the next life to say what became of it."""
        self.meters.running -= 1
        if outcome is not None:
            self.meters.turns[outcome,] += 1

    def heard(self, asked_at: float | None, usage: Usage) -> None:
        """A model that was asked then, by the monotonic clock, has answered; one answer may come as several steps."""
        if asked_at is not None:
            self.meters.model.add(self._clock.monotonic() - asked_at)
        self.used(usage)

    def used(self, usage: Usage) -> None:
        """What models used."""
        meters = self.meters
        meters.requests += usage.requests
        meters.input_tokens += usage.input_tokens
        meters.output_tokens += usage.output_tokens
        meters.cached_tokens += usage.cached_tokens
        meters.cost += usage.cost or 0.0

    def model_failed(self) -> None:
        """A model call failed, and the turn goes on."""
        self.meters.failures += 1

    def tool_used(self, began: float) -> None:
        """A tool that began then has returned."""
        self.meters.tool.add(self._clock.monotonic() - began)

    def delivered(self, platform: str, outcome: str) -> None:
        """A try to deliver has ended."""
        self.meters.deliveries[platform, outcome] += 1

    def recovers(self) -> None:
        """A life that ended without a word is put right."""
        self.meters.lives += 1

    def recovered(self, verdict: str) -> None:
        """A turn of it is put right."""
        self.meters.recovered[verdict,] += 1
