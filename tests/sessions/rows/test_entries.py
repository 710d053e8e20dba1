"""What a key points at: stored and read back, marked, suspended, reset, switched; and which session a message goes to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from everturn.commands.rows.sessions import switch_session
from everturn.lifecycle.rows import expire, idle_entries
from everturn.model import ACTIVE, ResumePending, SessionSource, State, Suspended
from everturn.sessions.rows.entries import (
    find_entry,
    list_entries,
    lock_entry,
    state_columns,
    write_source,
)
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import Op
from everturn.turns.rows.recovery import suspend_session
from tests.contracts.store import BY_EVENT, StoreProcess, key_of, living

HOUR = 3600.0


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def put_state(process: StoreProcess, state: State, chat: str = "c") -> None:
    columns = state_columns(state)
    await process.plant("UPDATE entry SET state=$2, reason=$3, marked_at=$4 WHERE key=$1", key_of(chat), *columns)


# -- round trips ------------------------------------------------------------------------------------------------------


async def test_a_new_key_is_active_without_marks(process: StoreProcess) -> None:
    begun = await process.begun()
    entry = await process.entry()
    assert (entry.state, entry.unclean_ends, entry.tail, entry.tail_key) == (ACTIVE, 0, False, None)
    assert (entry.session_id, entry.previous_session_id, entry.auto_reset_reason) == (begun.session_id, None, None)
    assert (entry.turn, entry.holder, entry.fence) == (begun.turn, process.instance, begun.fence)
    assert (entry.created_at, entry.active_at, entry.seq) == (process.now, process.now, 1)


async def test_every_state_is_read_back_as_it_was_stored(process: StoreProcess) -> None:
    states: list[State] = [
        ACTIVE,
        ResumePending("restart_timeout", process.now),
        ResumePending("shutdown_timeout", None),
        ResumePending("a reason of another version", 1.5),
        Suspended("stuck", process.now),
        Suspended("owner", None),
    ]
    await process.talk()
    read = []
    for state in states:
        await put_state(process, state)
        read.append((await process.entry()).state)
    assert read == states


async def test_a_source_is_read_back_with_every_field(process: StoreProcess) -> None:
    source = SessionSource(
        platform="fake", account="bot", chat_id='c"1', chat_type="group", thread_id="t", user_id="u", user_id_alt="U",
        scope_id="s", chat_name="Ünï \\ 'x'", user_name="😀", chat_topic="a\nb", chat_id_alt="d", parent_chat_id="p",
        message_id="m", prospective_thread_id="q",
    )  # fmt: skip
    await process.talk()
    await process.plant("UPDATE entry SET origin=$2 WHERE key=$1", key_of(), write_source(source).decode())
    assert (await process.entry()).origin == source


# -- tolerance --------------------------------------------------------------------------------------------------------


async def test_a_damaged_row_loses_only_what_is_damaged(process: StoreProcess) -> None:
    """What is missing means its default; no row harms another."""
    damage = {
        "json": "origin='{\"platform\": 5'",
        "fields": 'origin=\'{"platform": "fake", "chat_id": "1", "new": [1]}\'',
        "none": "origin=NULL",
        "state": "state='sleeping', reason='nap', marked_at=5",
        "reason": "state='resume_pending', reason='solar_flare', marked_at=5",
        "noreason": "state='resume_pending', reason=NULL, marked_at=NULL",
        "empty": "state='suspended', reason='', marked_at=NULL",
    }
    for chat, change in damage.items():
        await process.talk(chat=chat)
        await process.plant(f"UPDATE entry SET {change} WHERE key=$1", key_of(chat))
    await process.talk(chat="whole")
    found = {chat: await process.entry(chat) for chat in [*damage, "whole"]}
    assert [found[chat].origin for chat in ("json", "none")] == [None, None]
    assert found["fields"].origin == SessionSource(platform="fake", chat_id="1")
    assert found["state"].state == ACTIVE
    assert found["reason"].state == ResumePending("solar_flare", 5.0)
    assert found["noreason"].state == ResumePending("restart_timeout", None)
    assert found["empty"].state == Suspended("stuck", None)
    assert found["whole"].state == ACTIVE
    assert (
        len(await process.store.read(list_entries, "", 100))
        == len(await process.store.read(idle_entries, "", 100))
        == 8
    )


async def test_a_conversation_with_a_damaged_row_goes_on(process: StoreProcess) -> None:
    first = await process.talk()
    await process.plant("UPDATE entry SET origin='[', state='?', reason='?', marked_at=NULL WHERE key=$1", key_of())
    second = await process.talk("again")
    assert (second.session_id, second.first_seq) == (first.session_id, 3)


async def test_on_sqlite_a_time_that_is_text_drops_only_itself(tmp_path: Path) -> None:
    """SQLite stores any text in a column of numbers."""
    async with living(f"sqlite:///{tmp_path / 'everturn.db'}") as process:
        await process.talk()
        await process.plant("UPDATE entry SET state='resume_pending', reason='shutdown_timeout', marked_at='yesterday'")
        assert (await process.entry()).state == ResumePending("shutdown_timeout", None)
        await process.plant("UPDATE entry SET created_at='long ago', active_at=9e999")
        assert (await process.entry()).created_at == (await process.entry()).active_at == 0.0


async def test_on_postgres_a_time_that_is_no_number_drops_only_itself(database_url: str) -> None:
    async with living(database_url) as process:
        await process.talk()
        await process.plant("UPDATE entry SET state='resume_pending', reason='shutdown_timeout', marked_at='NaN'")
        assert (await process.entry()).state == ResumePending("shutdown_timeout", None)


async def test_a_row_with_the_marks_of_both_states_is_suspended(process: StoreProcess) -> None:
    """One value cannot be both; what is left of the other mark does not count."""
    first = await process.talk()
    await process.plant("UPDATE entry SET state='suspended', reason='restart_timeout', marked_at=5")
    assert (await process.talk("again")).session_id != first.session_id
    assert (await process.entry()).auto_reset_reason == "suspended"


# -- marks ------------------------------------------------------------------------------------------------------------


async def test_marks_do_not_move_the_users_clock(process: StoreProcess) -> None:
    await process.called()
    at = process.now
    process.clock.advance(HOUR)
    await process.die()
    assert isinstance((await process.entry()).state, ResumePending)
    await process.store.run(suspend_session, key_of(), process.now)
    assert (await process.entry()).active_at == at


async def test_a_mark_survives_reopening(store_url: str) -> None:
    async with living(store_url) as process:
        await process.talk()
        await put_state(process, ResumePending("shutdown_timeout", process.now))
    async with living(store_url) as process:
        assert (await process.entry()).state == ResumePending("shutdown_timeout", process.now)


# -- suspend ----------------------------------------------------------------------------------------------------------


async def test_suspending_deletes_nothing(process: StoreProcess) -> None:
    """Promise 9"""
    begun = await process.talk()
    said = await process.look("SELECT seq, role, content FROM message ORDER BY seq")
    assert await process.store.run(suspend_session, key_of(), process.now) is True
    entry = await process.entry()
    assert (entry.session_id, entry.state) == (begun.session_id, Suspended("stuck", process.now))
    assert await process.look("SELECT seq, role, content FROM message ORDER BY seq") == said
    assert await process.look("SELECT ended_at FROM session") == [(None,)]


async def test_a_key_without_a_session_cannot_be_suspended(process: StoreProcess) -> None:
    await process.accept()
    assert await process.unchanged(suspend_session, key_of("nobody"), process.now) is False
    assert await process.unchanged(suspend_session, key_of(), process.now) is False


async def test_suspending_ends_what_runs_with_its_messages(process: StoreProcess) -> None:
    begun = await process.called()
    await process.store.run(suspend_session, key_of(), process.now)
    assert await process.states("turn") == ["suspended"]
    assert await process.states("inbox") == ["dead"]
    assert (await process.entry()).fence > begun.fence
    assert await process.begin() is None


async def test_a_mark_is_kept_through_a_suspension_for_resume(process: StoreProcess) -> None:
    await process.called()
    await process.die("shutdown_timeout")
    await process.store.run(suspend_session, key_of(), process.now)
    assert await process.states("turn") == ["suspended"]
    await process.command("/resume")
    assert (await process.entry()).state == ResumePending("shutdown_timeout", process.now)


# -- reset and switch -------------------------------------------------------------------------------------------------


async def test_a_reset_by_its_user_inherits_nothing(process: StoreProcess) -> None:
    """Behaviour 1.7: lineage is kept, it is no automatic reset, the old session ends once."""
    begun = await process.called()
    await process.die()
    await process.plant("UPDATE entry SET tail_key='t', tail_at=1.0, unclean_ends=2")
    await process.command("/new")
    entry = await process.entry()
    assert (entry.state, entry.unclean_ends, entry.tail, entry.tail_key, entry.tail_at) == (
        ACTIVE,
        0,
        False,
        None,
        None,
    )
    assert (entry.previous_session_id, entry.auto_reset_reason, entry.turns) == (begun.session_id, None, 0)
    assert (entry.seq, entry.turn, entry.holder) == (0, None, None)
    ends = await process.look("SELECT session_id, parent, end_reason FROM session ORDER BY id")
    assert ends == [(begun.session_id, None, "new"), (entry.session_id, begun.session_id, None)]


async def test_a_switch_ends_the_one_and_reopens_the_other(process: StoreProcess) -> None:
    first = await process.talk()
    await process.command("/new")
    second = await process.talk("other")
    assert await process.store.run(switch, key_of(), first.session_id, process.now) is False
    entry = await process.entry()
    assert (entry.session_id, entry.previous_session_id, entry.seq) == (first.session_id, second.session_id, 2)
    ends = await process.look("SELECT session_id, end_reason, messages FROM session ORDER BY id")
    assert ends == [(first.session_id, None, 2), (second.session_id, "switched", 2)]
    again = await process.talk("third")
    assert (again.session_id, again.first_seq) == (first.session_id, 3)


async def test_a_switch_to_what_is_not_ours_changes_nothing(process: StoreProcess) -> None:
    await process.talk()
    other = await process.talk(chat="other")
    assert await process.unchanged(switch, key_of(), other.session_id, process.now) is None
    assert await process.unchanged(switch, key_of(), "nothing", process.now) is None


def switch(key: str, session_id: str, at: float) -> Op[bool | None]:
    entry = yield from lock_entry(key)
    assert entry is not None
    return (yield from switch_session(entry, session_id, at))


async def test_the_session_that_was_left_has_its_true_length(process: StoreProcess) -> None:
    begun = await process.called()
    await process.tool(begun)
    await process.command("/new")
    assert await process.look("SELECT messages FROM session WHERE session_id=$1", begun.session_id) == [(3,)]


# -- which session a message goes to ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An entry last used and marked so long ago, a policy, and what the next message gets."""

    name: str
    state: str
    policy: ResetPolicy
    age_s: float
    reason: str | None  # why the session is another one; None when it is the same
    note: str | None

    def marked(self, at: float) -> State:
        if self.state == "suspended":
            return Suspended("stuck", at)
        return ResumePending("restart_timeout", at) if self.state == "resume_pending" else ACTIVE


