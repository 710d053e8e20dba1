"""What an operator does: once for each id, under the entry's lock, whole; and why it can not be done."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.decide import ops_words
from everturn.decide.busy import ALBUM_S
from everturn.decide.delivery import Doubtful
from everturn.decide.timeline import timeline
from everturn.model import Attachment, ResumePending, Suspended
from everturn.store.operations.acting import Act, Acted, Impossible, act_on_message, act_on_reply, act_on_session
from everturn.store.operations.inbox import turn_away
from everturn.store.operations.open_work import messages, replies
from everturn.store.operations.outbox import doubt, give_up, try_later
from everturn.store.operations.reading import explain
from everturn.store.operations.recovery import suspend_session
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import calling, fail
from everturn.store.operations.upkeep import BODIES_KEPT_S, IDS_KEPT_S, forget
from tests.contracts.store import BY_EVENT, Life, broken, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life
        assert await life.store.read(broken) == {}


def act(life: Life, action: str, target: object = None, name: str = "a1") -> Act:
    return Act(
        id=name, action=action, target=str(target or key_of()), who="owner", at=life.now, number=life.ids.next(),
        session_id=life.sessions.next(), by_event=frozenset({"fake"}) if life.delivery.by_event else frozenset(),
    )  # fmt: skip


async def done(life: Life, action: str, **more: str) -> Acted:
    """A session's action, which must be possible; run twice it says and leaves the same."""
    life.clock.advance(1)
    acted = await life.twice(act_on_session, act(life, action, **more))
    assert isinstance(acted, Acted)
    return acted


async def failed(life: Life, chat: str = "c", text: str = "hello") -> int:
    """A message whose turn failed; the number of its row."""
    begun = await life.begun(text, chat)
    await life.store.run(fail, begun, "broken", "I could not answer", life.now, life.delivery)
    return begun.inbox[0]


async def dead(life: Life, chat: str = "c") -> int:
    """A reply that was given up."""
    begun = await life.talk(chat=chat)
    await life.store.run(give_up, await life.sending(chat), life.now, "refused")
    return begun.turn


async def ext_id(life: Life) -> str:
    """What the first message is explained by."""
    return str((await life.look("SELECT ext_id FROM inbox ORDER BY id"))[0][0])


async def doubtful(life: Life) -> int:
    begun = await life.talk()
    await life.store.run(doubt, await life.sending(), Doubtful.ASK, life.now, "lost")
    return begun.turn


# -- conversations ----------------------------------------------------------------------------------------------------


