"""Which session a message goes to: the precedence of promise 10, the reset policies, and who gets a notice of a reset."""

from datetime import datetime
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.model import ACTIVE, ResumePending, SessionEntry, State, Suspended
from everturn.sessions.rules.reset_policy import (
    Continue,
    Create,
    Decision,
    ResetDecision,
    ResetPolicy,
    Resume,
    choose,
    expired_by,
    has_activity,
    notify_user,
)

NOW = 1_760_000_000.0  # 2025-10-09 08:53:20 UTC
HOUR = 3600.0
NEVER = ResetPolicy()
IDLE = ResetPolicy(mode="idle", idle_minutes=60)
BOTH = ResetPolicy(mode="both", idle_minutes=60)
DAILY = ResetPolicy(mode="daily", at_hour=4)


def entry(state: State = ACTIVE, *, idle_s: float = 10, expired: str | None = None) -> SessionEntry:
    return SessionEntry(key="k", session_id="s", state=state, active_at=NOW - idle_s, expired=expired)


def pending(age_s: float = 10) -> ResumePending:
    return ResumePending("restart_timeout", NOW - age_s)


def test_an_unknown_key_creates_a_session() -> None:
    assert choose(None, NOW, NEVER, HOUR) == Create()
    assert choose(SessionEntry(key="k", session_id=None), NOW, NEVER, HOUR) == Create()


@pytest.mark.parametrize("policy", [NEVER, IDLE, BOTH, DAILY])
def test_a_suspended_session_is_reset_whatever_the_policy(policy: ResetPolicy) -> None:
    assert choose(entry(Suspended()), NOW, policy, HOUR) == ResetDecision("suspended")


def test_suspended_is_checked_first_and_a_pending_session_is_kept() -> None:
    assert choose(entry(Suspended(), idle_s=9 * HOUR, expired="idle"), NOW, IDLE, HOUR) == ResetDecision("suspended")
    assert choose(entry(pending()), NOW, IDLE, HOUR) == Resume()


def test_a_pending_session_resumes_and_a_suspended_one_resets() -> None:
    assert choose(entry(pending()), NOW, NEVER, HOUR) == Resume()
    assert choose(entry(Suspended()), NOW, NEVER, HOUR) == ResetDecision("suspended")


def test_choosing_a_pending_session_does_not_clear_its_mark() -> None:
    asked = entry(pending())
    assert choose(asked, NOW, NEVER, HOUR) == choose(asked, NOW, NEVER, HOUR) == Resume()
    assert asked.state == pending()
    assert asked.auto_reset_reason is None


def test_a_pending_session_expired_by_policy_is_reset_with_the_policys_reason() -> None:
    assert choose(entry(pending(9 * HOUR), idle_s=9 * HOUR), NOW, IDLE, HOUR) == ResetDecision("idle")


def test_a_marker_too_old_resets_under_a_timed_policy() -> None:
    assert choose(entry(pending(HOUR + 1)), NOW, IDLE, HOUR) == ResetDecision("resume_pending_expired")
    assert choose(entry(pending(HOUR)), NOW, IDLE, HOUR) == Resume()


def test_an_old_mark_without_a_policy_is_still_resumed() -> None:
    assert choose(entry(pending(30 * 24 * HOUR)), NOW, NEVER, HOUR) == Resume()


@pytest.mark.parametrize("fresh_s", [0, -1])
def test_no_window_means_no_marker_is_too_old(fresh_s: float) -> None:
    assert choose(entry(pending(9 * HOUR)), NOW, IDLE, fresh_s) == Resume()


def test_a_marker_without_a_time_is_fresh() -> None:
    assert choose(entry(ResumePending("restart_timeout", None)), NOW, IDLE, HOUR) == Resume()


def test_what_the_watcher_ended_is_reset_with_its_reason() -> None:
    assert choose(entry(expired="daily"), NOW, NEVER, HOUR) == ResetDecision("daily")
    assert choose(entry(pending(), expired="idle"), NOW, NEVER, HOUR) == ResetDecision("idle")


def test_otherwise_the_policy_decides_and_else_the_session_goes_on() -> None:
    assert choose(entry(idle_s=2 * HOUR), NOW, IDLE, HOUR) == ResetDecision("idle")
    assert choose(entry(idle_s=6 * HOUR), NOW, DAILY, HOUR) == ResetDecision("daily")
    assert choose(entry(), NOW, IDLE, HOUR) == Continue()


def test_an_active_session_continues_after_a_kill() -> None:
    """After kill -9 a session with no running turn is `active`: it continues, is not resumed and not suspended."""
    assert choose(entry(ACTIVE, idle_s=60), NOW, NEVER, HOUR) == Continue()


def expected(state: State, *, by_policy: bool, marker_old: bool, timed: bool) -> Decision:
    """Promise 10, one line per rank."""
    if isinstance(state, Suspended):
        return ResetDecision("suspended")
    if by_policy and timed:
        return ResetDecision("idle")
    if isinstance(state, ResumePending):
        return ResetDecision("resume_pending_expired") if marker_old and timed else Resume()
    return Continue()


