"""Spending limits: the limits, the name and day a call is counted for, and the texts for a limit that is reached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

EVERYBODY = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimits:
    """How much may be used: tokens, and money where prices are known, in the model's currency. 0 is no limit."""

    turn_tokens: int = 0
    person_tokens_day: int = 0
    total_tokens_day: int = 0
    turn_cost: float = 0.0
    person_cost_day: float = 0.0
    total_cost_day: float = 0.0

    def by_day(self) -> bool:
        """Whether a day's spending has to be counted."""
        return any((self.person_tokens_day, self.total_tokens_day, self.person_cost_day, self.total_cost_day))

    def any(self) -> bool:
        """Whether anything has to be counted before a call."""
        return self.by_day() or any((self.turn_tokens, self.turn_cost))


def day_of(at: float) -> str:
    """The day that a call is counted for, by UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def spender_of(person: str | None, key: str) -> str:
    """The name under which a person's spending is counted; where nobody is known, the conversation's."""
    return f"person:{person}" if person else f"key:{key}"


def lost_call(tokens: int) -> str:
    """The text about a model call whose response was never stored."""
    return f"the attempt ended before its response was stored; it is counted with {tokens:,} tokens, an estimate"


def passes_turn(limits: SpendingLimits, tokens: int, cost: float) -> str | None:
    """The text why one more call would pass a limit of the turn; None when it would not."""
    if 0 < limits.turn_tokens < tokens:
        return f"this task has reached its limit of {limits.turn_tokens:,} tokens"
    if 0 < limits.turn_cost < cost:
        return f"this task has reached its limit of {limits.turn_cost:,.2f} in costs"
    return None


def passes_day(limits: SpendingLimits, spender: str, tokens: int, cost: float) -> str | None:
    """The text why one more call would pass a limit of the day; None when it would not."""
    if spender == EVERYBODY:
        most, dearest, whose = limits.total_tokens_day, limits.total_cost_day, "everybody's"
    else:
        most, dearest, whose = limits.person_tokens_day, limits.person_cost_day, "your"
    if 0 < most < tokens:
        return f"{whose} limit of {most:,} tokens a day is reached, until midnight UTC"
    if 0 < dearest < cost:
        return f"{whose} limit of {dearest:,.2f} in costs a day is reached, until midnight UTC"
    return None
