"""What a death left behind: judged together, put right once, counted fairly; and the lives of processes themselves."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.decide.recovery import Verdict
from everturn.decide.session import ResetPolicy
from everturn.model import ACTIVE, ResumePending, Suspended
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.instances import (
    find_others,
    found_unclean,
    heartbeat,
    held,
    join,
    last_end,
    newest_id,
    record_drain,
    record_end,
    unclean_boots,
    without_end,
)
from everturn.store.operations.recovery import (
    Recovered,
    cut_off,
    cut_off_by_drain,
    interrupted_keys,
    judge,
    tell_too_old,
)
from everturn.store.operations.turn_values import Begun, NotYet
from everturn.store.operations.turns import calling, prove
from tests.contracts.store import BY_EVENT, Life, broken, key_of, living

HOUR = 3600.0


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def call_again(life: Life, chat: str = "c") -> Begun:
    """Resume a turn, up to its next call of the model."""
    begun = await life.began(chat)
    await life.store.run(calling, begun)
    return begun


# -- one turn ---------------------------------------------------------------------------------------------------------


async def test_a_turn_without_a_model_call_goes_back_without_mark_or_count(life: Life) -> None:
    begun = await life.begun()
    (recovered,) = await life.die()
    entry = await life.entry()
    assert (recovered.verdict, entry.state, entry.unclean_ends) == (Verdict.REQUEUE, ACTIVE, 0)
    again = await life.began()
    assert (again.turn, again.attempt, again.note, again.words) == (begun.turn, 2, None, ("hello",))
    assert await life.look("SELECT count(*) FROM message") == [(1,)]


async def test_a_death_counts_from_the_beginning_where_the_agents_code_is_not_ours(life: Life) -> None:
    theirs = replace(life, counts=True)
    begun = await theirs.begun()
    ends = [await theirs.die()]
    again = [await theirs.began()]
    ends.append(await theirs.die())
    again.append(await theirs.began())
    ends.append(await theirs.die())
    assert [each.verdict for end in ends for each in end] == [Verdict.COUNT, Verdict.COUNT, Verdict.SUSPEND]
    assert [(each.called, each.note is not None) for each in (begun, *again)] == [
        (True, False), (True, True), (True, True),
    ]  # fmt: skip
    assert isinstance((await life.entry()).state, Suspended)


async def test_a_turn_that_was_cut_off_is_marked_counted_and_goes_on(life: Life) -> None:
    """The same session, the same turn, from its last committed step."""
    begun = await life.called()
    await life.tool(begun)
    (recovered,) = await life.die("shutdown_timeout")
    entry = await life.entry()
    assert (recovered.verdict, entry.unclean_ends) == (Verdict.COUNT, 1)
    assert entry.state == ResumePending("shutdown_timeout", life.now)
    assert (entry.turn, entry.holder, entry.seq, entry.tail) == (begun.turn, None, 3, True)
    again = await life.began()
    assert again.note is not None
    assert (again.session_id, again.seq, again.first_seq, again.note.kind) == (
        begun.session_id, 3, 1, "resume:shutdown_timeout",
    )  # fmt: skip


async def test_every_attempt_is_remembered(life: Life) -> None:
    begun = await life.called()
    await life.die()
    life.clock.advance(5)
    await call_again(life)
    await life.die("restart_timeout")
    rows = await life.look("SELECT attempt, note, started_at, ended_at, why FROM attempt ORDER BY attempt")
    start = life.now - 5
    assert rows == [
        (1, None, start, start, "the gateway ended"),
        (2, "resume:restart_interrupted", life.now, life.now, "the gateway ended"),
    ]
    assert await life.look("SELECT id, attempt FROM turn") == [(begun.turn, 2)]


async def test_cutting_off_twice_acts_once(life: Life) -> None:
    for verdict in Verdict:
        begun = await life.called(chat=verdict)
        args = (begun.turn, begun.key, verdict, life.cause(), life.delivery)
        assert isinstance(await life.store.run(cut_off, *args), Recovered)
        assert await life.unchanged(cut_off, *args) is None


async def test_a_turn_of_another_life_is_not_cut_off(life: Life) -> None:
    begun = await life.called()
    other = replace(life, instance=2)
    assert await life.unchanged(cut_off, begun.turn, begun.key, Verdict.COUNT, other.cause(), life.delivery) is None
    assert await life.store.run(judge, 2, 3) == []


async def test_judging_twice_says_the_same(life: Life) -> None:
    for chat in "ab":
        await life.called(chat=chat)
        await life.plant("UPDATE entry SET unclean_ends=2 WHERE key=$1", key_of(chat))
    await life.begun(chat="c")
    verdicts = await life.twice(judge, 1, 3)
    assert [verdict for _, _, verdict in verdicts] == [Verdict.SUSPEND, Verdict.SUSPEND, Verdict.REQUEUE]


# -- counting ---------------------------------------------------------------------------------------------------------


async def test_the_third_unclean_end_in_a_row_suspends_and_tells(life: Life) -> None:
    """Promise 9: the count survives starts, and fires at three."""
    begun = await life.called()
    await life.accept("queued behind")
    await life.die()
    for _ in range(2):
        await call_again(life)
        await life.die()
    entry = await life.entry()
    assert (entry.state, entry.unclean_ends, entry.turn) == (Suspended("stuck", life.now), 3, None)
    assert (await life.states("turn"), await life.states("inbox")) == (["suspended"], ["dead", "waiting"])
    ((kind, text),) = await life.look("SELECT kind, text FROM outbox")
    assert (kind, "three times" in text, "/resume" in text, "1 message" in text) == ("notice", True, True, True)
    assert await life.look("SELECT mark FROM session WHERE session_id=$1", begun.session_id) == [
        ("restart_interrupted",)
    ]


async def test_a_successful_turn_forgets_the_count(life: Life) -> None:
    await life.called()
    await life.die()
    await life.finish(await call_again(life))
    assert (await life.entry()).unclean_ends == 0
    for _ in range(2):
        await life.called("again") if (await life.entry()).turn is None else await call_again(life)
        await life.die()
    assert isinstance((await life.entry()).state, ResumePending)


async def test_with_the_breaker_off_nobody_is_suspended(life: Life) -> None:
    here = replace(life, stuck_after=0)
    await here.called()
    for _ in range(5):
        await here.die()
        await call_again(here)
    assert ((await life.entry()).unclean_ends, await life.states("turn")) == (5, ["running"])


async def test_of_two_suspects_the_one_that_proved_itself_is_spared(life: Life) -> None:
    """Design 7: blame is fair."""
    turns = {chat: await life.called(chat=chat) for chat in ("proven", "unproven", "neighbour")}
    await life.plant("UPDATE entry SET unclean_ends=2 WHERE key<>$1", key_of("neighbour"))
    await life.store.run(prove, turns["proven"])
    verdicts = {recovered.key: recovered.verdict for recovered in await life.die()}
    assert verdicts == {
        key_of("proven"): Verdict.SPARE, key_of("unproven"): Verdict.SUSPEND, key_of("neighbour"): Verdict.COUNT,
    }  # fmt: skip
    assert [(await life.entry(chat)).unclean_ends for chat in turns] == [2, 3, 1]


async def test_a_verdict_is_kept_when_recovery_dies_in_the_middle(life: Life) -> None:
    """Without the one that was put right already, the other would look guilty."""
    turns = [await life.called(chat=chat) for chat in ("proven", "unproven")]
    await life.plant("UPDATE entry SET unclean_ends=2")
    await life.store.run(prove, turns[0])
    first = await life.store.run(judge, 1, 3)
    guilty = next(each for each in first if each[2] is Verdict.SUSPEND)
    await life.store.run(cut_off, *guilty, life.cause(), life.delivery)
    assert await life.store.run(judge, 1, 3) == [(turns[0].turn, turns[0].key, Verdict.SPARE)]


async def test_a_suspects_turn_begins_only_when_it_may(life: Life) -> None:
    await life.called()
    await life.die()
    await call_again(life)
    await life.die()
    assert await life.unchanged(begin_next, key_of(), life.start(suspects=False)) == NotYet(key_of())
    begun = await life.began()
    assert begun.unclean_ends == 2


async def test_a_message_to_a_suspect_does_not_begin_with_its_commit(life: Life) -> None:
    begun = await life.called()
    await life.plant("UPDATE entry SET unclean_ends=2")
    await life.command("/stop")
    assert (await life.entry()).unclean_ends == 2
    with pytest.raises(AssertionError):
        await life.begun("next")
    assert (await life.began()).session_id == begun.session_id


async def test_a_message_to_a_suspended_session_is_nobody_to_suspect(life: Life) -> None:
    """It starts a fresh session, so it waits for no suspect."""
    begun = await life.called()
    await life.plant("UPDATE entry SET unclean_ends=2")
    await life.die()
    fresh = await life.begun("next")
    assert (fresh.session_id != begun.session_id, fresh.unclean_ends) == (True, 0)


# -- draining ---------------------------------------------------------------------------------------------------------


async def test_a_drain_marks_counts_and_is_not_counted_again(life: Life) -> None:
    begun = await life.called()
    cause = life.cause("restart_timeout")
    marked = await life.store.run(cut_off_by_drain, begun.turn, begun.key, 3, cause, life.delivery)
    assert marked is not None
    assert (marked.verdict, (await life.entry()).state) == (Verdict.COUNT, ResumePending("restart_timeout", life.now))
    assert await life.unchanged(cut_off_by_drain, begun.turn, begun.key, 3, cause, life.delivery) is None
    assert await life.die() == []
    assert (await life.entry()).unclean_ends == 1


@pytest.mark.parametrize(("drains", "verdict"), [(1, Verdict.SPARE), (9, Verdict.SPARE), (10, Verdict.SUSPEND)])
async def test_a_drain_spares_who_moves_on_though_not_for_ever(life: Life, drains: int, verdict: Verdict) -> None:
    """Design 6: three deployments during a long task are not a loop; ten are."""
    begun = await life.called()
    await life.plant("UPDATE turn SET attempt=$2, called=$2 WHERE id=$1", begun.turn, drains)
    await life.plant("UPDATE entry SET unclean_ends=2")
    await life.tool(replaced_attempt(begun, drains))
    cause = life.cause("restart_timeout")
    marked = await life.store.run(cut_off_by_drain, begun.turn, begun.key, 3, cause, life.delivery)
    assert marked is not None
    assert marked.verdict is verdict


def replaced_attempt(begun: Begun, attempt: int) -> Begun:
    return Begun(**{name: getattr(begun, name) for name in Begun.__struct_fields__} | {"attempt": attempt})


async def test_a_turn_that_finished_is_not_marked_by_a_drain(life: Life) -> None:
    begun = await life.talk()
    assert await life.unchanged(cut_off_by_drain, begun.turn, begun.key, 3, life.cause(), life.delivery) is None


async def test_a_turn_that_only_began_is_not_marked_by_a_drain(life: Life) -> None:
    begun = await life.begun()
    marked = await life.store.run(cut_off_by_drain, begun.turn, begun.key, 3, life.cause(), life.delivery)
    assert marked is not None
    assert (marked.verdict, (await life.entry()).state) == (Verdict.REQUEUE, ACTIVE)


# -- two at once ------------------------------------------------------------------------------------------------------


async def test_two_recoveries_of_one_death_act_once(life: Life) -> None:
    for number in range(8):
        await life.called(chat=str(number))
    await life.plant("UPDATE entry SET unclean_ends=2 WHERE key=$1", key_of("0"))
    ends = await asyncio.gather(life.die(), life.die(), life.die())
    assert sorted(recovered.key for end in ends for recovered in end) == [key_of(str(n)) for n in range(8)]
    assert [(await life.entry(str(number))).unclean_ends for number in range(8)] == [3, *[1] * 7]
    assert len(await life.look("SELECT turn FROM attempt")) == 8
    assert len(await life.look("SELECT id FROM outbox")) == 1
    assert await life.store.read(broken) == {}


async def test_a_resume_and_a_new_message_at_once_are_one_turn(life: Life) -> None:
    for number in range(10):
        chat = str(number)
        begun = await life.called("one", chat)
        await life.die()
        two = replace(life, instance=2)
        claims = await asyncio.gather(life.begin(chat), two.accept("two", chat), two.begin(chat))
        winners = [claim for claim in claims if isinstance(claim, Begun)]
        assert [(winner.turn, winner.attempt) for winner in winners] == [(begun.turn, 2)]
    assert await life.store.read(broken) == {}


async def test_an_idle_session_is_simply_continued(life: Life) -> None:
    """No guess by time, no mark, no note."""
    before = await life.talk()
    assert await life.die() == []
    after = await life.begun("next")
    assert (after.session_id, after.note, after.first_seq) == (before.session_id, None, 3)


# -- what does not go on by itself ------------------------------------------------------------------------------------


async def test_an_interrupted_turn_that_is_too_old_waits_and_tells_once(life: Life) -> None:
    begun = await life.called()
    await life.die()
    life.clock.advance(2 * HOUR)
    assert await life.unchanged(begin_next, key_of(), life.start()) is None
    assert await life.store.read(interrupted_keys) == [
        (key_of(), begun.turn, "restart_interrupted", life.now - 2 * HOUR, None)
    ]
    await life.twice(tell_too_old, begun.turn, key_of(), life.start())
    life.clock.advance(1)
    await life.unchanged(tell_too_old, begun.turn, key_of(), life.start())
    assert await life.look("SELECT count(*) FROM outbox WHERE kind='notice'") == [(1,)]
    again = await life.accept("go on")
    assert again.begun is None
    assert (await life.began()).words == ("hello", "go on")


async def test_with_a_timed_reset_the_notice_says_that_the_next_message_begins_afresh(life: Life) -> None:
    timed = replace(life, policy=ResetPolicy("daily"))
    begun = await timed.called()
    await timed.die()
    life.clock.advance(2 * HOUR)
    await timed.store.run(tell_too_old, begun.turn, key_of(), timed.start())
    (notice,) = await life.look("SELECT text FROM outbox WHERE kind='notice'")
    assert "Send /resume to continue it. Any other message begins a fresh conversation" in notice[0]
    await timed.accept("something else")
    fresh = await timed.began()
    assert (fresh.session_id != begun.session_id, fresh.words) == (True, ("something else",))
    await timed.finish(fresh)
    await timed.command("/resume 1")
    back = await timed.begun("go on")
    assert back.note is not None
    assert (back.session_id, back.note.kind) == (begun.session_id, "resume:restart_interrupted")


async def test_resume_continues_a_task_that_was_interrupted_too_long_ago(life: Life) -> None:
    timed = replace(life, policy=ResetPolicy("daily"))
    begun = await timed.called()
    await timed.die()
    life.clock.advance(2 * HOUR)
    await timed.store.run(tell_too_old, begun.turn, key_of(), timed.start())
    await timed.command("/resume")
    again = await timed.began()
    assert (again.turn, again.attempt, again.session_id) == (begun.turn, 2, begun.session_id)


async def test_an_interruption_is_an_event_where_events_are_the_delivery(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.called()
    (recovered,) = await here.die()
    assert [(event.seq, event.kind) for event in recovered.events] == [(3, "turn")]
    assert '"interrupted"' in recovered.events[0].data


# -- lives ------------------------------------------------------------------------------------------------------------


async def test_every_life_has_a_number_of_its_own(life: Life) -> None:
    first = await life.twice(join, "a", "host", 1, life.now)
    assert first == 1
    numbers = await asyncio.gather(*(joined(life, f"token {n}") for n in range(10)))
    assert sorted(numbers) == list(range(2, 12))


async def joined(life: Life, token: str) -> int:
    number = 0
    while not number:  # another start may have taken the number at the same moment
        number = await life.store.run(join, token, "host", 1, life.now)
    return number


async def test_a_life_without_an_end_is_found_with_its_drain(life: Life) -> None:
    for token in "abcd":
        number = await life.store.run(join, token, "host", 1, life.now)
        if token != "d":  # it joined, and died before anybody could see it alive: it owns nothing
            await life.twice(held, number, life.now)
    assert await life.twice(heartbeat, 1, life.now + 3, life.now + 4) is True
    await life.twice(record_drain, 1, "restart", "deploy", life.now)
    await life.unchanged(record_drain, 1, "stop", "another", life.now)
    await life.twice(record_end, 2, "stop", life.now)
    await life.unchanged(record_end, 2, "unclean", life.now + 1)
    (left,) = await life.store.read(without_end, 3)
    assert (left.number, left.heartbeat_at, left.drain_kind) == (1, life.now + 3, "restart")
    assert left.alive_at == life.now + 4
    assert await life.store.read(last_end, 3) == ("stop", life.now, None)
    assert await life.store.read(last_end, 2) is None


async def test_a_heartbeat_of_a_closed_instance_is_refused(life: Life) -> None:
    number = await life.store.run(join, "a", "host", 1, life.now)
    await life.store.run(record_end, number, "unclean", life.now)
    assert await life.unchanged(heartbeat, number, life.now + 3, life.now + 3) is False


async def test_an_instance_that_ended_and_still_owns_work_is_found(life: Life) -> None:
    for token in "abc":
        number = await life.store.run(join, token, "host", 1, life.now)
        await life.store.run(held, number, life.now)
    await life.called("runs")
    two = replace(life, instance=2)
    await two.talk(chat="owes")
    assert await two.claim("owes") is not None
    assert (await life.store.read(find_others, 3)).left == []
    for number in (1, 2):
        await life.store.run(record_end, number, "unclean", life.now)
    found = await life.store.read(find_others, 3)
    assert ([each.number for each in found.left], found.open, found.ended) == ([1, 2], [], 2)
    await life.die()
    assert [each.number for each in (await life.store.read(find_others, 3)).left] == [2]


async def test_unclean_boots_are_remembered_by_their_start(life: Life) -> None:
    for number, token in enumerate("abc", 1):
        await life.store.run(join, token, "host", 1, life.now)
        await life.twice(found_unclean, number)
        life.clock.advance(100)
    assert await life.store.read(unclean_boots, life.now - 250) == [life.now - 200, life.now - 100]


async def test_the_newest_id_is_the_largest_of_all(life: Life) -> None:
    assert await life.store.read(newest_id) == 0
    arrival = await life.begun()
    assert await life.store.read(newest_id) == arrival.turn
    await life.accept("next")
    assert await life.store.read(newest_id) > arrival.turn