NONE, IDLE = ResetPolicy(), ResetPolicy("idle", idle_minutes=120)
DAILY, BOTH = ResetPolicy("daily", at_hour=4), ResetPolicy("both", idle_minutes=120, at_hour=4)
DAY = 24 * HOUR
RESUME = "resume:restart_timeout"
# fmt: off
CASES = [
    Case("active goes on", "active", NONE, DAY, None, None),
    Case("active within the idle time", "active", IDLE, HOUR, None, None),
    Case("active beyond the idle time", "active", IDLE, 3 * HOUR, "idle", "reset:idle"),
    Case("active over the daily hour", "active", DAILY, DAY, "daily", "reset:daily"),
    Case("idle is named first", "active", BOTH, DAY, "idle", "reset:idle"),
    Case("suspended is left", "suspended", NONE, 60, "suspended", "reset:suspended"),
    Case("suspended beats the policy", "suspended", IDLE, 3 * HOUR, "suspended", "reset:suspended"),
    Case("pending goes on", "resume_pending", NONE, 60, None, RESUME),
    Case("pending goes on at any age without a policy", "resume_pending", NONE, 30 * DAY, None, RESUME),
    Case("pending within every limit", "resume_pending", IDLE, 1800, None, RESUME),
    Case("pending too old", "resume_pending", IDLE, 1.5 * HOUR, "resume_pending_expired", "reset:resume_pending_expired"),
    Case("the policy beats the mark's age", "resume_pending", IDLE, 3 * HOUR, "idle", "reset:idle"),
    Case("the policy beats the mark", "resume_pending", DAILY, DAY, "daily", "reset:daily"),
]
# fmt: on


