"""Rules of recovery: which turn is blamed for a crash, which turns resume by themselves, and when a crash loop delays that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SPARED_DRAINS = 10  # three deployments during a long task are not a loop; ten are


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """A turn that was running when its instance died."""

    turn: int
    key: str
    unclean_ends: int
    called: bool  # a model call or an effect was begun, or code that is not ours was given control
    proven: bool  # it committed a step, or survived the crash loop delay, since it was a suspect


class RecoveryVerdict(StrEnum):
    """What recovery does with a turn that was cut off."""

    REQUEUE = "requeue"  # nothing had begun: back to the inbox, no mark, no count
    COUNT = "count"  # marked to be resumed, one more unclean end
    SPARE = "spare"  # marked to be resumed, not counted
    SUSPEND = "suspend"  # counted, and that was one too many


def blame(turns: Sequence[CutOff], stuck_after: int) -> dict[int, RecoveryVerdict]:
    """Judge the turns that were running when one instance died: only the culprit is suspended."""
    suspects = [turn for turn in turns if turn.called and is_suspect(turn.unclean_ends, stuck_after)]
    unproven = [turn for turn in suspects if not turn.proven]
    # Several proven ones and no other: nobody can say which it was. The crash loop delay runs them one at a time later.
    culprits = unproven or (suspects if len(suspects) == 1 else [])
    guilty = {turn.turn for turn in culprits}
    suspected = {turn.turn for turn in suspects}
    return {turn.turn: _verdict(turn, guilty, suspected) for turn in turns}


def _verdict(turn: CutOff, guilty: set[int], suspected: set[int]) -> RecoveryVerdict:
    if not turn.called:
        return RecoveryVerdict.REQUEUE
    if turn.turn in guilty:
        return RecoveryVerdict.SUSPEND
    return RecoveryVerdict.SPARE if turn.turn in suspected else RecoveryVerdict.COUNT


def is_suspect(unclean_ends: int, stuck_after: int) -> bool:
    """Whether one more unclean end would suspend the session. With `stuck_after` 0 nobody ever is."""
    return stuck_after > 0 and unclean_ends >= stuck_after - 1


def drain_counts(attempt: int, progressed: bool, unclean_ends: int, stuck_after: int) -> RecoveryVerdict:  # noqa: FBT001
    """Judge a turn still running when a planned drain timed out: one that makes progress is spared, though not for ever."""
    if progressed and attempt < SPARED_DRAINS:
        return RecoveryVerdict.SPARE
    return RecoveryVerdict.SUSPEND if is_suspect(unclean_ends, stuck_after) else RecoveryVerdict.COUNT


def crash_loop(
    unclean_boots: Sequence[float],
    now: float,
    threshold: int,
    suspended_one: bool,  # noqa: FBT001
    window_s: float = 300,
) -> bool:
    """Whether unclean boots (this one included) come so fast, with no turn to blame, that resumes must be delayed."""
    if threshold <= 0 or suspended_one:
        return False
    # A boot in the future only says that the clock was moved back.
    return sum(0 <= now - boot <= window_s for boot in unclean_boots) >= threshold


def resumes_by_itself(marked_at: float | None, now: float, fresh_s: float, mode: str) -> bool:
    """Whether an interrupted turn resumes without waiting for the user's next message."""
    return mode == "auto" and (fresh_s <= 0 or marked_at is None or now - marked_at <= fresh_s)