async def test_a_running_turn_is_stopped_and_what_waits_behind_it_is_kept(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    begun = await here.called()
    await here.accept("next")
    acted = await done(here, "stop")
    assert (acted.stopped, acted.said) == (begun.turn, ops_words.STOPPED)
    assert [event.kind for event in acted.events] == ["notice", "turn"]
    assert await life.look("SELECT state, why FROM turn") == [("stopped", "operator")]
    assert (await here.began()).words == ("next",)


async def test_a_suspended_conversation_comes_back_with_its_history_and_its_note(life: Life) -> None:
    begun = await life.called()
    suspended = await done(life, "suspend")
    assert (suspended.stopped, (await life.entry()).state) == (begun.turn, Suspended("operator", life.now))
    again = await done(life, "resume", name="a2")
    assert (again.said, again.stopped) == (ops_words.RESUMED, None)
    entry = await life.entry()
    assert (entry.session_id, entry.state) == (begun.session_id, ResumePending("restart_interrupted", life.now))
    assert [row[0] for row in await life.look("SELECT text FROM outbox ORDER BY id")] == [
        ops_words.TELL_SUSPENDED, ops_words.TELL_CUT_OFF,
    ]  # fmt: skip


async def test_a_turn_that_was_cut_off_long_ago_goes_on_when_it_is_told_to(life: Life) -> None:
    later = replace(life, resume="on_message")
    begun = await later.called()
    await later.die()
    life.clock.advance(100_000)
    assert await later.begin() is None
    assert (await done(later, "resume")).said == ops_words.GOES_ON
    resumed = await later.began()
    assert (resumed.turn, resumed.attempt) == (begun.turn, 2)
    assert resumed.note is not None


async def test_a_reset_withdraws_what_waits_and_keeps_the_earlier_conversation(life: Life) -> None:
    begun = await life.called()
    await life.accept("next")
    acted = await done(life, "reset")
    entry = await life.entry()
    assert (acted.stopped, acted.said) == (begun.turn, ops_words.reset_done(1))
    assert (entry.previous_session_id, entry.turn, entry.waiting) == (begun.session_id, None, 0)
    assert await life.states("inbox") == ["withdrawn", "withdrawn"]


@pytest.mark.parametrize(
    ("scene", "action", "why"),
    [
        ("nobody", "stop", ops_words.NO_CONVERSATION),
        ("idle", "stop", ops_words.NOTHING_RUNS),
        ("idle", "resume", ops_words.NOTHING_TO_RESUME),
        ("running", "resume", ops_words.RUNS_ALREADY),
        ("suspended", "suspend", ops_words.SUSPENDED_ALREADY),
        ("back", "resume", ops_words.GOES_ON_WITH_WORDS),
        ("address", "reset", ops_words.NOTHING_TO_RESET),
        ("address", "suspend", ops_words.NO_CONVERSATION),
    ],
)
async def test_what_can_not_be_done_changes_nothing_and_says_why(life: Life, scene: str, action: str, why: str) -> None:
    if scene == "address":
        await life.command("/help")
    elif scene in {"running", "suspended", "back"}:
        await life.called()
    elif scene == "idle":
        await life.talk()
    if scene in {"suspended", "back"}:
        await life.store.run(suspend_session, key_of(), life.now)
    if scene == "back":
        await done(life, "resume", name="before")
    assert await life.unchanged(act_on_session, act(life, action)) == Impossible(why)


async def test_an_id_does_one_thing_for_ever(life: Life) -> None:
    """The answer was lost, the process died, the client asks again: later, from another life."""
    begun = await life.called()
    first = await done(life, "stop")
    await life.called("next")
    life.clock.advance(3600)
    again = await life.unchanged(act_on_session, act(replace(life, instance=2), "stop"))
    assert isinstance(again, Acted)
    assert (again.said, again.stopped) == (first.said, begun.turn)
    assert await life.unchanged(act_on_session, act(life, "reset")) == Impossible(ops_words.CONFLICT)
    assert await life.unchanged(act_on_session, act(life, "stop", key_of("d"))) == Impossible(ops_words.CONFLICT)


# -- replies ----------------------------------------------------------------------------------------------------------


async def test_a_dead_reply_is_owed_again_at_once_whatever_its_age(life: Life) -> None:
    number = await dead(life)
    await life.plant("UPDATE outbox SET valid_until=1, attempts=8")
    await life.twice(act_on_reply, act(life, "send", number))
    assert await life.look("SELECT state, attempts, valid_until, marked, dead_at, ended_at FROM outbox") == [
        ("owed", 0, None, 0, None, None)
    ]
    assert (await life.sending()).id == number


async def test_a_reply_that_was_sent_again_and_refused_again_tells_all_of_it(life: Life) -> None:
    number = await dead(life)
    life.clock.advance(60)
    await life.twice(act_on_reply, act(life, "send", number))
    again_at = life.now
    await life.twice(try_later, await life.sending(), life.now + 60, "slow")
    life.clock.advance(60)
    await life.twice(give_up, await life.sending(), life.now, "refused again")
    (row,) = await life.store.read(replies, "dead", 0, 9)
    told = [row[name] for name in ("tries", "tried_at", "given_up", "sent_again_at", "sent_again_by")]
    assert told == [3, life.now, 2, again_at, "owner"]
    (told_life,) = await life.store.read(explain, await ext_id(life))
    lines = [words for _, words in timeline(told_life)]
    assert "reply: attempt 1 failed, and it was given up: refused" in lines
    assert lines[-3:] == [
        "the reply was sent again by the owner",
        "reply: attempt 2 failed: slow",
        "reply given up again after 3 attempts: refused again",
    ]


@pytest.mark.parametrize(
    ("action", "state", "marked"), [("send", "owed", 1), ("drop", "dead", 1), ("mark_sent", "sent", 0)]
)
async def test_the_owner_decides_what_is_in_doubt(life: Life, action: str, state: str, marked: int) -> None:
    number = await doubtful(life)
    await life.twice(act_on_reply, act(life, action, number))
    assert await life.look("SELECT state, marked, dead_at FROM outbox") == [(state, marked, None)]


async def test_a_reply_that_waits_for_its_next_attempt_is_hurried_or_dropped(life: Life) -> None:
    begun = await life.talk()
    await life.store.run(try_later, await life.sending(), life.now + 300, "not now")
    await life.twice(act_on_reply, act(life, "send", begun.turn))
    assert await life.look("SELECT state, due_at FROM outbox") == [("owed", life.now)]
    await life.twice(act_on_reply, act(life, "drop", begun.turn, "a2"))
    assert await life.states("outbox") == ["dead"]


@pytest.mark.parametrize(
    ("scene", "action", "why"),
    [
        ("sent", "send", ops_words.DELIVERED),
        ("sending", "drop", ops_words.BEING_SENT),
        ("dead", "mark_sent", ops_words.ONLY_DOUBTFUL),
        ("none", "send", ops_words.NO_REPLY),
    ],
)
async def test_a_reply_that_is_elsewhere_is_left_alone(life: Life, scene: str, action: str, why: str) -> None:
    number = 1 if scene == "none" else await dead(life)
    if scene in {"sent", "sending"}:
        await life.plant("UPDATE outbox SET state=$1, dead_at=NULL", scene)
        await life.plant("UPDATE outbox SET ended_at=NULL WHERE state='sending'")
    assert await life.unchanged(act_on_reply, act(life, action, number)) == Impossible(why)


async def test_what_was_put_away_is_forgotten_and_what_was_not_is_kept(life: Life) -> None:
    first, second = await dead(life), await dead(life, "d")
    await life.store.run(act_on_reply, act(life, "drop", first))
    life.clock.advance(IDS_KEPT_S + 1)
    while await life.store.run(forget, life.now):
        pass
    assert await life.look("SELECT id FROM outbox") == [(second,)]
    assert await life.look("SELECT id FROM action") == []


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_is_run_again_as_a_message_of_its_own(life: Life) -> None:
    number = await failed(life)
    acted = await life.twice(act_on_message, act(life, "run", number))
    assert isinstance(acted, Acted)
    assert (await life.entry()).waiting == 1
    assert await life.look("SELECT state, dead_at, body FROM inbox ORDER BY id") == [
        ("dead", None, "hello"), ("waiting", None, "hello"),
    ]  # fmt: skip
    begun = await life.began()
    assert isinstance(begun, Begun)
    assert (begun.words, begun.source.chat_id) == (("hello",), "c")
    again = await life.unchanged(act_on_message, act(life, "run", number, "a2"))
    assert again == Impossible(ops_words.NO_MESSAGE)


async def test_a_dead_letter_is_run_again_with_its_files(life: Life) -> None:
    photo = Attachment(kind="image", ref="r1", name="cat.jpg")
    arrival = structs.replace(life.arrival("look"), attachments=(photo,), album="a")
    await life.store.run(turn_away, arrival, "queue_full", "too many")
    await life.twice(act_on_message, act(life, "run", arrival.id))
    life.clock.advance(ALBUM_S)
    (carried,) = (await life.began()).carried
    assert (carried.attachments, carried.settled) == ((photo,), None)
    assert await life.look("SELECT album FROM inbox ORDER BY id") == [("a",), ("a",)]


async def test_a_dead_letters_words_and_files_are_kept_until_it_is_put_away(life: Life) -> None:
    number = await failed(life)
    await life.plant("UPDATE inbox SET brought='{}', attachments='[]', fetched='{}'")
    life.clock.advance(BODIES_KEPT_S + 1)
    while await life.store.run(forget, life.now):
        pass
    kept = "SELECT body, brought, attachments, fetched, state, dead_at IS NULL FROM inbox"
    assert await life.look(kept) == [("hello", "{}", "[]", "{}", "dead", False)]
    await life.twice(act_on_message, act(life, "drop", number))
    assert await life.look(kept) == [("", None, None, None, "dead", True)]


async def test_who_was_running_at_every_unclean_end_is_run_again_with_a_warning(life: Life) -> None:
    await life.called("crash always")
    for _ in range(2):
        await life.die()
        await life.store.run(calling, await life.began())
    await life.die()
    life.clock.advance(1)
    (letter,) = await life.store.read(messages, "dead", 0, 9)
    assert letter["why"] == "set aside after 3 unclean ends in a row while it worked on: crash always"
    assert letter["warning"] == ops_words.ran_at_every_end(3)
    await done(life, "resume", name="a2")
    life.clock.advance(1)
    acted = await life.twice(act_on_message, act(life, "run", letter["id"]))
    assert isinstance(acted, Acted)
    assert acted.said == ops_words.message_again(ops_words.ran_at_every_end(3))
    first, second = await life.store.read(explain, await ext_id(life))
    assert first["set_aside"] == letter["why"]
    did = [words for _, words in timeline(first)][-3:-1]
    assert did == ["the conversation was resumed by the owner", "the message was run again by the owner"]
    assert timeline(second)[0][1] == "message stored once more: an operator had it run again"


async def test_a_letter_of_a_suspended_conversation_waits_for_its_return(life: Life) -> None:
    begun = await life.called()
    await life.store.run(suspend_session, key_of(), life.now)
    number = begun.inbox[0]
    refused = await life.unchanged(act_on_message, act(life, "run", number))
    assert refused == Impossible(ops_words.SUSPENDED)
    await done(life, "resume", name="a2")
    assert isinstance(await life.twice(act_on_message, act(life, "run", number)), Acted)
    assert (await life.began()).session_id == begun.session_id
