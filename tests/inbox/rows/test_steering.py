"""Messages that come while a turn runs: each does what its row says, in one transaction, on both engines."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.inbox.rows.inbox import accept
from everturn.inbox.rows.steering import JoinedTurn, busy_chosen, choose_busy, join_turn, steer_waits
from everturn.inbox.rules import OUTCOME_UNKNOWN
from everturn.model import Message
from everturn.sessions.rules.keys import Isolation
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.turn_values import Later, StartedTurn
from everturn.turns.rows.turns import finish_effect, skip_calls, step
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, call_of, key_of, living, response, result

SHARED = Isolation(group_sessions_per_user=False)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process
        assert await process.store.read(broken) == {}


async def join(process: StoreProcess, begun: StartedTurn, written: int = 0) -> JoinedTurn:
    """Ask what joined, as after a commit whose outcome was unknown."""
    now = replace(begun, seq=begun.seq + written)
    return await process.twice(join_turn, now, process.ids.next(), Isolation(), process.now, process.delivery)


async def test_a_message_joins_the_running_turn_and_ends_with_it(process: StoreProcess) -> None:
    begun = await process.called("first")
    for text in ("second", "third"):
        await process.accept(text, busy="steer")
    await process.tool(begun)
    joined = await join(process, begun, 2)
    assert [(each.content, each.seq) for each in joined.messages] == [("second", 4), ("third", 5)]
    assert (joined.begun.texts, joined.begun.waiting) == (("first", "second", "third"), 0)
    await process.finish(joined.begun)
    assert await process.states("inbox") == ["done"] * 3
    assert [role for role, _ in await process.said()] == ["user", "assistant", "tool", "user", "user", "assistant"]


async def test_those_that_steer_join_up_to_the_first_that_does_not(process: StoreProcess) -> None:
    begun = await process.called()
    for text, busy in (("one", "steer"), ("two", "queue"), ("three", "steer")):
        await process.accept(text, busy=busy)
    joined = await join(process, begun)
    assert ([each.content for each in joined.messages], joined.begun.waiting) == (["one"], 2)
    assert await join(process, joined.begun) == JoinedTurn(begun=joined.begun)


async def test_a_command_is_not_overtaken(process: StoreProcess) -> None:
    begun = await process.called()
    await process.accept("/new")
    await process.accept("after", busy="steer")
    assert (await join(process, begun)).messages == ()
    assert not await process.store.read(steer_waits, key_of())


async def test_what_did_not_join_is_the_next_turn(process: StoreProcess) -> None:
    begun = await process.called()
    await process.accept("late", busy="steer")
    await process.finish(begun)
    assert (await process.began()).texts == ("late",)


async def test_a_message_that_meets_no_turn_says_nothing_about_one(process: StoreProcess) -> None:
    await process.accept("hello", busy="interrupt")
    assert await process.look("SELECT busy FROM inbox") == [(None,)]


async def test_a_turn_that_lost_its_key_is_joined_by_nobody(process: StoreProcess) -> None:
    begun = await process.called()
    await process.accept("more", busy="steer")
    await process.die()
    with pytest.raises(FenceLost):
        await process.store.run(join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery)
    resumed = await process.began()
    assert [each.content for each in (await join(process, resumed)).messages] == ["more"]


async def test_a_message_that_joined_is_part_of_the_next_attempt(process: StoreProcess) -> None:
    """A crash right after the commit: the text is in the transcript, and the next process knows it."""
    begun = await process.called("first")
    await process.accept("second", busy="steer")
    await join(process, begun)
    await process.die()
    resumed = await process.began()
    assert (resumed.texts, resumed.seq, resumed.inbox) == (
        ("first", "second"),
        2,
        (await join(process, resumed)).begun.inbox,
    )


async def test_a_message_never_parts_a_call_from_its_result(process: StoreProcess) -> None:
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    await process.accept("more", busy="steer")
    assert (await join(process, begun, 1)).messages == ()
    await process.store.run(finish_effect, begun, result(begun, 2, "call"), None)
    assert len((await join(process, begun, 2)).messages) == 1


async def test_watchers_see_which_messages_joined(store_url: str) -> None:
    async with living(store_url, delivery=BY_EVENT) as process:
        begun = await process.called()
        await process.accept("more", busy="steer", message_id="m7")
        joined = await join(process, begun)
        assert [(each.kind, '"m7"' in each.data) for each in joined.events] == [("joined", True)]
        finished = await process.finish(joined.begun)
        assert '"to":"m7"' in finished.events[0].data


async def test_the_chosen_mode_beats_the_configured_and_the_forced_one_beats_both(process: StoreProcess) -> None:
    await process.called()
    assert await process.twice(choose_busy, key_of(), "collect")
    assert await process.store.read(busy_chosen, key_of()) == "collect"
    await process.accept("chosen", busy="steer")
    await process.store.run(accept, replace(process.arrival("forced", busy="steer"), forced="queue"), QUEUE, None)
    assert await process.look("SELECT busy FROM inbox WHERE state='queued' ORDER BY place") == [
        ("collect",),
        ("queue",),
    ]
    assert not await process.store.run(choose_busy, "nobody", "queue")


async def test_skipped_calls_have_results(process: StoreProcess) -> None:
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "a", "b", "c"), call_of("a"), None, prove_it=False)
    rest = [result(begun, place, call, "Skipped") for place, call in ((3, "b"), (4, "c"))]
    await process.twice(finish_effect, begun, result(begun, 2, "a"), None, None, rest)
    await process.twice(skip_calls, begun, rest)
    assert [content for role, content in await process.said() if role == "tool"] == ["result", "Skipped", "Skipped"]
    await process.finish(begun, 5)


@pytest.mark.parametrize("end", ["/stop", "/new"])
async def test_calls_of_a_turn_that_was_ended_get_their_results(process: StoreProcess, end: str) -> None:
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "a", "b"), call_of("a"), None, prove_it=False)
    await process.command(end)
    rows = await process.look("SELECT call_id, content, unknown FROM message WHERE role='tool' ORDER BY seq")
    assert rows[0] == ("a", OUTCOME_UNKNOWN, 1)
    assert (rows[1][0], rows[1][1][:8], rows[1][2]) == ("b", "Skipped:", 0)


async def interrupted(process: StoreProcess, busy: str) -> tuple[StartedTurn, StartedTurn]:
    """A turn in the middle of a tool, and the one that follows it."""
    await process.talk("before")
    begun = await process.called("first")
    await process.tool(begun)
    await process.store.run(step, begun, response(begun, 3, "next"), call_of("next"), None, prove_it=False)
    accepted = await process.twice(accept, process.arrival("stop that", busy=busy), QUEUE, None)
    assert (accepted.stopped, accepted.spoke) == (begun.turn, True)
    with pytest.raises(FenceLost):
        await process.store.run(finish_effect, begun, result(begun, 4, "next"), None)
    return begun, await process.began()


async def test_an_interrupt_ends_the_turn_with_its_own_commit(process: StoreProcess) -> None:
    begun, after = await interrupted(process, "interrupt")
    assert await process.look("SELECT state, why FROM turn WHERE id=$1", begun.turn) == [("stopped", "interrupted")]
    assert await process.states("inbox") == ["done", "withdrawn", "claimed"]
    assert (after.texts, after.note) == (("stop that",), None)
    assert [role for role, _ in await process.said()][2:] == ["user", "assistant", "tool", "assistant", "tool", "user"]


async def test_a_rollback_takes_the_turn_out_of_the_conversation(process: StoreProcess) -> None:
    """The next turn sees what its tools did, until one has answered; that note is never stored."""
    begun, after = await interrupted(process, "rollback")
    assert await process.look("SELECT state FROM turn WHERE id=$1", begun.turn) == [("rolled_back",)]
    assert [words for _, words in await process.said()] == ["before", "done", "stop that"]
    assert after.note is not None
    assert "tool()" in after.note.text
    assert after.note.text.count("outcome unknown") == 1
    await process.finish(after)
    assert (await process.begun("later")).note is None


async def test_a_rolled_back_turn_is_reported_again_after_a_crash(process: StoreProcess) -> None:
    _, after = await interrupted(process, "rollback")
    await process.tool(after)
    await process.die()
    resumed = await process.began()
    assert resumed.note is not None
    assert resumed.note.kind == "resume:restart_interrupted"
    assert "did happen" in resumed.note.text


@pytest.mark.parametrize(("busy", "state"), [("interrupt", "stopped"), ("rollback", "rolled_back")])
async def test_a_message_that_came_before_a_resume_is_applied_instead(
    process: StoreProcess, busy: str, state: str
) -> None:
    begun = await process.called("first")
    await process.tool(begun)
    await process.die()
    accepted = await process.accept("no, this", busy=busy)
    assert accepted.stopped is None
    after = await process.twice(begin_next, key_of(), process.start())
    assert isinstance(after, StartedTurn)
    assert (after.turn != begun.turn, after.texts) == (True, ("no, this",))
    assert await process.look("SELECT state FROM turn WHERE id=$1", begun.turn) == [(state,)]


async def test_a_message_wakes_an_interrupted_turn_that_does_not_go_on_by_itself(store_url: str) -> None:
    async with living(store_url, resume="on_message") as process:
        begun = await process.called("first")
        await process.die()
        await process.accept("go on", busy="interrupt")
        after = await process.began()
        assert (after.turn, after.texts) == (begun.turn, ("first", "go on"))


async def test_collected_messages_wait_for_silence_and_are_one_turn(process: StoreProcess) -> None:
    begun = await process.called("first")
    for text in ("one", "two"):
        await process.accept(text, busy="collect")
        process.clock.advance(1.5)
    await process.finish(begun)
    assert await process.twice(begin_next, key_of(), process.start()) == Later(key_of(), process.now + 0.5)
    await process.accept("three", busy="collect")
    process.clock.advance(1.9)
    assert isinstance(await process.begin(), Later)
    process.clock.advance(0.1)
    assert (await process.began()).texts == ("one", "two", "three")


async def test_a_burst_of_one_author_is_one_turn(store_url: str) -> None:
    async with living(store_url, burst_s=0.35) as process:
        for text, user, after_s in (("a", "ann", 0.3), ("b", "ann", 0.3), ("c", "bob", 0.1), ("d", "bob", 0.5)):
            await process.accept(text, user_id=user)
            process.clock.advance(after_s)
        await process.accept("e", user_id="bob")
        begun = await process.twice(begin_next, key_of(), process.start())
        assert isinstance(begun, StartedTurn)
        assert (begun.texts, begun.seq, begun.waiting) == (("a", "b"), 2, 3)
        await process.finish(begun)
        assert [words for _, words in await process.said()] == ["a", "b", "done"]
        assert (await process.began()).texts == ("c", "d")


async def test_where_several_people_speak_each_row_names_its_author(process: StoreProcess) -> None:
    start = replace(process.start(), isolation=SHARED)
    arrival = process.arrival("hi", chat_type="group", user_name="Ann\nB")
    accepted = await process.store.run(accept, arrival, QUEUE, start)
    assert accepted.begun is not None
    await process.store.run(
        accept,
        replace(process.arrival("yo", chat_type="group", user_id="bob", busy="steer"), key=arrival.key),
        QUEUE,
        None,
    )
    joined = await process.store.run(
        join_turn, accepted.begun, process.ids.next(), SHARED, process.now, process.delivery
    )
    assert joined.messages == (Message(
        role="user", content="yo", seq=2, author="bob", turn=accepted.begun.turn, at=process.now,
    ),)  # fmt: skip
    assert await process.look("SELECT author FROM message ORDER BY seq") == [("Ann B",), ("bob",)]


async def test_what_is_collected_begins_though_the_clock_was_set_back(process: StoreProcess) -> None:
    """Messages of an hour that has not come yet are quiet: nobody waits until it has."""
    await process.accept("one", busy="collect")
    await process.plant("UPDATE inbox SET busy='collect'")
    process.clock.set_back(3600)
    begun = await process.twice(begin_next, key_of(), process.start())
    assert isinstance(begun, StartedTurn)
    assert begun.texts == ("one",)
