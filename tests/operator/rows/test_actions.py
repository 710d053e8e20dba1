"""What an operator does: once for each id, under the entry's lock, whole; and why it cannot be done."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.inbox.rows.inbox import store_dead_letter
from everturn.inbox.rules import ALBUM_S
from everturn.lifecycle.rows import BODIES_KEPT_S, IDS_KEPT_S, forget
from everturn.model import Attachment, ResumePending, Suspended
from everturn.operator.rows.actions import Act, Acted, Impossible, act_on_message, act_on_reply, act_on_session
from everturn.operator.rows.overview import messages, replies
from everturn.operator.rows.reading import explain
from everturn.operator.rules import operator_texts
from everturn.operator.rules.timeline import timeline
from everturn.outbox.rows.outbox import make_dead_letter, mark_unknown, try_later
from everturn.outbox.rules.delivery import UnknownAction
from everturn.turns.rows.recovery import suspend_session
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import calling, fail
from tests.contracts.store import BY_EVENT, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process
        assert await process.store.read(broken) == {}


def act(process: StoreProcess, action: str, target: object = None, name: str = "a1") -> Act:
    return Act(
        id=name, action=action, target=str(target or key_of()), actor="owner", at=process.now, number=process.ids.next(),
        session_id=process.sessions.next(), by_event=frozenset({"fake"}) if process.delivery.by_event else frozenset(),
    )  # fmt: skip


async def done(process: StoreProcess, action: str, **more: str) -> Acted:
    """A session's action, which must be possible; run twice it says and leaves the same."""
    process.clock.advance(1)
    acted = await process.twice(act_on_session, act(process, action, **more))
    assert isinstance(acted, Acted)
    return acted


async def failed(process: StoreProcess, chat: str = "c", text: str = "hello") -> int:
    """A message whose turn failed; the number of its row."""
    begun = await process.begun(text, chat)
    await process.store.run(fail, begun, "broken", "I could not answer", process.now, process.delivery)
    return begun.inbox[0]


async def dead(process: StoreProcess, chat: str = "c") -> int:
    """A reply that failed: a dead letter."""
    begun = await process.talk(chat=chat)
    await process.store.run(make_dead_letter, await process.sending(chat), process.now, "refused")
    return begun.turn


async def ext_id(process: StoreProcess) -> str:
    """What the first message is explained by."""
    return str((await process.look("SELECT ext_id FROM inbox ORDER BY id"))[0][0])


async def unknown_reply(process: StoreProcess) -> int:
    begun = await process.talk()
    await process.store.run(mark_unknown, await process.sending(), UnknownAction.ASK, process.now, "lost")
    return begun.turn


# -- conversations ----------------------------------------------------------------------------------------------------