@pytest.mark.parametrize("begins", ["at once", "later"])
async def test_the_precedence_of_promise_10(process: StoreProcess, begins: str) -> None:
    """The whole table through the operations, for both ways a turn begins."""
    wrong = {}
    for case in CASES:
        before = await process.talk(chat=case.name)
        await put_state(process, case.marked(process.now), case.name)
        process.clock.advance(case.age_s)
        here = replace(process, policy=case.policy)
        if begins == "later":
            await here.accept("next", case.name)
        begun = await (here.began(case.name) if begins == "later" else here.begun("next", case.name))
        entry = await process.entry(case.name)
        told = await process.look("SELECT count(*) FROM outbox WHERE key=$1 AND kind='notice'", begun.key)
        seen = (
            begun.session_id == before.session_id,
            entry.auto_reset_reason,
            begun.note and begun.note.kind,
            told[0][0],
        )
        if seen != (case.reason is None, case.reason, case.note, int(case.reason is not None)):
            wrong[case.name] = seen
    assert wrong == {}


async def test_reading_clears_nothing(process: StoreProcess) -> None:
    """The mark is there until a successful turn; beginning one is not enough."""
    await process.talk()
    await put_state(process, ResumePending("restart_timeout", process.now))
    await process.begun("next")
    assert (await process.entry()).state == ResumePending("restart_timeout", process.now)
    assert (await process.entry()).auto_reset_reason is None


