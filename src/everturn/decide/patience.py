"""How long a running turn is waited for without a word: when its user is told, and when it is given up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits in seconds; 0 switches one off. All but `working_s` count from the last sign of life."""

    inactive_s: float = 1800  # the turn fails
    warn_s: float = 900  # its user is warned, once
    working_s: float = 180  # "still working", again and again
    stall_s: float = 300  # a message waits behind it: its sender is told, once


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A running turn as it is now."""

    running_s: float
    idle_s: float
    behind: bool  # a message waits for it


@dataclass(frozen=True, slots=True)
class Told:
    """What was said about the turn: the last two hold until it moves again."""

    working: int = 0  # how many times `working_s` had passed
    warned: bool = False
    stalled: bool = False


class Notice(StrEnum):
    """What is due."""

    GIVE_UP = "inactive"
    STALL = "stalled"
    WARN = "inactivity_warning"
    WORKING = "still_working"


def due(patience: Patience, moment: Moment, told: Told) -> tuple[Notice | None, Told]:
    """The one thing that is due now, the gravest first, and what was said when it is said."""
    told = told if _over(moment.idle_s, min_of(patience)) else replace(told, warned=False, stalled=False)
    passed = int(moment.running_s // patience.working_s) if patience.working_s > 0 else 0
    if _over(moment.idle_s, patience.inactive_s):
        return Notice.GIVE_UP, told
    if moment.behind and not told.stalled and _over(moment.idle_s, patience.stall_s):
        return Notice.STALL, Told(passed, told.warned, stalled=True)
    if not told.warned and _over(moment.idle_s, patience.warn_s):
        return Notice.WARN, Told(passed, warned=True, stalled=told.stalled)
    if passed > told.working:
        return Notice.WORKING, replace(told, working=passed)
    return None, told


def min_of(patience: Patience) -> float:
    """The shortest silence that is spoken of: a turn that moved since is not stalled any more."""
    return min((each for each in (patience.warn_s, patience.stall_s) if each > 0), default=0.0)


def _over(seconds: float, limit_s: float) -> bool:
    return limit_s > 0 and seconds >= limit_s