async def test_a_running_turn_is_stopped_and_what_waits_behind_it_is_kept(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    begun = await here.called()
    await here.accept("next")
    acted = await done(here, "stop")
    assert (acted.stopped, acted.said) == (begun.turn, operator_texts.STOPPED)
    assert [event.kind for event in acted.events] == ["notice", "turn"]
    assert await process.look("SELECT state, why FROM turn") == [("stopped", "operator")]
    assert (await here.began()).texts == ("next",)


async def test_a_suspended_conversation_is_resumed_with_its_history_and_its_note(process: StoreProcess) -> None:
    begun = await process.called()
    suspended = await done(process, "suspend")
    assert (suspended.stopped, (await process.entry()).state) == (begun.turn, Suspended("operator", process.now))
    again = await done(process, "resume", name="a2")
    assert (again.said, again.stopped) == (operator_texts.RESUMED, None)
    entry = await process.entry()
    assert (entry.session_id, entry.state) == (begun.session_id, ResumePending("restart_interrupted", process.now))
    assert [row[0] for row in await process.look("SELECT text FROM outbox ORDER BY id")] == [
        operator_texts.TELL_SUSPENDED, operator_texts.TELL_CUT_OFF,
    ]  # fmt: skip


async def test_a_turn_that_was_cut_off_long_ago_continues_on_resume(process: StoreProcess) -> None:
    later = replace(process, resume="on_message")
    begun = await later.called()
    await later.die()
    process.clock.advance(100_000)
    assert await later.begin() is None
    assert (await done(later, "resume")).said == operator_texts.GOES_ON
    resumed = await later.began()
    assert (resumed.turn, resumed.attempt) == (begun.turn, 2)
    assert resumed.note is not None


async def test_a_reset_withdraws_what_waits_and_keeps_the_earlier_conversation(process: StoreProcess) -> None:
    begun = await process.called()
    await process.accept("next")
    acted = await done(process, "reset")
    entry = await process.entry()
    assert (acted.stopped, acted.said) == (begun.turn, operator_texts.reset_done(1))
    assert (entry.previous_session_id, entry.turn, entry.waiting) == (begun.session_id, None, 0)
    assert await process.states("inbox") == ["withdrawn", "withdrawn"]


@pytest.mark.parametrize(
    ("scene", "action", "why"),
    [
        ("nobody", "stop", operator_texts.NO_CONVERSATION),
        ("idle", "stop", operator_texts.NOTHING_RUNS),
        ("idle", "resume", operator_texts.NOTHING_TO_RESUME),
        ("running", "resume", operator_texts.RUNS_ALREADY),
        ("suspended", "suspend", operator_texts.SUSPENDED_ALREADY),
        ("back", "resume", operator_texts.GOES_ON_WITH_MESSAGE),
        ("address", "reset", operator_texts.NOTHING_TO_RESET),
        ("address", "suspend", operator_texts.NO_CONVERSATION),
    ],
)
async def test_what_can_not_be_done_changes_nothing_and_says_why(
    process: StoreProcess, scene: str, action: str, why: str
) -> None:
    if scene == "address":
        await process.command("/help")
    elif scene in {"running", "suspended", "back"}:
        await process.called()
    elif scene == "idle":
        await process.talk()
    if scene in {"suspended", "back"}:
        await process.store.run(suspend_session, key_of(), process.now)
    if scene == "back":
        await done(process, "resume", name="before")
    assert await process.unchanged(act_on_session, act(process, action)) == Impossible(why)


async def test_an_id_does_one_thing_for_ever(process: StoreProcess) -> None:
    """The answer was lost, the process died, the client asks again: later, from another process."""
    begun = await process.called()
    first = await done(process, "stop")
    await process.called("next")
    process.clock.advance(3600)
    again = await process.unchanged(act_on_session, act(replace(process, instance=2), "stop"))
    assert isinstance(again, Acted)
    assert (again.said, again.stopped) == (first.said, begun.turn)
    assert await process.unchanged(act_on_session, act(process, "reset")) == Impossible(operator_texts.CONFLICT)
    assert await process.unchanged(act_on_session, act(process, "stop", key_of("d"))) == Impossible(
        operator_texts.CONFLICT
    )


# -- replies ----------------------------------------------------------------------------------------------------------


async def test_a_dead_reply_is_pending_again_at_once_whatever_its_age(process: StoreProcess) -> None:
    number = await dead(process)
    await process.plant("UPDATE outbox SET valid_until=1, attempts=8")
    await process.twice(act_on_reply, act(process, "send", number))
    assert await process.look("SELECT state, attempts, valid_until, marked, dead_at, ended_at FROM outbox") == [
        ("pending", 0, None, 0, None, None)
    ]
    assert (await process.sending()).id == number


async def test_a_reply_that_was_sent_again_and_refused_again_tells_all_of_it(process: StoreProcess) -> None:
    number = await dead(process)
    process.clock.advance(60)
    await process.twice(act_on_reply, act(process, "send", number))
    again_at = process.now
    await process.twice(try_later, await process.sending(), process.now + 60, "slow")
    process.clock.advance(60)
    await process.twice(make_dead_letter, await process.sending(), process.now, "refused again")
    (row,) = await process.store.read(replies, "dead", 0, 9)
    told = [row[name] for name in ("tries", "tried_at", "dead_tries", "sent_again_at", "sent_again_by")]
    assert told == [3, process.now, 2, again_at, "owner"]
    (told_life,) = await process.store.read(explain, await ext_id(process))
    lines = [text for _, text in timeline(told_life)]
    assert "reply: attempt 1 failed: dead letter: refused" in lines
    assert lines[-3:] == [
        "the reply was sent again by the owner",
        "reply: attempt 2 failed: slow",
        "reply failed again: dead letter after 3 attempts: refused again",
    ]


@pytest.mark.parametrize(
    ("action", "state", "marked"), [("send", "pending", 1), ("drop", "dead", 1), ("mark_sent", "sent", 0)]
)
async def test_the_owner_decides_about_an_unknown_delivery(
    process: StoreProcess, action: str, state: str, marked: int
) -> None:
    number = await unknown_reply(process)
    await process.twice(act_on_reply, act(process, action, number))
    assert await process.look("SELECT state, marked, dead_at FROM outbox") == [(state, marked, None)]


async def test_a_reply_that_waits_for_its_next_attempt_is_hurried_or_dropped(process: StoreProcess) -> None:
    begun = await process.talk()
    await process.store.run(try_later, await process.sending(), process.now + 300, "not now")
    await process.twice(act_on_reply, act(process, "send", begun.turn))
    assert await process.look("SELECT state, due_at FROM outbox") == [("pending", process.now)]
    await process.twice(act_on_reply, act(process, "drop", begun.turn, "a2"))
    assert await process.states("outbox") == ["dead"]


@pytest.mark.parametrize(
    ("scene", "action", "why"),
    [
        ("sent", "send", operator_texts.DELIVERED),
        ("sending", "drop", operator_texts.BEING_SENT),
        ("dead", "mark_sent", operator_texts.ONLY_UNKNOWN),
        ("none", "send", operator_texts.NO_REPLY),
    ],
)
async def test_a_reply_that_is_elsewhere_is_left_alone(
    process: StoreProcess, scene: str, action: str, why: str
) -> None:
    number = 1 if scene == "none" else await dead(process)
    if scene in {"sent", "sending"}:
        await process.plant("UPDATE outbox SET state=$1, dead_at=NULL", scene)
        await process.plant("UPDATE outbox SET ended_at=NULL WHERE state='sending'")
    assert await process.unchanged(act_on_reply, act(process, action, number)) == Impossible(why)


async def test_what_was_put_away_is_forgotten_and_what_was_not_is_kept(process: StoreProcess) -> None:
    first, second = await dead(process), await dead(process, "d")
    await process.store.run(act_on_reply, act(process, "drop", first))
    process.clock.advance(IDS_KEPT_S + 1)
    while await process.store.run(forget, process.now):
        pass
    assert await process.look("SELECT id FROM outbox") == [(second,)]
    assert await process.look("SELECT id FROM action") == []


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_is_run_again_as_a_message_of_its_own(process: StoreProcess) -> None:
    number = await failed(process)
    acted = await process.twice(act_on_message, act(process, "run", number))
    assert isinstance(acted, Acted)
    assert (await process.entry()).waiting == 1
    assert await process.look("SELECT state, dead_at, body FROM inbox ORDER BY id") == [
        ("dead", None, "hello"), ("queued", None, "hello"),
    ]  # fmt: skip
    begun = await process.began()
    assert isinstance(begun, StartedTurn)
    assert (begun.texts, begun.source.chat_id) == (("hello",), "c")
    again = await process.unchanged(act_on_message, act(process, "run", number, "a2"))
    assert again == Impossible(operator_texts.NO_MESSAGE)


async def test_a_dead_letter_is_run_again_with_its_files(process: StoreProcess) -> None:
    photo = Attachment(kind="image", ref="r1", name="cat.jpg")
    arrival = structs.replace(process.arrival("look"), attachments=(photo,), album="a")
    await process.store.run(store_dead_letter, arrival, "queue_full", "too many")
    await process.twice(act_on_message, act(process, "run", arrival.id))
    process.clock.advance(ALBUM_S)
    (carried,) = (await process.began()).carried
    assert (carried.attachments, carried.settled) == ((photo,), None)
    assert await process.look("SELECT album FROM inbox ORDER BY id") == [("a",), ("a",)]


async def test_a_dead_letters_text_and_files_are_kept_until_it_is_dropped(process: StoreProcess) -> None:
    number = await failed(process)
    await process.plant("UPDATE inbox SET extras='{}', attachments='[]', fetched='{}'")
    process.clock.advance(BODIES_KEPT_S + 1)
    while await process.store.run(forget, process.now):
        pass
    kept = "SELECT body, extras, attachments, fetched, state, dead_at IS NULL FROM inbox"
    assert await process.look(kept) == [("hello", "{}", "[]", "{}", "dead", False)]
    await process.twice(act_on_message, act(process, "drop", number))
    assert await process.look(kept) == [("", None, None, None, "dead", True)]


async def test_who_was_running_at_every_unclean_end_is_run_again_with_a_warning(process: StoreProcess) -> None:
    await process.called("crash always")
    for _ in range(2):
        await process.die()
        await process.store.run(calling, await process.began())
    await process.die()
    process.clock.advance(1)
    (dead,) = await process.store.read(messages, "dead", 0, 9)
    assert dead["why"] == "suspended after 3 unclean ends in a row while it worked on: crash always"
    assert dead["warning"] == operator_texts.ran_at_every_end(3)
    await done(process, "resume", name="a2")
    process.clock.advance(1)
    acted = await process.twice(act_on_message, act(process, "run", dead["id"]))
    assert isinstance(acted, Acted)
    assert acted.said == operator_texts.message_again(operator_texts.ran_at_every_end(3))
    first, second = await process.store.read(explain, await ext_id(process))
    assert first["suspended_why"] == dead["why"]
    did = [text for _, text in timeline(first)][-3:-1]
    assert did == ["the conversation was resumed by the owner", "the message was run again by the owner"]
    assert timeline(second)[0][1] == "message queued again by an operator"


async def test_a_dead_letter_of_a_suspended_conversation_waits_for_its_resume(process: StoreProcess) -> None:
    begun = await process.called()
    await process.store.run(suspend_session, key_of(), process.now)
    number = begun.inbox[0]
    refused = await process.unchanged(act_on_message, act(process, "run", number))
    assert refused == Impossible(operator_texts.SUSPENDED)
    await done(process, "resume", name="a2")
    assert isinstance(await process.twice(act_on_message, act(process, "run", number)), Acted)
    assert (await process.began()).session_id == begun.session_id