async def test_a_reset_keeps_the_lineage_and_says_whether_anything_was_lost(process: StoreProcess) -> None:
    """Behaviour 1.6 step 8"""
    here = replace(process, policy=IDLE)
    first = await here.talk()
    process.clock.advance(3 * HOUR)
    second = await here.begun("next")
    entry = await process.entry()
    assert (entry.previous_session_id, entry.reset_had_activity, entry.unclean_ends) == (first.session_id, True, 0)
    ends = await process.look("SELECT session_id, parent, end_reason FROM session ORDER BY id")
    assert ends == [(first.session_id, None, "idle"), (second.session_id, first.session_id, None)]
    assert second.first_seq == 1


async def test_a_session_in_which_nothing_was_answered_is_reset_silently(process: StoreProcess) -> None:
    """Behaviour 1.9"""
    here = replace(process, policy=IDLE)
    await here.command("/new")
    begun = await here.begun()
    await here.command("/stop")
    process.clock.advance(3 * HOUR)
    assert (await here.begun("next")).session_id != begun.session_id
    assert await process.look("SELECT count(*) FROM outbox WHERE kind='notice'") == [(0,)]


async def test_a_turn_whose_mark_expired_ends_visibly(process: StoreProcess) -> None:
    """Its messages are `expired`, its turn says why, and its user gets a notice."""
    here = replace(process, policy=IDLE, delivery=BY_EVENT)
    cut = await here.called()
    await here.die()
    process.clock.advance(1.5 * HOUR)
    assert await here.begin() is None
    await here.accept("next")
    begun = await here.began()
    assert begun.session_id != cut.session_id
    assert await process.look("SELECT state, why FROM turn WHERE id=$1", cut.turn) == [
        ("failed", "resume_pending_expired")
    ]
    assert await process.look("SELECT state, why FROM inbox WHERE turn=$1", cut.turn) == [
        ("expired", "resume_pending_expired")
    ]
    kinds = [event.kind for event in begun.events]
    assert kinds == ["turn", "notice", "turn"]


