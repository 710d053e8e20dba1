"""Questions and their answers as rows: asked once, bound to a person, answered once, remembered, expired, closed."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn.decide import approval_words
from everturn.decide.keys import Isolation
from everturn.errors import FenceLost
from everturn.model import ACTIVE, Effect, ToolCall
from everturn.store.operations.approvals import (
    Asking,
    May,
    Permission,
    ask_first,
    due_approvals,
    expire_approval,
)
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.joining import join_turn
from everturn.store.operations.questions import answered_keys, tell_held
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun, Waits
from everturn.store.operations.turns import effects_of, finish_effect, step
from tests.contracts.store import BY_EVENT, BY_OUTBOX, Life, answer_to, broken, key_of, living, response, result

DAY = 86_400.0
BOB = "fake:bob"
SHELL = ToolCall(id="call", name="shell", effect=Effect.ONCE, ask="Run: rm -r x")


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


def asking(life: Life) -> Asking:
    return Asking(id=life.ids.next(), at=life.now, expires_s=7 * DAY, delivery=life.delivery)


async def responded(life: Life, text: str = "hello", chat: str = "c") -> Begun:
    """A turn whose model wants the shell; nothing was asked yet."""
    begun = await life.called(text, chat)
    await life.store.run(step, begun, response(begun, 1, "call", at=life.now), None, None, prove_it=False)
    return begun


async def asked(life: Life, chat: str = "c") -> int:
    """A turn that waits; the number of its question."""
    begun, question = await responded(life, chat=chat), asking(life)
    permission = await life.store.run(ask_first, begun, SHELL, question)
    assert permission.may is May.ASKED
    return question.id


async def asks_again(life: Life, chat: str = "c") -> Permission:
    """The waiting turn goes on and asks for its call."""
    begun = await life.began(chat)
    return await life.store.run(ask_first, begun, SHELL, asking(life))


@pytest.mark.parametrize(("delivery", "told"), [(BY_OUTBOX, []), (BY_EVENT, ["approval", "turn"])])
async def test_a_question_lets_go_of_the_key_and_is_asked_once(life: Life, delivery: Delivery, told: list[str]) -> None:
    life = replace(life, delivery=delivery)
    begun = await responded(life)
    permission = await life.twice(ask_first, begun, SHELL, asking(life))
    entry = await life.entry()
    assert (permission.may, [event.kind for event in permission.events]) == (May.ASKED, told)
    assert (entry.holder, entry.turn, entry.state, entry.unclean_ends) == (None, begun.turn, ACTIVE, 0)
    assert (await life.states("turn"), await life.states("approval")) == (["waiting"], ["open"])
    assert [row[0] for row in await life.look("SELECT kind FROM outbox")] == ["question"]
    assert await life.store.read(effects_of, begun.turn) == {}
    assert await life.die() == []  # nobody's: not cut off, not counted
    assert await life.unchanged(begin_next, key_of(), life.start()) is None
    assert await life.store.read(broken) == {}
    with pytest.raises(FenceLost):
        await life.finish(begun, 2)


@pytest.mark.parametrize("state", ["approved", "denied"])
async def test_an_answer_is_one_row_and_wakes_its_turn_without_a_note(life: Life, state: str) -> None:
    allow = state == "approved"
    await asked(life)
    life.clock.advance(3 * DAY)
    _, said = await answer_to(life, "/approve" if allow else "/deny not there")
    assert said.lower().startswith(f"{state}: shell")
    assert await life.store.read(answered_keys) == [key_of()]
    begun = await life.began()
    permission = await life.twice(ask_first, begun, SHELL, asking(life))
    assert (begun.attempt, begun.note, begun.unclean_ends) == (2, None, 0)
    assert permission.may is (May.ALLOWED if allow else May.REFUSED)
    assert ("not there" in permission.why) is not allow
    assert (await life.store.read(effects_of, begun.turn)) == ({"call": "begun"} if allow else {})
    assert await life.store.read(broken) == {}


@pytest.mark.parametrize("other", [changed(SHELL, ask="Run: rm -r /"), changed(SHELL, name="mail")])
async def test_an_answer_holds_for_the_call_that_was_shown_and_no_other(life: Life, other: ToolCall) -> None:
    await asked(life)
    await answer_to(life, "/approve")
    begun = await life.began()
    permission = await life.unchanged(ask_first, begun, other, asking(life))
    assert (permission.may, permission.why) == (May.REFUSED, approval_words.another_call("call"))
    assert (await life.store.run(ask_first, begun, SHELL, asking(life))).may is May.ALLOWED


@pytest.mark.parametrize(("answer", "may"), [("/approve", May.REFUSED), ("/approve session", May.ALLOWED)])
async def test_an_answer_for_once_holds_for_one_run(life: Life, answer: str, may: May) -> None:
    await asked(life)
    await answer_to(life, answer)
    begun = await life.began()
    assert (await life.store.run(ask_first, begun, SHELL, asking(life))).may is May.ALLOWED
    await life.store.run(finish_effect, begun, result(begun, 1, "call", at=life.now), None)
    assert (await life.store.run(ask_first, begun, SHELL, asking(life))).may is may


async def test_a_late_answer_changes_nothing(life: Life) -> None:
    number = await asked(life)
    await answer_to(life, "/deny")
    assert (await answer_to(life, f"/approve {number}"))[1] == approval_words.no_longer_open()
    assert (await answer_to(life, "/approve"))[1] == approval_words.nothing_asked()
    assert await life.states("approval") == ["denied"]
    assert (await answer_to(life, "/approve", "elsewhere"))[1] == approval_words.nothing_asked()


@pytest.mark.parametrize(
    ("by", "text", "approvers", "state"),
    [
        ("ann", "/approve", (), "approved"),
        ("bob", "/approve", (), "open"),
        ("bob", "/deny", (), "open"),
        ("", "/approve", (), "open"),
        ("ann", "/approve", (BOB,), "open"),
        ("ann", "/deny", (BOB,), "denied"),
        ("bob", "/approve", (BOB,), "approved"),
    ],
)
async def test_an_answer_is_bound_to_people(
    life: Life, by: str, text: str, approvers: tuple[str, ...], state: str
) -> None:
    await asked(life)
    terms = changed(life.terms(), approvers=approvers)
    _, said = await answer_to(life, text, terms=terms, user_id=by)
    assert await life.states("approval") == [state]
    assert (said == approval_words.not_yours(approvers=bool(approvers))) is (state == "open")


async def test_an_answer_may_come_from_another_chat_by_its_number(life: Life) -> None:
    number = await asked(life)
    await life.talk(chat="other")
    applied, _ = await answer_to(life, f"/approve {number}", "other")
    assert applied.wakes == key_of()
    assert (await asks_again(life)).may is May.ALLOWED


@pytest.mark.parametrize(("scope", "same", "fresh"), [("once", 0, 0), ("session", 1, 0), ("always", 1, 1)])
async def test_a_yes_is_remembered_as_long_as_was_said(life: Life, scope: str, same: int, fresh: int) -> None:
    await asked(life)
    await answer_to(life, f"/approve {scope}")
    begun = await life.began()
    assert (await life.store.run(ask_first, begun, SHELL, asking(life))).may is May.ALLOWED
    await life.finish(begun, 1)
    second = await responded(life)
    may = (await life.store.run(ask_first, second, SHELL, asking(life))).may
    assert may is (May.ALLOWED if same else May.ASKED)
    await life.command("/new")
    third = await responded(life)
    may = (await life.store.run(ask_first, third, SHELL, asking(life))).may
    assert may is (May.ALLOWED if fresh else May.ASKED)


async def remembers(life: Life, *people: str) -> None:
    """Each of them has allowed the shell for always, in a chat of their own."""
    for person in people:
        begun = await life.called("hello", person, user_id=person)
        await life.store.run(step, begun, response(begun, 1, "call", at=life.now), None, None, prove_it=False)
        await life.store.run(ask_first, begun, SHELL, asking(life))
        await answer_to(life, "/approve always", person, user_id=person)
        await life.finish(await life.began(person), 1)


async def shared(life: Life, how: str) -> Begun:
    """A turn that eve began and ann spoke in last: she joined it while it ran, or both were collected for it."""
    if how == "joined":
        begun = await life.called("delete everything", "s", user_id="eve")
        await life.accept("thanks", "s", busy="steer", user_id="ann")
        begun = (await life.twice(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery)).begun
    else:
        for user, text in (("eve", "delete everything"), ("ann", "thanks")):
            await life.accept(text, "s", user_id=user)
        await life.plant("UPDATE inbox SET busy='collect' WHERE state='waiting'")
        life.clock.advance(60)
        begun = await life.began("s")
    await life.store.run(step, begun, response(begun, 1, "call", at=life.now), None, None, prove_it=False)
    return begun


@pytest.mark.parametrize("how", ["joined", "collected"])
@pytest.mark.parametrize(
    ("remembered", "may"), [(("ann",), May.ASKED), (("eve",), May.ASKED), (("ann", "eve"), May.ALLOWED)]
)
async def test_nobody_acts_with_a_yes_of_whoever_spoke_last(
    life: Life, how: str, remembered: tuple[str, ...], may: May
) -> None:
    """A turn that several people share needs a yes that each of them has."""
    await remembers(life, *remembered)
    begun = await shared(life, how)
    assert (begun.authors, begun.person, begun.source.user_id) == (("fake:eve", "fake:ann"), "fake:eve", "ann")
    assert (await life.twice(ask_first, begun, SHELL, asking(life))).may is may


@pytest.mark.parametrize("how", ["joined", "collected"])
async def test_a_question_of_a_shared_turn_is_for_who_began_it(life: Life, how: str) -> None:
    begun = await shared(life, how)
    await life.store.run(ask_first, begun, SHELL, asking(life))
    assert (await answer_to(life, "/approve", "s", user_id="ann"))[1] == approval_words.not_yours(approvers=False)
    assert (await answer_to(life, "/approve always", "s", user_id="eve"))[1].startswith("Approved: shell")
    again = await life.began("s")
    assert again.authors == begun.authors
    assert (await life.store.run(ask_first, again, SHELL, asking(life))).may is May.ALLOWED
    other = ToolCall(id="other", name="shell", effect=Effect.ONCE, ask="Run: rm -r y")
    await life.store.run(step, again, response(again, 1, "other", at=life.now), None, None, prove_it=False)
    assert (await life.store.run(ask_first, again, other, asking(life))).may is May.ASKED  # eve's yes is not ann's


async def test_a_question_expires_visibly_and_its_turn_goes_on(life: Life) -> None:
    number = await asked(life)
    assert await life.store.read(due_approvals, life.now + 7 * DAY - 1) == []
    life.clock.advance(7 * DAY)
    assert (await answer_to(life, f"/approve {number}"))[1] == approval_words.no_longer_open()
    assert await life.store.read(due_approvals, life.now) == [(number, key_of())]
    await life.twice(expire_approval, number, key_of(), life.ids.next(), life.now, life.delivery)
    assert [row[0] for row in await life.look("SELECT kind FROM outbox ORDER BY id")] == ["question", "reply", "notice"]
    assert await life.store.read(answered_keys) == [key_of()]
    permission = await asks_again(life)
    assert (permission.may, "in time" in permission.why) == (May.REFUSED, True)


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_a_command_that_ends_the_turn_closes_its_question(life: Life, command: str) -> None:
    number = await asked(life)
    await life.command(command)
    assert (await life.states("turn"), await life.states("approval")) == (["stopped"], ["closed"])
    assert (await answer_to(life, f"/approve {number}"))[1] == approval_words.no_longer_open()
    assert await life.store.read(broken) == {}


@pytest.mark.parametrize("busy", [None, "steer"])
async def test_other_words_close_the_question_and_join_the_turn(life: Life, busy: str | None) -> None:
    await asked(life)
    await life.accept("something else")
    await life.plant("UPDATE inbox SET busy=$1 WHERE state='waiting'", busy)
    begun = await life.twice(begin_next, key_of(), life.start())
    assert isinstance(begun, Begun)
    assert (begun.words, begun.note, await life.states("approval")) == (("hello", "something else"), None, ["closed"])
    assert (await life.store.run(ask_first, begun, SHELL, asking(life))).may is May.REFUSED
    assert await life.store.read(broken) == {}


async def test_queued_words_wait_and_their_sender_is_told_once(life: Life) -> None:
    await asked(life)
    await life.accept("later")
    await life.plant("UPDATE inbox SET busy='queue' WHERE state='waiting'")
    assert await life.unchanged(begin_next, key_of(), life.start()) == Waits(key_of())
    await life.twice(tell_held, key_of(), life.ids.next(), life.now, life.delivery)
    assert [row[0] for row in await life.look("SELECT kind FROM outbox ORDER BY id")] == ["question", "notice"]
    assert await life.unchanged(begin_next, key_of(), life.start()) is None
    await answer_to(life, "/approve")
    begun = await life.began()
    assert begun.words == ("hello",)
    await life.finish(begun, 1)
    assert (await life.began()).words == ("later",)


async def test_words_from_before_the_question_do_not_close_it(life: Life) -> None:
    begun = await responded(life)
    await life.accept("written before")
    await life.store.run(ask_first, begun, SHELL, asking(life))
    assert await life.unchanged(begin_next, key_of(), life.start()) is None
    assert await life.states("approval") == ["open"]


@pytest.mark.parametrize(("busy", "state"), [("interrupt", "stopped"), ("rollback", "rolled_back")])
async def test_a_message_that_takes_over_ends_the_waiting_turn_and_its_question(
    life: Life, busy: str, state: str
) -> None:
    await asked(life)
    await life.accept("rather this")
    await life.plant("UPDATE inbox SET busy=$1 WHERE state='waiting'", busy)
    begun = await life.began()
    assert (begun.words, begun.attempt) == (("rather this",), 1)
    assert (await life.states("turn"), await life.states("approval")) == ([state, "running"], ["closed"])
    assert await life.store.read(broken) == {}


async def test_the_calls_behind_a_closed_question_are_skipped_and_have_their_results_first(life: Life) -> None:
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "call", "next", at=life.now), None, None, prove_it=False)
    await life.store.run(ask_first, begun, SHELL, asking(life))
    await life.accept("something else")
    await life.plant("UPDATE inbox SET busy='steer' WHERE state='waiting'")
    again = await life.twice(begin_next, key_of(), life.start())
    assert isinstance(again, Begun)
    rows = await life.look("SELECT role, call_id FROM message ORDER BY seq")
    assert rows == [("user", None), ("assistant", None), ("tool", "call"), ("tool", "next"), ("user", None)]
    assert again.seq == 5
