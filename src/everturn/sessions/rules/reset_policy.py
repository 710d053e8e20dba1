"""Which session a message goes to: continue, resume, create or reset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from everturn.model import ResumePending, SessionEntry, Suspended

SILENT_PLATFORMS = frozenset({"webhook"})  # nobody reads a notice there
ALWAYS_NOTIFIED = frozenset({"suspended", "resume_pending_expired"})


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """When a conversation is reset automatically: `none`, `idle`, `daily` or `both`."""

    mode: str = "none"
    idle_minutes: float = 1440
    at_hour: int = 4
    notify: bool = True
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Continue:
    """The message continues the session."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The message resumes the session, whose turn was cut off."""


@dataclass(frozen=True, slots=True)
class Create:
    """The message opens the first session of its key."""


@dataclass(frozen=True, slots=True)
class ResetDecision:
    """The message opens another session under the same key, for `reason`."""

    reason: str


Decision = Continue | Resume | Create | ResetDecision


def choose(entry: SessionEntry | None, now: float, policy: ResetPolicy, fresh_s: float) -> Decision:
    """Say which session the next message goes to. Reading clears nothing."""
    if entry is None or entry.session_id is None:
        return Create()
    if isinstance(entry.state, Suspended):
        return ResetDecision("suspended")
    reason = entry.expired or (expired_by(policy, entry.active_at, now) if policy.mode != "none" else None)
    if reason:
        return ResetDecision(reason)
    if not isinstance(entry.state, ResumePending):
        return Continue()
    if policy.mode != "none" and _too_old(entry.state.marked_at, now, fresh_s):
        return ResetDecision("resume_pending_expired")
    return Resume()


def expired_by(policy: ResetPolicy, active_at: float, now: float) -> str | None:
    """`idle` or `daily` when the policy ends a session last used at `active_at`; idle is tested first."""
    if policy.mode in {"idle", "both"} and now > active_at + policy.idle_minutes * 60:
        return "idle"
    if policy.mode in {"daily", "both"} and active_at < _last_boundary(policy, now):
        return "daily"
    return None


def has_activity(entry: SessionEntry) -> bool:
    """Whether anything was ever answered in this session."""
    return entry.turns > 0


def notify_user(reason: str, policy: ResetPolicy, had_activity: bool, platform: str) -> bool:  # noqa: FBT001
    """Whether the sender gets a notice that the conversation was reset."""
    return reason in ALWAYS_NOTIFIED or (policy.notify and had_activity and platform not in SILENT_PLATFORMS)


def _too_old(marked_at: float | None, now: float, fresh_s: float) -> bool:
    return fresh_s > 0 and marked_at is not None and now - marked_at > fresh_s


def _last_boundary(policy: ResetPolicy, now: float) -> float:
    zone = ZoneInfo(policy.timezone)
    today = datetime.fromtimestamp(now, zone).replace(hour=policy.at_hour, minute=0, second=0, microsecond=0, fold=0)
    # Compared as seconds: two datetimes of one zone would compare their wall clocks and err by an hour at a change.
    if today.timestamp() > now:
        today -= timedelta(days=1)
    return today.timestamp()
