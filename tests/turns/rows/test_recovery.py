"""Recovery as rows: the turns of a dead instance are judged together, recovered once, counted fairly; and the instances."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.lifecycle.rows import (
    find_others,
    found_unclean,
    heartbeat,
    join,
    last_end,
    newest_id,
    open_instances,
    record_drain,
    record_end,
    record_lock,
    unclean_boots,
)
from everturn.model import ACTIVE, ResumePending, Suspended
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import Recovered, cut_off, cut_off_by_drain, interrupted_keys, judge, notify_too_old
from everturn.turns.rows.turn_values import NotYet, StartedTurn
from everturn.turns.rows.turns import calling, prove
from everturn.turns.rules.recovery import RecoveryVerdict
from tests.contracts.store import BY_EVENT, StoreProcess, broken, key_of, living

HOUR = 3600.0


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def call_again(process: StoreProcess, chat: str = "c") -> StartedTurn:
    """Resume a turn, up to its next call of the model."""
    begun = await process.began(chat)
    await process.store.run(calling, begun)
    return begun


# -- one turn ---------------------------------------------------------------------------------------------------------


async def test_a_turn_without_a_model_call_goes_back_without_mark_or_count(process: StoreProcess) -> None:
    begun = await process.begun()
    (recovered,) = await process.die()
    entry = await process.entry()
    assert (recovered.verdict, entry.state, entry.unclean_ends) == (RecoveryVerdict.REQUEUE, ACTIVE, 0)
    again = await process.began()
    assert (again.turn, again.attempt, again.note, again.texts) == (begun.turn, 2, None, ("hello",))
    assert await process.look("SELECT count(*) FROM message") == [(1,)]


async def test_a_death_counts_from_the_beginning_where_the_agents_code_is_not_ours(process: StoreProcess) -> None:
    theirs = replace(process, counts=True)
    begun = await theirs.begun()
    ends = [await theirs.die()]
    again = [await theirs.began()]
    ends.append(await theirs.die())
    again.append(await theirs.began())
    ends.append(await theirs.die())
    assert [each.verdict for end in ends for each in end] == [
        RecoveryVerdict.COUNT,
        RecoveryVerdict.COUNT,
        RecoveryVerdict.SUSPEND,
    ]
    assert [(each.called, each.note is not None) for each in (begun, *again)] == [
        (True, False), (True, True), (True, True),
    ]  # fmt: skip
    assert isinstance((await process.entry()).state, Suspended)


async def test_a_turn_that_was_cut_off_is_marked_counted_and_goes_on(process: StoreProcess) -> None:
    """The same session, the same turn, from its last committed step."""
    begun = await process.called()
    await process.tool(begun)
    (recovered,) = await process.die("shutdown_timeout")
    entry = await process.entry()
    assert (recovered.verdict, entry.unclean_ends) == (RecoveryVerdict.COUNT, 1)
    assert entry.state == ResumePending("shutdown_timeout", process.now)
    assert (entry.turn, entry.holder, entry.seq, entry.tail) == (begun.turn, None, 3, True)
    again = await process.began()
    assert again.note is not None
    assert (again.session_id, again.seq, again.first_seq, again.note.kind) == (
        begun.session_id, 3, 1, "resume:shutdown_timeout",
    )  # fmt: skip


async def test_every_attempt_is_remembered(process: StoreProcess) -> None:
    begun = await process.called()
    await process.die()
    process.clock.advance(5)
    await call_again(process)
    await process.die("restart_timeout")
    rows = await process.look("SELECT attempt, note, started_at, ended_at, why FROM attempt ORDER BY attempt")
    start = process.now - 5
    assert rows == [
        (1, None, start, start, "the gateway ended"),
        (2, "resume:restart_interrupted", process.now, process.now, "the gateway ended"),
    ]
    assert await process.look("SELECT id, attempt FROM turn") == [(begun.turn, 2)]


async def test_cutting_off_twice_acts_once(process: StoreProcess) -> None:
    for verdict in RecoveryVerdict:
        begun = await process.called(chat=verdict)
        args = (begun.turn, begun.key, verdict, process.cause(), process.delivery)
        assert isinstance(await process.store.run(cut_off, *args), Recovered)
        assert await process.unchanged(cut_off, *args) is None


async def test_a_turn_of_another_instance_is_not_cut_off(process: StoreProcess) -> None:
    begun = await process.called()
    other = replace(process, instance=2)
    assert (
        await process.unchanged(cut_off, begun.turn, begun.key, RecoveryVerdict.COUNT, other.cause(), process.delivery)
        is None
    )
    assert await process.store.run(judge, 2, 3) == []


async def test_judging_twice_says_the_same(process: StoreProcess) -> None:
    for chat in "ab":
        await process.called(chat=chat)
        await process.plant("UPDATE entry SET unclean_ends=2 WHERE key=$1", key_of(chat))
    await process.begun(chat="c")
    verdicts = await process.twice(judge, 1, 3)
    assert [verdict for _, _, verdict in verdicts] == [
        RecoveryVerdict.SUSPEND,
        RecoveryVerdict.SUSPEND,
        RecoveryVerdict.REQUEUE,
    ]


# -- counting ---------------------------------------------------------------------------------------------------------


async def test_the_third_unclean_end_in_a_row_suspends_and_tells(process: StoreProcess) -> None:
    """Promise 9: the count survives starts, and fires at three."""
    begun = await process.called()
    await process.accept("queued behind")
    await process.die()
    for _ in range(2):
        await call_again(process)
        await process.die()
    entry = await process.entry()
    assert (entry.state, entry.unclean_ends, entry.turn) == (Suspended("stuck", process.now), 3, None)
    assert (await process.states("turn"), await process.states("inbox")) == (["suspended"], ["dead", "queued"])
    ((kind, text),) = await process.look("SELECT kind, text FROM outbox")
    assert (kind, "three times" in text, "/resume" in text, "1 queued message" in text) == ("notice", True, True, True)
    assert await process.look("SELECT mark FROM session WHERE session_id=$1", begun.session_id) == [
        ("restart_interrupted",)
    ]


async def test_a_successful_turn_forgets_the_count(process: StoreProcess) -> None:
    await process.called()
    await process.die()
    await process.finish(await call_again(process))
    assert (await process.entry()).unclean_ends == 0
    for _ in range(2):
        await process.called("again") if (await process.entry()).turn is None else await call_again(process)
        await process.die()
    assert isinstance((await process.entry()).state, ResumePending)


async def test_with_the_breaker_off_nobody_is_suspended(process: StoreProcess) -> None:
    here = replace(process, stuck_after=0)
    await here.called()
    for _ in range(5):
        await here.die()
        await call_again(here)
    assert ((await process.entry()).unclean_ends, await process.states("turn")) == (5, ["running"])


async def test_of_two_suspects_the_one_that_proved_itself_is_spared(process: StoreProcess) -> None:
    """Design 7: blame is fair."""
    turns = {chat: await process.called(chat=chat) for chat in ("proven", "unproven", "neighbour")}
    await process.plant("UPDATE entry SET unclean_ends=2 WHERE key<>$1", key_of("neighbour"))
    await process.store.run(prove, turns["proven"])
    verdicts = {recovered.key: recovered.verdict for recovered in await process.die()}
    assert verdicts == {
        key_of("proven"): RecoveryVerdict.SPARE, key_of("unproven"): RecoveryVerdict.SUSPEND, key_of("neighbour"): RecoveryVerdict.COUNT,
    }  # fmt: skip
    assert [(await process.entry(chat)).unclean_ends for chat in turns] == [2, 3, 1]


async def test_a_verdict_is_kept_when_recovery_dies_in_the_middle(process: StoreProcess) -> None:
    """Without the turn that was recovered already, the other would look guilty."""
    turns = [await process.called(chat=chat) for chat in ("proven", "unproven")]
    await process.plant("UPDATE entry SET unclean_ends=2")
    await process.store.run(prove, turns[0])
    first = await process.store.run(judge, 1, 3)
    guilty = next(each for each in first if each[2] is RecoveryVerdict.SUSPEND)
    await process.store.run(cut_off, *guilty, process.cause(), process.delivery)
    assert await process.store.run(judge, 1, 3) == [(turns[0].turn, turns[0].key, RecoveryVerdict.SPARE)]


async def test_a_suspects_turn_begins_only_when_it_may(process: StoreProcess) -> None:
    await process.called()
    await process.die()
    await call_again(process)
    await process.die()
    assert await process.unchanged(begin_next, key_of(), process.start(suspects=False)) == NotYet(key_of())
    begun = await process.began()
    assert begun.unclean_ends == 2


async def test_a_message_to_a_suspect_does_not_begin_with_its_commit(process: StoreProcess) -> None:
    begun = await process.called()
    await process.plant("UPDATE entry SET unclean_ends=2")
    await process.command("/stop")
    assert (await process.entry()).unclean_ends == 2
    with pytest.raises(AssertionError):
        await process.begun("next")
    assert (await process.began()).session_id == begun.session_id


async def test_a_message_to_a_suspended_session_is_nobody_to_suspect(process: StoreProcess) -> None:
    """Its next message starts a new session, so it waits for no suspect."""
    begun = await process.called()
    await process.plant("UPDATE entry SET unclean_ends=2")
    await process.die()
    fresh = await process.begun("next")
    assert (fresh.session_id != begun.session_id, fresh.unclean_ends) == (True, 0)


# -- draining ---------------------------------------------------------------------------------------------------------


async def test_a_drain_marks_counts_and_is_not_counted_again(process: StoreProcess) -> None:
    begun = await process.called()
    cause = process.cause("restart_timeout")
    marked = await process.store.run(cut_off_by_drain, begun.turn, begun.key, 3, cause, process.delivery)
    assert marked is not None
    assert (marked.verdict, (await process.entry()).state) == (
        RecoveryVerdict.COUNT,
        ResumePending("restart_timeout", process.now),
    )
    assert await process.unchanged(cut_off_by_drain, begun.turn, begun.key, 3, cause, process.delivery) is None
    assert await process.die() == []
    assert (await process.entry()).unclean_ends == 1


@pytest.mark.parametrize(
    ("drains", "verdict"), [(1, RecoveryVerdict.SPARE), (9, RecoveryVerdict.SPARE), (10, RecoveryVerdict.SUSPEND)]
)
async def test_a_drain_spares_a_turn_with_progress_though_not_for_ever(
    process: StoreProcess, drains: int, verdict: RecoveryVerdict
) -> None:
    """Design 6: three deployments during a long task are not a loop; ten are."""
    begun = await process.called()
    await process.plant("UPDATE turn SET attempt=$2, called=$2 WHERE id=$1", begun.turn, drains)
    await process.plant("UPDATE entry SET unclean_ends=2")
    await process.tool(replaced_attempt(begun, drains))
    cause = process.cause("restart_timeout")
    marked = await process.store.run(cut_off_by_drain, begun.turn, begun.key, 3, cause, process.delivery)
    assert marked is not None
    assert marked.verdict is verdict


def replaced_attempt(begun: StartedTurn, attempt: int) -> StartedTurn:
    return StartedTurn(**{name: getattr(begun, name) for name in StartedTurn.__struct_fields__} | {"attempt": attempt})


async def test_a_turn_that_finished_is_not_marked_by_a_drain(process: StoreProcess) -> None:
    begun = await process.talk()
    assert (
        await process.unchanged(cut_off_by_drain, begun.turn, begun.key, 3, process.cause(), process.delivery) is None
    )


async def test_a_turn_that_only_began_is_not_marked_by_a_drain(process: StoreProcess) -> None:
    begun = await process.begun()
    marked = await process.store.run(cut_off_by_drain, begun.turn, begun.key, 3, process.cause(), process.delivery)
    assert marked is not None
    assert (marked.verdict, (await process.entry()).state) == (RecoveryVerdict.REQUEUE, ACTIVE)


# -- two at once ------------------------------------------------------------------------------------------------------


async def test_two_recoveries_of_one_death_act_once(process: StoreProcess) -> None:
    for number in range(8):
        await process.called(chat=str(number))
    await process.plant("UPDATE entry SET unclean_ends=2 WHERE key=$1", key_of("0"))
    ends = await asyncio.gather(process.die(), process.die(), process.die())
    assert sorted(recovered.key for end in ends for recovered in end) == [key_of(str(n)) for n in range(8)]
    assert [(await process.entry(str(number))).unclean_ends for number in range(8)] == [3, *[1] * 7]
    assert len(await process.look("SELECT turn FROM attempt")) == 8
    assert len(await process.look("SELECT id FROM outbox")) == 1
    assert await process.store.read(broken) == {}


async def test_a_resume_and_a_new_message_at_once_are_one_turn(process: StoreProcess) -> None:
    for number in range(10):
        chat = str(number)
        begun = await process.called("one", chat)
        await process.die()
        two = replace(process, instance=2)
        claims = await asyncio.gather(process.begin(chat), two.accept("two", chat), two.begin(chat))
        winners = [claim for claim in claims if isinstance(claim, StartedTurn)]
        assert [(winner.turn, winner.attempt) for winner in winners] == [(begun.turn, 2)]
    assert await process.store.read(broken) == {}


async def test_an_idle_session_is_simply_continued(process: StoreProcess) -> None:
    """No guess by time, no mark, no note."""
    before = await process.talk()
    assert await process.die() == []
    after = await process.begun("next")
    assert (after.session_id, after.note, after.first_seq) == (before.session_id, None, 3)


# -- what does not go on by itself ------------------------------------------------------------------------------------


async def test_an_interrupted_turn_that_is_too_old_waits_and_tells_once(process: StoreProcess) -> None:
    begun = await process.called()
    await process.die()
    process.clock.advance(2 * HOUR)
    assert await process.unchanged(begin_next, key_of(), process.start()) is None
    assert await process.store.read(interrupted_keys) == [
        (key_of(), begun.turn, "restart_interrupted", process.now - 2 * HOUR, None)
    ]
    await process.twice(notify_too_old, begun.turn, key_of(), process.start())
    process.clock.advance(1)
    await process.unchanged(notify_too_old, begun.turn, key_of(), process.start())
    assert await process.look("SELECT count(*) FROM outbox WHERE kind='notice'") == [(1,)]
    again = await process.accept("go on")
    assert again.begun is None
    assert (await process.began()).texts == ("hello", "go on")


async def test_with_a_timed_reset_the_notice_says_that_the_next_message_resets(process: StoreProcess) -> None:
    timed = replace(process, policy=ResetPolicy("daily"))
    begun = await timed.called()
    await timed.die()
    process.clock.advance(2 * HOUR)
    await timed.store.run(notify_too_old, begun.turn, key_of(), timed.start())
    (notice,) = await process.look("SELECT text FROM outbox WHERE kind='notice'")
    assert "Send /resume to continue it. Any other message begins a fresh conversation" in notice[0]
    await timed.accept("something else")
    fresh = await timed.began()
    assert (fresh.session_id != begun.session_id, fresh.texts) == (True, ("something else",))
    await timed.finish(fresh)
    await timed.command("/resume 1")
    back = await timed.begun("go on")
    assert back.note is not None
    assert (back.session_id, back.note.kind) == (begun.session_id, "resume:restart_interrupted")


async def test_resume_continues_a_task_that_was_interrupted_too_long_ago(process: StoreProcess) -> None:
    timed = replace(process, policy=ResetPolicy("daily"))
    begun = await timed.called()
    await timed.die()
    process.clock.advance(2 * HOUR)
    await timed.store.run(notify_too_old, begun.turn, key_of(), timed.start())
    await timed.command("/resume")
    again = await timed.began()
    assert (again.turn, again.attempt, again.session_id) == (begun.turn, 2, begun.session_id)


async def test_an_interruption_is_an_event_where_events_are_the_delivery(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.called()
    (recovered,) = await here.die()
    assert [(event.seq, event.kind) for event in recovered.events] == [(3, "turn")]
    assert '"interrupted"' in recovered.events[0].data


# -- instances --------------------------------------------------------------------------------------------------------


async def test_every_instance_has_a_number_of_its_own(process: StoreProcess) -> None:
    first = await process.twice(join, "a", "host", 1, process.now)
    assert first == 1
    numbers = await asyncio.gather(*(joined(process, f"token {n}") for n in range(10)))
    assert sorted(numbers) == list(range(2, 12))


async def joined(process: StoreProcess, token: str) -> int:
    number = 0
    while not number:  # another start may have taken the number at the same moment
        number = await process.store.run(join, token, "host", 1, process.now)
    return number


async def test_an_instance_without_an_end_is_found_with_its_drain(process: StoreProcess) -> None:
    for token in "abcd":
        number = await process.store.run(join, token, "host", 1, process.now)
        if token != "d":  # it joined, and died before anybody could see it alive: it owns nothing
            await process.twice(record_lock, number, process.now)
    assert await process.twice(heartbeat, 1, process.now + 3, process.now + 4) is True
    await process.twice(record_drain, 1, "restart", "deploy", process.now)
    await process.unchanged(record_drain, 1, "stop", "another", process.now)
    await process.twice(record_end, 2, "stop", process.now)
    await process.unchanged(record_end, 2, "unclean", process.now + 1)
    (left,) = await process.store.read(open_instances, 3)
    assert (left.number, left.heartbeat_at, left.drain_kind) == (1, process.now + 3, "restart")
    assert left.alive_at == process.now + 4
    assert await process.store.read(last_end, 3) == ("stop", process.now, None)
    assert await process.store.read(last_end, 2) is None


async def test_a_heartbeat_of_a_closed_instance_is_refused(process: StoreProcess) -> None:
    number = await process.store.run(join, "a", "host", 1, process.now)
    await process.store.run(record_end, number, "unclean", process.now)
    assert await process.unchanged(heartbeat, number, process.now + 3, process.now + 3) is False


async def test_an_instance_that_ended_and_still_owns_work_is_found(process: StoreProcess) -> None:
    for token in "abc":
        number = await process.store.run(join, token, "host", 1, process.now)
        await process.store.run(record_lock, number, process.now)
    await process.called("runs")
    two = replace(process, instance=2)
    await two.talk(chat="sending")
    assert await two.claim("sending") is not None
    assert (await process.store.read(find_others, 3)).left == []
    for number in (1, 2):
        await process.store.run(record_end, number, "unclean", process.now)
    found = await process.store.read(find_others, 3)
    assert ([each.number for each in found.left], found.open, found.ended) == ([1, 2], [], 2)
    await process.die()
    assert [each.number for each in (await process.store.read(find_others, 3)).left] == [2]


async def test_unclean_boots_are_remembered_by_their_start(process: StoreProcess) -> None:
    for number, token in enumerate("abc", 1):
        await process.store.run(join, token, "host", 1, process.now)
        await process.twice(found_unclean, number)
        process.clock.advance(100)
    assert await process.store.read(unclean_boots, process.now - 250) == [process.now - 200, process.now - 100]


async def test_the_newest_id_is_the_largest_of_all(process: StoreProcess) -> None:
    assert await process.store.read(newest_id) == 0
    arrival = await process.begun()
    assert await process.store.read(newest_id) == arrival.turn
    await process.accept("next")
    assert await process.store.read(newest_id) > arrival.turn
