"""Old, foreign or broken stored entries: what can be read is read, one bad row never harms the others."""

from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.model import ACTIVE, ResumePending, SessionEntry, SessionSource, State, Suspended
from everturn.sessions.rules.foreign_entries import (
    entries_from_mapping,
    entry_from_mapping,
    entry_to_mapping,
    mark_recently_active,
)
from everturn.sessions.rules.reset_policy import ResetDecision, ResetPolicy, choose
from tests.sessions.rules.examples import FEW_AND_MANY

KEY = "agent:main:telegram:dm:7"
NOW = 1_760_000_000.0


def load(key: str = KEY, **fields: object) -> SessionEntry | None:
    return entry_from_mapping(key, {"session_id": "20260418_101500_0a1b2c3d", **fields})


def loaded(**fields: object) -> SessionEntry:
    entry = load(KEY, **fields)
    assert entry is not None
    return entry


def test_the_resume_fields_are_empty_by_default() -> None:
    assert loaded().state == ACTIVE
    assert SessionEntry(key=KEY, session_id="s").state == ACTIVE
    assert entry_to_mapping(loaded())["resume_pending"] is False
    assert entry_to_mapping(loaded())["resume_reason"] is None
    assert entry_to_mapping(loaded())["last_resume_marked_at"] is None


def test_the_resume_fields_survive_a_round_trip() -> None:
    entry = SessionEntry(key=KEY, session_id="s", state=ResumePending("shutdown_timeout", NOW))
    data = entry_to_mapping(entry)
    assert (data["resume_pending"], data["resume_reason"]) == (True, "shutdown_timeout")
    assert entry_from_mapping(KEY, data) == entry


def test_data_from_before_the_resume_fields_loads() -> None:
    old = loaded(session_key=KEY, created_at="2026-04-01T10:00:00", updated_at="2026-04-01T11:00:00", suspended=False)
    assert old.state == ACTIVE
    assert (old.created_at, old.active_at) == (1_775_037_600.0, 1_775_041_200.0)


@pytest.mark.parametrize("mark", ["not a time", "", None, [], True, float("nan"), 10**400])
def test_a_bad_mark_time_drops_only_itself(mark: object) -> None:
    entry = loaded(resume_pending=True, resume_reason="shutdown_timeout", last_resume_marked_at=mark)
    assert entry.state == ResumePending("shutdown_timeout", None)


@pytest.mark.parametrize(
    ("mark", "at"),
    [
        (NOW, NOW),
        (1_760_000_000, NOW),
        ("2025-10-09T08:53:20+00:00", NOW),
        ("2025-10-09T08:53:20Z", NOW),
        ("2025-10-09T08:53:20", NOW),
        ("2025-10-09T10:53:20+02:00", NOW),
    ],
)
def test_times_are_read_as_text_or_number(mark: object, at: float) -> None:
    assert loaded(resume_pending=True, last_resume_marked_at=mark).state == ResumePending("restart_timeout", at)


def test_times_without_a_zone_are_in_the_zone_the_importer_names() -> None:
    data = {"session_id": "s", "updated_at": "2025-10-09T10:53:20"}
    entry = entry_from_mapping(KEY, data, zone=timezone(timedelta(hours=2)))
    assert entry is not None
    assert entry.active_at == NOW


def test_both_flags_load_as_suspended() -> None:
    entry = loaded(suspended=True, resume_pending=True, resume_reason="restart_timeout")
    assert entry.state == Suspended()
    assert choose(entry, NOW, ResetPolicy(), 3600) == ResetDecision("suspended")


def test_a_missing_reason_means_restart_timeout_and_an_unknown_one_is_kept() -> None:
    assert loaded(resume_pending=True).state == ResumePending("restart_timeout", None)
    assert loaded(resume_pending=True, resume_reason=7).state == ResumePending("restart_timeout", None)
    assert loaded(resume_pending=True, resume_reason="dirty_shutdown").state == ResumePending("dirty_shutdown", None)


@pytest.mark.parametrize(
    ("value", "state"),
    [(True, Suspended()), (1, Suspended()), ("true", Suspended()), ("no", ACTIVE), (None, ACTIVE), (0, ACTIVE)],
)
def test_flags_are_read_with_tolerance(value: object, state: State) -> None:
    assert loaded(suspended=value).state == state


@pytest.mark.parametrize("data", [None, "text", 7, [], {}, {"session_id": None}, {"session_id": ""}, {"session_id": 7}])
def test_what_is_no_entry_is_skipped(data: object) -> None:
    assert entry_from_mapping(KEY, data) is None


@pytest.mark.parametrize("session_id", ["..", "a..b", "a/b", "a\\b", "/a", "C:x", "c:\\x", "a\0"])
def test_a_session_id_that_could_be_a_path_is_refused(session_id: str) -> None:
    assert load(session_id=session_id) is None


@pytest.mark.parametrize("key", ["", "_readme", "/abs", "\\abs", "C:", "x:agent", "agent:main:..", "agent\0"])
def test_a_key_that_could_be_a_path_is_refused(key: str) -> None:
    assert load(key) is None


def test_a_key_may_contain_a_slash_further_on() -> None:
    assert load("agent:main:google_chat:group:spaces/AAA") is not None


def test_an_unknown_platform_costs_only_the_origin() -> None:
    assert loaded(origin={"platform": "smoke signals", "chat_id": "7"}).origin is None
    assert loaded(origin={"chat_id": "7"}).origin is None
    assert loaded(origin={"platform": ["x"]}).origin is None
    assert loaded(origin="telegram").origin is None


def test_the_importer_may_name_platforms_of_its_own() -> None:
    entry = entry_from_mapping(KEY, {"session_id": "s", "origin": {"platform": "carrier"}}, platforms={"carrier"})
    assert entry is not None
    assert entry.origin == SessionSource(platform="carrier")


