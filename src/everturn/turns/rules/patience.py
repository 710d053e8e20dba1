"""Timeouts of a running turn: when its user gets a progress notice, and when it fails as inactive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTimeouts:
    """Limits in seconds; 0 switches one off. All but `working_s` count from the last activity."""

    inactive_s: float = 1800  # the turn fails
    warn_s: float = 900  # its user is warned, once
    working_s: float = 180  # "still working", again and again
    stall_s: float = 300  # a message is queued behind it: its sender gets a notice, once


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The times of a running turn as they are now."""

    running_s: float
    idle_s: float
    behind: bool  # a message is queued behind it


@dataclass(frozen=True, slots=True)
class NoticesSent:
    """The notices sent about a turn: the last two are reset by new activity."""

    working: int = 0  # how many times `working_s` had passed
    warned: bool = False
    stalled: bool = False


class Notice(StrEnum):
    """The notice that is due, or that the turn fails as inactive."""

    INACTIVE = "inactive"
    STALL = "stalled"
    WARN = "inactivity_warning"
    WORKING = "still_working"


def due(patience: TurnTimeouts, moment: Moment, sent: NoticesSent) -> tuple[Notice | None, NoticesSent]:
    """The one notice that is due now, the most serious first, and the notices sent once it is sent."""
    sent = sent if _over(moment.idle_s, shortest_silence(patience)) else replace(sent, warned=False, stalled=False)
    passed = int(moment.running_s // patience.working_s) if patience.working_s > 0 else 0
    if _over(moment.idle_s, patience.inactive_s):
        return Notice.INACTIVE, sent
    if moment.behind and not sent.stalled and _over(moment.idle_s, patience.stall_s):
        return Notice.STALL, NoticesSent(passed, sent.warned, stalled=True)
    if not sent.warned and _over(moment.idle_s, patience.warn_s):
        return Notice.WARN, NoticesSent(passed, warned=True, stalled=sent.stalled)
    if passed > sent.working:
        return Notice.WORKING, replace(sent, working=passed)
    return None, sent


def shortest_silence(patience: TurnTimeouts) -> float:
    """The shortest inactivity that gets a notice: a turn with later activity is not stalled any more."""
    return min((each for each in (patience.warn_s, patience.stall_s) if each > 0), default=0.0)


def _over(seconds: float, limit_s: float) -> bool:
    return limit_s > 0 and seconds >= limit_s