async def test_a_session_the_watcher_ended_is_not_used_again(process: StoreProcess) -> None:
    """Behaviour 1.10"""
    first = await process.talk()
    assert await process.store.run(expire, key_of(), (await process.entry()).fence, "daily", process.now + DAY) is True
    process.clock.advance(DAY)
    second = await process.begun("next")
    assert second.session_id != first.session_id
    assert second.note is not None
    assert second.note.kind == "reset:daily"
    assert (await process.entry()).expired is None
    ends = await process.look("SELECT end_reason, ended_at FROM session WHERE session_id=$1", first.session_id)
    assert ends == [("daily", process.now)]


async def test_a_session_that_ended_keeps_its_end(process: StoreProcess) -> None:
    first = await process.talk()
    at = process.now
    await process.store.run(expire, key_of(), (await process.entry()).fence, "idle", at + HOUR)
    process.clock.advance(DAY)
    await process.command("/new")
    ends = await process.look("SELECT end_reason, ended_at FROM session WHERE session_id=$1", first.session_id)
    assert ends == [("idle", at + HOUR)]


async def test_messages_behind_a_suspended_turn_wait_until_their_sender_writes(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.accept("two")
    process.clock.advance(1)
    await process.store.run(suspend_session, key_of(), process.now)
    assert await process.begin() is None
    process.clock.advance(1)
    await process.accept("three")
    second = await process.began()
    assert (second.texts, second.session_id != begun.session_id) == (("two",), True)
    await process.finish(second)
    assert (await process.began()).texts == ("three",)
    assert await process.states("inbox") == ["dead", "done", "claimed"]


async def test_a_named_zone_decides_when_a_day_ends(process: StoreProcess) -> None:
    berlin = replace(process, policy=ResetPolicy("daily", at_hour=4, timezone="Europe/Berlin"))
    await process.plant("DELETE FROM entry")
    first = await berlin.talk()  # 08:00 UTC on 15 January 2027: 09:00 in Berlin
    process.clock.advance(18.5 * HOUR)  # 02:30 UTC: 03:30 in Berlin
    assert (await berlin.talk("night")).session_id == first.session_id
    process.clock.advance(HOUR)  # 03:30 UTC: 04:30 in Berlin
    assert (await berlin.talk("morning")).session_id != first.session_id


# -- many at once -----------------------------------------------------------------------------------------------------


async def test_entries_are_listed_in_pages(process: StoreProcess) -> None:
    for chat in ("a", "b", "d"):
        await process.talk(chat=chat)
    await process.begun(chat="c")
    await process.accept(chat="never begun")
    first = await process.store.read(list_entries, "", 3)
    rest = await process.store.read(list_entries, str(first[-1]["key"]), 3)
    assert [each["key"] for each in first + rest] == [key_of(chat) for chat in "abcd"]
    assert [each["running"] for each in first + rest] == [False, False, True, False]
    assert {each["messages"] for each in first} == {1, 2}


async def test_a_listed_entry_says_how_the_session_before_it_ended(process: StoreProcess) -> None:
    first = await process.talk()
    await process.command("/new")
    (listed,) = await process.store.read(list_entries, "", 10)
    assert (listed["previous_session_id"], listed["end_reason"]) == (first.session_id, "new")
    assert (listed["state"], listed["reason"], listed["auto_reset_reason"]) == ("active", None, None)


async def test_a_key_that_was_never_seen_has_no_entry(process: StoreProcess) -> None:
    assert await process.store.read(find_entry, key_of("nobody")) is None