def test_an_origin_is_read_with_the_references_names() -> None:
    origin = {
        "platform": "api_server",
        "chat_id": 7,
        "guild_id": "G",
        "thread_id": None,
        "user_id": "u",
        "profile": "x",
    }
    assert loaded(origin=origin).origin == SessionSource(platform="api", chat_id="7", scope_id="G", user_id="u")
    slack = {
        "platform": "slack",
        "account": "b",
        "scope_id": "S",
        "guild_id": "G",
        "chat_type": "group",
        "chat_name": 1.5,
    }
    assert loaded(origin=slack).origin == SessionSource(platform="slack", account="b", scope_id="S", chat_type="group")


def test_counters_and_clocks_have_defaults() -> None:
    entry = loaded(unclean_ends="many", updated_at="never", created_at=5, turns=-3)
    assert (entry.unclean_ends, entry.active_at, entry.created_at, entry.turns) == (0, 5.0, 5.0, 0)
    assert loaded(unclean_ends=2).unclean_ends == 2


def test_tokens_of_another_program_count_as_activity() -> None:
    assert loaded(last_prompt_tokens=900).turns == 1
    assert loaded(total_tokens=900).turns == 1
    assert loaded(total_tokens=900, turns=4).turns == 4
    assert loaded(total_tokens=0).turns == 0


def test_a_broken_entry_does_not_harm_the_others() -> None:
    good = {"session_id": "a"}
    entries, warnings = entries_from_mapping(
        {
            "_readme": "not an entry",
            "k1": good,
            "k2": "broken",
            "k3": {},
            "/k4": good,
            "k5": {"session_id": "x/y"},
            6: {},
        }
    )
    assert [entry.key for entry in entries] == ["k1"]
    assert len(warnings) == 5
    assert [name in warning for name, warning in zip(["k2", "k3", "/k4", "k5", "6"], warnings, strict=True)] == [
        True
    ] * 5


def test_a_session_has_one_key() -> None:
    entries, warnings = entries_from_mapping({"k1": {"session_id": "a"}, "k2": {"session_id": "a"}})
    assert [entry.key for entry in entries] == ["k1"]
    assert "another key" in warnings[0]


@pytest.mark.parametrize("data", [None, [], "text", 7])
def test_stored_data_that_is_no_mapping_gives_one_warning(data: object) -> None:
    entries, warnings = entries_from_mapping(data)
    assert entries == []
    assert len(warnings) == 1


TIMES = st.none() | st.floats(1, 2_000_000_000)
WORDS = st.text(min_size=1)
STATES: st.SearchStrategy[State] = st.one_of(
    st.just(ACTIVE), st.builds(ResumePending, WORDS, TIMES), st.builds(Suspended, WORDS, TIMES)
)
ENTRIES = st.builds(
    SessionEntry,
    key=st.just(KEY),
    session_id=st.from_regex(r"\d{8}_\d{6}_[0-9a-f]{8}", fullmatch=True),
    state=STATES,
    unclean_ends=st.integers(0, 9),
    tail=st.booleans(),
    tail_key=st.none() | WORDS,
    tail_at=TIMES,
    previous_session_id=st.none() | WORDS,
    auto_reset_reason=st.none() | WORDS,
    reset_had_activity=st.booleans(),
    expired=st.none() | st.sampled_from(["idle", "daily"]),
    origin=st.none()
    | st.builds(SessionSource, platform=st.just("slack"), account=st.text(), chat_id=st.none() | WORDS),
    created_at=st.floats(1, 2_000_000_000),
    active_at=st.floats(1, 2_000_000_000),
    turns=st.integers(0, 9),
)


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_every_entry_survives_a_round_trip(examples: int) -> None:
    @settings(max_examples=examples)
    @given(ENTRIES)
    def survives(entry: SessionEntry) -> None:
        assert entry_from_mapping(entry.key, entry_to_mapping(entry)) == entry

    survives()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [*entry_to_mapping(SessionEntry(key=KEY, session_id="s")), "guild_id", "platform", "total_tokens"]
)


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_no_stored_row_can_break_the_load(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.dictionaries(FIELDS, JSON | st.dictionaries(FIELDS, JSON)))
    def is_loaded(data: dict[str, object]) -> None:
        entries, warnings = entries_from_mapping({"good": {"session_id": "good"}, "odd": data})
        assert entries[0].session_id == "good"
        assert len(entries) + len(warnings) == 2

    is_loaded()


def imported(state: State = ACTIVE, age_s: float = 10) -> SessionEntry:
    return SessionEntry(key=KEY, session_id="s", state=state, active_at=NOW - age_s)


def test_recently_active_imports_become_resumable_and_are_counted() -> None:
    marked, changed = mark_recently_active([imported(), imported(age_s=121)], NOW)
    assert changed == 1
    assert [entry.state for entry in marked] == [ResumePending("restart_interrupted", NOW), ACTIVE]


def test_pending_and_suspended_imports_are_left_alone() -> None:
    entries = [imported(ResumePending("shutdown_timeout", 5.0)), imported(Suspended())]
    assert mark_recently_active(entries, NOW) == (entries, 0)


def test_marking_imports_does_not_move_the_users_clock() -> None:
    marked, _ = mark_recently_active([imported()], NOW)
    assert marked[0].active_at == NOW - 10


def test_only_a_session_used_close_to_the_end_is_marked() -> None:
    beside = [imported(age_s=120.5), imported(age_s=-500), SessionEntry(key=KEY, session_id=None, active_at=NOW)]
    assert mark_recently_active(beside, NOW)[1] == 0
    assert mark_recently_active(beside, NOW, within_s=600)[1] == 2
