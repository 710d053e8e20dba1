"""Approval requests and their answers as rows: stored once, bound to a person, answered once, remembered, expired, closed."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn.errors import FenceLost
from everturn.inbox.rows.steering import join_turn
from everturn.model import ACTIVE, Effect, ToolCall
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rules.keys import Isolation
from everturn.turns.rows.approval_requests import answered_keys, notify_queued
from everturn.turns.rows.approvals import ApprovalTerms, May, Permission, begin_approved, due_approvals, expire_approval
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.turn_values import BehindApproval, StartedTurn
from everturn.turns.rows.turns import effects_of, finish_effect, step
from everturn.turns.rules import turn_texts
from tests.contracts.store import BY_EVENT, BY_OUTBOX, StoreProcess, answer_to, broken, key_of, living, response, result

DAY = 86_400.0
BOB = "fake:bob"
SHELL = ToolCall(id="call", name="shell", effect=Effect.ONCE, ask="Run: rm -r x")


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


def terms(process: StoreProcess) -> ApprovalTerms:
    return ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=7 * DAY, delivery=process.delivery)


async def responded(process: StoreProcess, text: str = "hello", chat: str = "c") -> StartedTurn:
    """A turn whose model calls the shell; no approval request is stored yet."""
    begun = await process.called(text, chat)
    await process.store.run(step, begun, response(begun, 1, "call", at=process.now), None, None, prove_it=False)
    return begun


async def asked(process: StoreProcess, chat: str = "c") -> int:
    """A turn that awaits approval; returns the number of its request."""
    begun, request = await responded(process, chat=chat), terms(process)
    permission = await process.store.run(begin_approved, begun, SHELL, request)
    assert permission.may is May.REQUESTED
    return request.id


async def asks_again(process: StoreProcess, chat: str = "c") -> Permission:
    """Resume the waiting turn and begin its call or request an approval."""
    begun = await process.began(chat)
    return await process.store.run(begin_approved, begun, SHELL, terms(process))


@pytest.mark.parametrize(("delivery", "told"), [(BY_OUTBOX, []), (BY_EVENT, ["approval", "turn"])])
async def test_an_approval_request_releases_the_key_and_is_stored_once(
    process: StoreProcess, delivery: Delivery, told: list[str]
) -> None:
    process = replace(process, delivery=delivery)
    begun = await responded(process)
    permission = await process.twice(begin_approved, begun, SHELL, terms(process))
    entry = await process.entry()
    assert (permission.may, [event.kind for event in permission.events]) == (May.REQUESTED, told)
    assert (entry.holder, entry.turn, entry.state, entry.unclean_ends) == (None, begun.turn, ACTIVE, 0)
    assert (await process.states("turn"), await process.states("approval")) == (["awaiting_approval"], ["open"])
    assert [row[0] for row in await process.look("SELECT kind FROM outbox")] == ["approval_request"]
    assert await process.store.read(effects_of, begun.turn) == {}
    assert await process.die() == []  # nobody's: not cut off, not counted
    assert await process.unchanged(begin_next, key_of(), process.start()) is None
    assert await process.store.read(broken) == {}
    with pytest.raises(FenceLost):
        await process.finish(begun, 2)


@pytest.mark.parametrize("state", ["approved", "denied"])
async def test_an_answer_is_one_row_and_wakes_its_turn_without_a_note(process: StoreProcess, state: str) -> None:
    allow = state == "approved"
    await asked(process)
    process.clock.advance(3 * DAY)
    _, said = await answer_to(process, "/approve" if allow else "/deny not there")
    assert said.lower().startswith(f"{state}: shell")
    assert await process.store.read(answered_keys) == [key_of()]
    begun = await process.began()
    permission = await process.twice(begin_approved, begun, SHELL, terms(process))
    assert (begun.attempt, begun.note, begun.unclean_ends) == (2, None, 0)
    assert permission.may is (May.ALLOWED if allow else May.REFUSED)
    assert ("not there" in permission.why) is not allow
    assert (await process.store.read(effects_of, begun.turn)) == ({"call": "begun"} if allow else {})
    assert await process.store.read(broken) == {}


@pytest.mark.parametrize("other", [changed(SHELL, ask="Run: rm -r /"), changed(SHELL, name="mail")])
async def test_an_answer_holds_for_the_call_that_was_shown_and_no_other(process: StoreProcess, other: ToolCall) -> None:
    await asked(process)
    await answer_to(process, "/approve")
    begun = await process.began()
    permission = await process.unchanged(begin_approved, begun, other, terms(process))
    assert (permission.may, permission.why) == (May.REFUSED, turn_texts.another_call("call"))
    assert (await process.store.run(begin_approved, begun, SHELL, terms(process))).may is May.ALLOWED


@pytest.mark.parametrize(("answer", "may"), [("/approve", May.REFUSED), ("/approve session", May.ALLOWED)])
async def test_an_answer_for_once_holds_for_one_run(process: StoreProcess, answer: str, may: May) -> None:
    await asked(process)
    await answer_to(process, answer)
    begun = await process.began()
    assert (await process.store.run(begin_approved, begun, SHELL, terms(process))).may is May.ALLOWED
    await process.store.run(finish_effect, begun, result(begun, 1, "call", at=process.now), None)
    assert (await process.store.run(begin_approved, begun, SHELL, terms(process))).may is may


async def test_a_late_answer_changes_nothing(process: StoreProcess) -> None:
    number = await asked(process)
    await answer_to(process, "/deny")
    assert (await answer_to(process, f"/approve {number}"))[1] == turn_texts.no_longer_open()
    assert (await answer_to(process, "/approve"))[1] == turn_texts.nothing_asked()
    assert await process.states("approval") == ["denied"]
    assert (await answer_to(process, "/approve", "elsewhere"))[1] == turn_texts.nothing_asked()


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
    process: StoreProcess, by: str, text: str, approvers: tuple[str, ...], state: str
) -> None:
    await asked(process)
    terms = changed(process.terms(), approvers=approvers)
    _, said = await answer_to(process, text, terms=terms, user_id=by)
    assert await process.states("approval") == [state]
    assert (said == turn_texts.not_yours(approvers=bool(approvers))) is (state == "open")


async def test_an_answer_may_come_from_another_chat_by_its_number(process: StoreProcess) -> None:
    number = await asked(process)
    await process.talk(chat="other")
    applied, _ = await answer_to(process, f"/approve {number}", "other")
    assert applied.wakes == key_of()
    assert (await asks_again(process)).may is May.ALLOWED


@pytest.mark.parametrize(("scope", "same", "fresh"), [("once", 0, 0), ("session", 1, 0), ("always", 1, 1)])
async def test_an_approval_is_remembered_as_long_as_was_said(
    process: StoreProcess, scope: str, same: int, fresh: int
) -> None:
    await asked(process)
    await answer_to(process, f"/approve {scope}")
    begun = await process.began()
    assert (await process.store.run(begin_approved, begun, SHELL, terms(process))).may is May.ALLOWED
    await process.finish(begun, 1)
    second = await responded(process)
    may = (await process.store.run(begin_approved, second, SHELL, terms(process))).may
    assert may is (May.ALLOWED if same else May.REQUESTED)
    await process.command("/new")
    third = await responded(process)
    may = (await process.store.run(begin_approved, third, SHELL, terms(process))).may
    assert may is (May.ALLOWED if fresh else May.REQUESTED)


async def remembers(process: StoreProcess, *people: str) -> None:
    """Each of them has approved the shell for always, in a chat of their own."""
    for person in people:
        begun = await process.called("hello", person, user_id=person)
        await process.store.run(step, begun, response(begun, 1, "call", at=process.now), None, None, prove_it=False)
        await process.store.run(begin_approved, begun, SHELL, terms(process))
        await answer_to(process, "/approve always", person, user_id=person)
        await process.finish(await process.began(person), 1)


async def shared(process: StoreProcess, how: str) -> StartedTurn:
    """A turn that eve began and ann wrote in last: she joined it while it ran, or both were collected for it."""
    if how == "joined":
        begun = await process.called("delete everything", "s", user_id="eve")
        await process.accept("thanks", "s", busy="steer", user_id="ann")
        begun = (
            await process.twice(join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery)
        ).begun
    else:
        for user, text in (("eve", "delete everything"), ("ann", "thanks")):
            await process.accept(text, "s", user_id=user)
        await process.plant("UPDATE inbox SET busy='collect' WHERE state='queued'")
        process.clock.advance(60)
        begun = await process.began("s")
    await process.store.run(step, begun, response(begun, 1, "call", at=process.now), None, None, prove_it=False)
    return begun


@pytest.mark.parametrize("how", ["joined", "collected"])
@pytest.mark.parametrize(
    ("remembered", "may"), [(("ann",), May.REQUESTED), (("eve",), May.REQUESTED), (("ann", "eve"), May.ALLOWED)]
)
async def test_nobody_acts_with_an_approval_of_whoever_wrote_last(
    process: StoreProcess, how: str, remembered: tuple[str, ...], may: May
) -> None:
    """A turn that several people share needs an approval that each of them has."""
    await remembers(process, *remembered)
    begun = await shared(process, how)
    assert (begun.authors, begun.person, begun.source.user_id) == (("fake:eve", "fake:ann"), "fake:eve", "ann")
    assert (await process.twice(begin_approved, begun, SHELL, terms(process))).may is may


@pytest.mark.parametrize("how", ["joined", "collected"])
async def test_an_approval_request_of_a_shared_turn_is_for_who_began_it(process: StoreProcess, how: str) -> None:
    begun = await shared(process, how)
    await process.store.run(begin_approved, begun, SHELL, terms(process))
    assert (await answer_to(process, "/approve", "s", user_id="ann"))[1] == turn_texts.not_yours(approvers=False)
    assert (await answer_to(process, "/approve always", "s", user_id="eve"))[1].startswith("Approved: shell")
    again = await process.began("s")
    assert again.authors == begun.authors
    assert (await process.store.run(begin_approved, again, SHELL, terms(process))).may is May.ALLOWED
    other = ToolCall(id="other", name="shell", effect=Effect.ONCE, ask="Run: rm -r y")
    await process.store.run(step, again, response(again, 1, "other", at=process.now), None, None, prove_it=False)
    assert (
        await process.store.run(begin_approved, again, other, terms(process))
    ).may is May.REQUESTED  # eve's yes is not ann's


async def test_an_approval_request_expires_visibly_and_its_turn_goes_on(process: StoreProcess) -> None:
    number = await asked(process)
    assert await process.store.read(due_approvals, process.now + 7 * DAY - 1) == []
    process.clock.advance(7 * DAY)
    assert (await answer_to(process, f"/approve {number}"))[1] == turn_texts.no_longer_open()
    assert await process.store.read(due_approvals, process.now) == [(number, key_of())]
    await process.twice(expire_approval, number, key_of(), process.ids.next(), process.now, process.delivery)
    assert [row[0] for row in await process.look("SELECT kind FROM outbox ORDER BY id")] == [
        "approval_request",
        "reply",
        "notice",
    ]
    assert await process.store.read(answered_keys) == [key_of()]
    permission = await asks_again(process)
    assert (permission.may, "in time" in permission.why) == (May.REFUSED, True)


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_a_command_that_ends_the_turn_closes_its_approval_request(process: StoreProcess, command: str) -> None:
    number = await asked(process)
    await process.command(command)
    assert (await process.states("turn"), await process.states("approval")) == (["stopped"], ["closed"])
    assert (await answer_to(process, f"/approve {number}"))[1] == turn_texts.no_longer_open()
    assert await process.store.read(broken) == {}


@pytest.mark.parametrize("busy", [None, "steer"])
async def test_another_message_closes_the_approval_request_and_joins_the_turn(
    process: StoreProcess, busy: str | None
) -> None:
    await asked(process)
    await process.accept("something else")
    await process.plant("UPDATE inbox SET busy=$1 WHERE state='queued'", busy)
    begun = await process.twice(begin_next, key_of(), process.start())
    assert isinstance(begun, StartedTurn)
    assert (begun.texts, begun.note, await process.states("approval")) == (
        ("hello", "something else"),
        None,
        ["closed"],
    )
    assert (await process.store.run(begin_approved, begun, SHELL, terms(process))).may is May.REFUSED
    assert await process.store.read(broken) == {}


async def test_queued_messages_wait_and_their_sender_gets_one_notice(process: StoreProcess) -> None:
    await asked(process)
    await process.accept("later")
    await process.plant("UPDATE inbox SET busy='queue' WHERE state='queued'")
    assert await process.unchanged(begin_next, key_of(), process.start()) == BehindApproval(key_of())
    await process.twice(notify_queued, key_of(), process.ids.next(), process.now, process.delivery)
    assert [row[0] for row in await process.look("SELECT kind FROM outbox ORDER BY id")] == [
        "approval_request",
        "notice",
    ]
    assert await process.unchanged(begin_next, key_of(), process.start()) is None
    await answer_to(process, "/approve")
    begun = await process.began()
    assert begun.texts == ("hello",)
    await process.finish(begun, 1)
    assert (await process.began()).texts == ("later",)


async def test_a_message_from_before_the_approval_request_does_not_close_it(process: StoreProcess) -> None:
    begun = await responded(process)
    await process.accept("written before")
    await process.store.run(begin_approved, begun, SHELL, terms(process))
    assert await process.unchanged(begin_next, key_of(), process.start()) is None
    assert await process.states("approval") == ["open"]


@pytest.mark.parametrize(("busy", "state"), [("interrupt", "stopped"), ("rollback", "rolled_back")])
async def test_a_message_that_takes_over_ends_the_waiting_turn_and_its_approval_request(
    process: StoreProcess, busy: str, state: str
) -> None:
    await asked(process)
    await process.accept("rather this")
    await process.plant("UPDATE inbox SET busy=$1 WHERE state='queued'", busy)
    begun = await process.began()
    assert (begun.texts, begun.attempt) == (("rather this",), 1)
    assert (await process.states("turn"), await process.states("approval")) == ([state, "running"], ["closed"])
    assert await process.store.read(broken) == {}


async def test_the_calls_behind_a_closed_approval_request_are_skipped_and_have_their_results_first(
    process: StoreProcess,
) -> None:
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "call", "next", at=process.now), None, None, prove_it=False)
    await process.store.run(begin_approved, begun, SHELL, terms(process))
    await process.accept("something else")
    await process.plant("UPDATE inbox SET busy='steer' WHERE state='queued'")
    again = await process.twice(begin_next, key_of(), process.start())
    assert isinstance(again, StartedTurn)
    rows = await process.look("SELECT role, call_id FROM message ORDER BY seq")
    assert rows == [("user", None), ("assistant", None), ("tool", "call"), ("tool", "next"), ("user", None)]
    assert again.seq == 5
