"""Messages that come while a turn runs: each does what its row says, in one transaction, on both engines."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide.busy import OUTCOME_UNKNOWN
from everturn.decide.keys import Isolation
from everturn.errors import FenceLost
from everturn.model import Message
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.inbox import accept
from everturn.store.operations.joining import Joined, busy_chosen, choose_busy, join_turn, steer_waits
from everturn.store.operations.turn_values import Begun, Later
from everturn.store.operations.turns import finish_effect, skip_calls, step
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, call_of, key_of, living, response, result

SHARED = Isolation(group_sessions_per_user=False)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life
        assert await life.store.read(broken) == {}


async def join(life: Life, begun: Begun, written: int = 0) -> Joined:
    """Ask what joined, as after a commit whose outcome was unknown."""
    now = replace(begun, seq=begun.seq + written)
    return await life.twice(join_turn, now, life.ids.next(), Isolation(), life.now, life.delivery)


async def test_a_message_joins_the_running_turn_and_ends_with_it(life: Life) -> None:
    begun = await life.called("first")
    for text in ("second", "third"):
        await life.accept(text, busy="steer")
    await life.tool(begun)
    joined = await join(life, begun, 2)
    assert [(each.content, each.seq) for each in joined.messages] == [("second", 4), ("third", 5)]
    assert (joined.begun.words, joined.begun.waiting) == (("first", "second", "third"), 0)
    await life.finish(joined.begun)
    assert await life.states("inbox") == ["done"] * 3
    assert [role for role, _ in await life.said()] == ["user", "assistant", "tool", "user", "user", "assistant"]


async def test_those_that_steer_join_up_to_the_first_that_does_not(life: Life) -> None:
    begun = await life.called()
    for text, busy in (("one", "steer"), ("two", "queue"), ("three", "steer")):
        await life.accept(text, busy=busy)
    joined = await join(life, begun)
    assert ([each.content for each in joined.messages], joined.begun.waiting) == (["one"], 2)
    assert await join(life, joined.begun) == Joined(begun=joined.begun)


async def test_a_command_is_not_overtaken(life: Life) -> None:
    begun = await life.called()
    await life.accept("/new")
    await life.accept("after", busy="steer")
    assert (await join(life, begun)).messages == ()
    assert not await life.store.read(steer_waits, key_of())


async def test_what_did_not_join_is_the_next_turn(life: Life) -> None:
    begun = await life.called()
    await life.accept("late", busy="steer")
    await life.finish(begun)
    assert (await life.began()).words == ("late",)


async def test_a_message_that_meets_no_turn_says_nothing_about_one(life: Life) -> None:
    await life.accept("hello", busy="interrupt")
    assert await life.look("SELECT busy FROM inbox") == [(None,)]


async def test_a_turn_that_lost_its_key_is_joined_by_nobody(life: Life) -> None:
    begun = await life.called()
    await life.accept("more", busy="steer")
    await life.die()
    with pytest.raises(FenceLost):
        await life.store.run(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery)
    resumed = await life.began()
    assert [each.content for each in (await join(life, resumed)).messages] == ["more"]


async def test_who_joined_is_part_of_the_next_attempt(life: Life) -> None:
    """A death right after the commit: the words are in the transcript, and the next life knows them."""
    begun = await life.called("first")
    await life.accept("second", busy="steer")
    await join(life, begun)
    await life.die()
    resumed = await life.began()
    assert (resumed.words, resumed.seq, resumed.inbox) == (
        ("first", "second"),
        2,
        (await join(life, resumed)).begun.inbox,
    )


async def test_words_never_part_a_call_from_its_result(life: Life) -> None:
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    await life.accept("more", busy="steer")
    assert (await join(life, begun, 1)).messages == ()
    await life.store.run(finish_effect, begun, result(begun, 2, "call"), None)
    assert len((await join(life, begun, 2)).messages) == 1


async def test_watchers_are_told_who_joined(store_url: str) -> None:
    async with living(store_url, delivery=BY_EVENT) as life:
        begun = await life.called()
        await life.accept("more", busy="steer", message_id="m7")
        joined = await join(life, begun)
        assert [(each.kind, '"m7"' in each.data) for each in joined.events] == [("joined", True)]
        finished = await life.finish(joined.begun)
        assert '"to":"m7"' in finished.events[0].data


async def test_the_chosen_mode_beats_the_configured_and_the_forced_one_beats_both(life: Life) -> None:
    await life.called()
    assert await life.twice(choose_busy, key_of(), "collect")
    assert await life.store.read(busy_chosen, key_of()) == "collect"
    await life.accept("chosen", busy="steer")
    await life.store.run(accept, replace(life.arrival("forced", busy="steer"), forced="queue"), QUEUE, None)
    assert await life.look("SELECT busy FROM inbox WHERE state='waiting' ORDER BY place") == [("collect",), ("queue",)]
    assert not await life.store.run(choose_busy, "nobody", "queue")


async def test_skipped_calls_have_results(life: Life) -> None:
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "a", "b", "c"), call_of("a"), None, prove_it=False)
    rest = [result(begun, place, call, "Skipped") for place, call in ((3, "b"), (4, "c"))]
    await life.twice(finish_effect, begun, result(begun, 2, "a"), None, None, rest)
    await life.twice(skip_calls, begun, rest)
    assert [content for role, content in await life.said() if role == "tool"] == ["result", "Skipped", "Skipped"]
    await life.finish(begun, 5)


@pytest.mark.parametrize("end", ["/stop", "/new"])
async def test_calls_of_a_turn_that_was_ended_get_their_results(life: Life, end: str) -> None:
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "a", "b"), call_of("a"), None, prove_it=False)
    await life.command(end)
    rows = await life.look("SELECT call_id, content, unknown FROM message WHERE role='tool' ORDER BY seq")
    assert rows[0] == ("a", OUTCOME_UNKNOWN, 1)
    assert (rows[1][0], rows[1][1][:8], rows[1][2]) == ("b", "Skipped:", 0)


async def interrupted(life: Life, busy: str) -> tuple[Begun, Begun]:
    """A turn in the middle of a tool, and the one that follows it."""
    await life.talk("before")
    begun = await life.called("first")
    await life.tool(begun)
    await life.store.run(step, begun, response(begun, 3, "next"), call_of("next"), None, prove_it=False)
    accepted = await life.twice(accept, life.arrival("stop that", busy=busy), QUEUE, None)
    assert (accepted.stopped, accepted.spoke) == (begun.turn, True)
    with pytest.raises(FenceLost):
        await life.store.run(finish_effect, begun, result(begun, 4, "next"), None)
    return begun, await life.began()


async def test_an_interrupt_ends_the_turn_with_its_own_commit(life: Life) -> None:
    begun, after = await interrupted(life, "interrupt")
    assert await life.look("SELECT state, why FROM turn WHERE id=$1", begun.turn) == [("stopped", "interrupted")]
    assert await life.states("inbox") == ["done", "withdrawn", "claimed"]
    assert (after.words, after.note) == (("stop that",), None)
    assert [role for role, _ in await life.said()][2:] == ["user", "assistant", "tool", "assistant", "tool", "user"]


async def test_a_rollback_takes_the_turn_out_of_the_conversation(life: Life) -> None:
    """What its tools did is told to the next turn, until one has answered; it is never stored."""
    begun, after = await interrupted(life, "rollback")
    assert await life.look("SELECT state FROM turn WHERE id=$1", begun.turn) == [("rolled_back",)]
    assert [words for _, words in await life.said()] == ["before", "done", "stop that"]
    assert after.note is not None
    assert "tool()" in after.note.text
    assert after.note.text.count("outcome unknown") == 1
    await life.finish(after)
    assert (await life.begun("later")).note is None


async def test_a_rolled_back_turn_is_told_again_after_a_death(life: Life) -> None:
    _, after = await interrupted(life, "rollback")
    await life.tool(after)
    await life.die()
    resumed = await life.began()
    assert resumed.note is not None
    assert resumed.note.kind == "resume:restart_interrupted"
    assert "did happen" in resumed.note.text


@pytest.mark.parametrize(("busy", "state"), [("interrupt", "stopped"), ("rollback", "rolled_back")])
async def test_a_message_that_came_before_a_resume_is_applied_instead(life: Life, busy: str, state: str) -> None:
    begun = await life.called("first")
    await life.tool(begun)
    await life.die()
    accepted = await life.accept("no, this", busy=busy)
    assert accepted.stopped is None
    after = await life.twice(begin_next, key_of(), life.start())
    assert isinstance(after, Begun)
    assert (after.turn != begun.turn, after.words) == (True, ("no, this",))
    assert await life.look("SELECT state FROM turn WHERE id=$1", begun.turn) == [(state,)]


async def test_a_message_wakes_an_interrupted_turn_that_does_not_go_on_by_itself(store_url: str) -> None:
    async with living(store_url, resume="on_message") as life:
        begun = await life.called("first")
        await life.die()
        await life.accept("go on", busy="interrupt")
        after = await life.began()
        assert (after.turn, after.words) == (begun.turn, ("first", "go on"))


async def test_collected_messages_wait_for_silence_and_are_one_turn(life: Life) -> None:
    begun = await life.called("first")
    for text in ("one", "two"):
        await life.accept(text, busy="collect")
        life.clock.advance(1.5)
    await life.finish(begun)
    assert await life.twice(begin_next, key_of(), life.start()) == Later(key_of(), life.now + 0.5)
    await life.accept("three", busy="collect")
    life.clock.advance(1.9)
    assert isinstance(await life.begin(), Later)
    life.clock.advance(0.1)
    assert (await life.began()).words == ("one", "two", "three")


async def test_a_burst_of_one_author_is_one_turn(store_url: str) -> None:
    async with living(store_url, burst_s=0.35) as life:
        for text, user, after_s in (("a", "ann", 0.3), ("b", "ann", 0.3), ("c", "bob", 0.1), ("d", "bob", 0.5)):
            await life.accept(text, user_id=user)
            life.clock.advance(after_s)
        await life.accept("e", user_id="bob")
        begun = await life.twice(begin_next, key_of(), life.start())
        assert isinstance(begun, Begun)
        assert (begun.words, begun.seq, begun.waiting) == (("a", "b"), 2, 3)
        await life.finish(begun)
        assert [words for _, words in await life.said()] == ["a", "b", "done"]
        assert (await life.began()).words == ("c", "d")


async def test_where_several_people_speak_each_row_names_its_author(life: Life) -> None:
    start = replace(life.start(), isolation=SHARED)
    arrival = life.arrival("hi", chat_type="group", user_name="Ann\nB")
    accepted = await life.store.run(accept, arrival, QUEUE, start)
    assert accepted.begun is not None
    await life.store.run(
        accept,
        replace(life.arrival("yo", chat_type="group", user_id="bob", busy="steer"), key=arrival.key),
        QUEUE,
        None,
    )
    joined = await life.store.run(join_turn, accepted.begun, life.ids.next(), SHARED, life.now, life.delivery)
    assert joined.messages == (Message(
        role="user", content="yo", seq=2, author="bob", turn=accepted.begun.turn, at=life.now,
    ),)  # fmt: skip
    assert await life.look("SELECT author FROM message ORDER BY seq") == [("Ann B",), ("bob",)]


async def test_what_is_collected_begins_though_the_clock_was_set_back(life: Life) -> None:
    """Messages of an hour that has not come yet are quiet: nobody waits until it has."""
    await life.accept("one", busy="collect")
    await life.plant("UPDATE inbox SET busy='collect'")
    life.clock.set_back(3600)
    begun = await life.twice(begin_next, key_of(), life.start())
    assert isinstance(begun, Begun)
    assert begun.words == ("one",)