@pytest.mark.parametrize(
    ("state", "by_policy", "marker_old", "timed"),
    list(product(["active", "pending", "suspended"], [False, True], [False, True], [False, True])),
)
def test_the_precedence_of_promise_10(state: str, *, by_policy: bool, marker_old: bool, timed: bool) -> None:
    mark = pending(2 * HOUR if marker_old else 1)
    values: dict[str, State] = {"active": ACTIVE, "pending": mark, "suspended": Suspended()}
    value = values[state]
    asked = entry(value, idle_s=2 * HOUR if by_policy else 1)
    decision = choose(asked, NOW, IDLE if timed else NEVER, HOUR)
    assert decision == expected(value, by_policy=by_policy, marker_old=marker_old, timed=timed)


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("mode", "active", "now", "reason"),
    [
        ("none", "2025-01-01T00:00", "2026-01-01T00:00", None),
        ("idle", "2025-01-01T00:00", "2025-01-01T01:00", None),
        ("idle", "2025-01-01T00:00", "2025-01-01T01:00:01", "idle"),
        ("daily", "2025-01-01T03:59", "2025-01-01T04:00", "daily"),
        ("daily", "2025-01-01T04:00", "2025-01-02T03:59", None),
        ("daily", "2025-01-01T03:59", "2025-01-02T03:59", "daily"),
        ("daily", "2025-01-01T04:00", "2025-01-02T04:00", "daily"),
        ("both", "2025-01-01T03:30", "2025-01-01T04:01", "daily"),
        ("both", "2025-01-01T02:00", "2025-01-01T04:01", "idle"),
        ("both", "2025-01-01T04:30", "2025-01-01T05:00", None),
        ("some other word", "2025-01-01T00:00", "2026-01-01T00:00", None),
    ],
)
def test_reset_policies(mode: str, active: str, now: str, reason: str | None) -> None:
    policy = ResetPolicy(mode=mode, idle_minutes=60, at_hour=4)
    assert expired_by(policy, at(active), at(now)) == reason


def test_the_daily_hour_is_that_of_the_named_zone() -> None:
    tokyo = ResetPolicy(mode="daily", at_hour=4, timezone="Asia/Tokyo")
    assert expired_by(tokyo, at("2025-01-01T18:59"), at("2025-01-01T19:00")) == "daily"
    assert expired_by(tokyo, at("2025-01-01T19:00"), at("2025-01-02T18:59")) is None


@pytest.mark.parametrize(
    ("hour", "active", "now", "reason"),
    [
        # 2025-03-30: 02:00 does not exist in Berlin, the clock goes from 02:00 to 03:00.
        (2, "2025-03-30T00:59", "2025-03-30T01:00", "daily"),
        (2, "2025-03-30T01:00", "2025-03-30T23:00", None),
        (4, "2025-03-29T03:00", "2025-03-30T01:59", None),
        (4, "2025-03-30T01:59", "2025-03-30T02:00", "daily"),
        # 2025-10-26: 02:30 happens twice, at 00:30 and at 01:30 UTC.
        (2, "2025-10-25T23:59", "2025-10-26T00:00", "daily"),
        (2, "2025-10-26T00:30", "2025-10-26T01:30", None),
        (4, "2025-10-25T02:00", "2025-10-26T02:59", None),
        (4, "2025-10-26T02:59", "2025-10-26T03:00", "daily"),
    ],
)
def test_a_change_of_the_clocks_moves_the_boundary_once(hour: int, active: str, now: str, reason: str | None) -> None:
    policy = ResetPolicy(mode="daily", at_hour=hour, timezone="Europe/Berlin")
    assert expired_by(policy, at(active), at(now)) == reason


POLICIES = st.builds(
    ResetPolicy,
    mode=st.sampled_from(["none", "idle", "daily", "both"]),
    idle_minutes=st.floats(0, 10_000),
    at_hour=st.integers(0, 23),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]),
)
TIMES = st.floats(1_000_000_000, 2_000_000_000)


@given(POLICIES, TIMES, st.floats(0, 1_000_000))
def test_a_clock_set_back_expires_nothing(policy: ResetPolicy, now: float, back_s: float) -> None:
    assert expired_by(policy, now + back_s, now) is None
    state = ResumePending("restart_timeout", now + back_s)
    moved = SessionEntry(key="k", session_id="s", state=state, active_at=now + back_s)
    assert choose(moved, now, policy, HOUR) == Resume()


@given(POLICIES.filter(lambda policy: policy.mode == "daily"), TIMES)
def test_a_day_is_never_skipped(policy: ResetPolicy, now: float) -> None:
    """Whatever the zone does, a session untouched for 49 hours is over, and one touched this second is not."""
    assert expired_by(policy, now - 49 * HOUR, now) == "daily"
    assert expired_by(policy, now, now) is None


@given(POLICIES, TIMES, st.floats(0, 500_000), st.floats(0, 500_000))
def test_what_has_expired_stays_expired(policy: ResetPolicy, active: float, first: float, more: float) -> None:
    if expired_by(policy, active, active + first):
        assert expired_by(policy, active, active + first + more)


@pytest.mark.parametrize(
    ("reason", "notify", "had_activity", "platform", "told"),
    [
        ("suspended", False, False, "webhook", True),
        ("resume_pending_expired", False, False, "webhook", True),
        ("idle", True, True, "telegram", True),
        ("daily", True, True, "api", True),
        ("idle", False, True, "telegram", False),
        ("idle", True, False, "telegram", False),
        ("daily", True, True, "webhook", False),
    ],
)
def test_who_gets_a_notice_of_a_reset(
    reason: str, *, notify: bool, had_activity: bool, platform: str, told: bool
) -> None:
    assert notify_user(reason, ResetPolicy(notify=notify), had_activity, platform) is told


def test_a_session_without_a_turn_had_no_activity() -> None:
    assert not has_activity(SessionEntry(key="k", session_id="s"))
    assert has_activity(SessionEntry(key="k", session_id="s", turns=1))
