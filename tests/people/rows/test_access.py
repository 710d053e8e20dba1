"""Turning somebody out, on both engines: in one transaction, under all their ids, and nobody else."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.commands.rows.commands import apply_command
from everturn.errors import FenceLost
from everturn.inbox.rows.inbox import accept
from everturn.inbox.rows.steering import join_turn
from everturn.model import ToolCall
from everturn.outbox.rows.outbox import record_bubble
from everturn.outbox.rows.streaming import Opened, Opening, open_bubble
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.people.rows.access import approve_person, list_people, revoke, standing
from everturn.people.rules import people_texts
from everturn.people.rules.access import AccessPolicy, Admission
from everturn.people.rules.people_texts import FORGOTTEN
from everturn.sessions.rows.entries import write_source
from everturn.sessions.rules.keys import Isolation
from everturn.turns.rows.approvals import ApprovalTerms, begin_approved
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import finish
from tests.contracts.store import QUEUE, StoreProcess, key_of, living, origin

ENDED = outbox_texts.ended("revoked")
NOBODY = Admission(policies={"fake": AccessPolicy()})


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as made:
        yield made


async def test_revoking_takes_the_fence_and_closes_the_approval_request(process: StoreProcess) -> None:
    begun = await process.begun("delete it")
    call = ToolCall("call", "rm", ask="may I?")
    await process.twice(
        begin_approved,
        begun,
        call,
        ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=60.0, delivery=process.delivery),
    )
    other = await process.begun("hello", "d")
    ended = await process.store.run(revoke, "fake", "ann", process.now)
    assert {each.key: each.turn for each in ended} == {key_of(): begun.turn, key_of("d"): other.turn}
    assert await process.states("approval") == ["closed"]
    assert await process.states("turn") == ["stopped", "stopped"]
    assert await process.states("inbox") == ["dead", "dead"]
    with pytest.raises(FenceLost):
        await process.store.run(finish, other, process.answer(other), process.delivery, process.instance, None)
    assert await process.store.run(revoke, "fake", "ann", process.now) == []


async def test_revoking_once_more_ends_a_turn_that_slipped_through(process: StoreProcess) -> None:
    """Its message was being accepted in the moment of the first revocation, and its author had no row to lock."""
    await process.store.run(revoke, "fake", "ann", process.now)
    begun = await process.begun()
    process.clock.advance(1)
    ended = await process.store.run(revoke, "fake", "ann", process.now)
    assert [(each.key, each.turn) for each in ended] == [(key_of(), begun.turn)]
    with pytest.raises(FenceLost):
        await process.finish(begun)


async def test_others_in_the_conversation_go_on(process: StoreProcess) -> None:
    await process.begun("hello", "d")
    await process.accept("mine", "d", user_id="bob")
    await process.accept("theirs", "d", user_id="eve")
    await process.store.run(revoke, "fake", "bob", process.now)
    rows = await process.look("SELECT body, state, why FROM inbox ORDER BY id")
    assert rows == [("hello", "claimed", None), ("mine", "dead", "revoked"), ("theirs", "queued", None)]
    assert (await process.entry("d")).waiting == 1


async def test_others_in_the_stopped_turn_get_a_notice(process: StoreProcess) -> None:
    begun = await process.begun("hello", "d")
    await process.accept("mine too", "d", busy="steer", user_id="bob")
    await process.store.run(join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery)
    await process.store.run(revoke, "fake", "bob", process.now)
    assert await process.states("inbox") == ["dead", "dead"]
    (notice,) = await process.look("SELECT text FROM outbox WHERE kind='notice'")
    assert "stopped" in notice[0]


async def test_others_in_the_stopped_turn_get_a_notice_in_its_streaming_message(process: StoreProcess) -> None:
    """The bubble is the turn's row in the outbox, so that a notice of its own would be none."""
    process = dataclasses.replace(process, delivery=Delivery(by_event=False, edits=True, streams=True))
    begun = await process.called("hello", "d")
    opening = Opening(
        number=process.ids.next(), instance=process.instance, at=process.now, on_unknown=UnknownAction.REPEAT
    )
    opened = await process.store.run(open_bubble, begun, opening)
    assert isinstance(opened, Opened)
    bubble = replace(opened.bubble, sending=None, said="first words")
    await process.store.run(record_bubble, begun.turn, opening.number, ("p1",), bubble)
    await process.accept("mine too", "d", busy="steer", user_id="bob")
    await process.store.run(join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery)
    await process.store.run(revoke, "fake", "bob", process.now)
    rows = await process.look("SELECT kind, state, text FROM outbox")
    assert rows == [("broken_off", "pending", people_texts.stopped_with_other())]


@pytest.mark.parametrize("more", ["and this", ""])
async def test_who_is_turned_out_by_the_next_start_leaves_a_notice_that_is_known(
    process: StoreProcess, more: str
) -> None:
    begun = await process.called("hello", "d")
    await process.accept("mine too", "d", busy="steer", user_id="bob")
    await process.store.run(join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery)
    if more:
        await process.accept(more, "d")
    await process.die()
    only_ann = Admission(policies={"fake": AccessPolicy(allow=("ann",))})
    next_ = await process.twice(begin_next, key_of("d"), replace(process.start(), admission=only_ann))
    assert (next_.spoke if isinstance(next_, StartedTurn) else next_) is (True if more else None)
    assert [row[0] for row in await process.look("SELECT kind FROM outbox")] == ["notice"]


@pytest.mark.parametrize(
    ("kind", "state", "parts", "after"),
    [
        ("reply", "pending", None, ("reply", "dead", "done", "revoked")),
        ("notice", "unknown", None, ("notice", "dead", "done", "revoked")),
        ("reply", "sending", None, ("reply", "dead", "done", "revoked")),
        ("pairing", "pending", None, ("pairing", "dead", FORGOTTEN, "revoked")),
        ("reply", "pending", '["p1"]', ("reply", "pending", ENDED, None)),
        ("reply", "sending", '["p1"]', ("reply", "sending", ENDED, None)),
        ("reply", "unknown", '["p1"]', ("reply", "dead", "done", "revoked")),
        ("broken_off", "pending", '["p1"]', ("broken_off", "pending", "done", None)),
    ],
)
async def test_what_is_pending_to_the_revoked_in_their_own_chat_ends(
    process: StoreProcess, kind: str, state: str, parts: str | None, after: tuple[str, str, str, str | None]
) -> None:
    """Of a streaming message only the end is shown; what is being sent is not sent again."""
    await process.talk()
    await process.talk(chat="g")
    await process.plant("UPDATE outbox SET kind=$1, state=$2 WHERE key=$3", kind, state, key_of())
    if parts is not None:
        await process.plant('UPDATE outbox SET parts=$1, bubble=\'{"name":"b"}\' WHERE key=$2', parts, key_of())
    group = write_source(replace(origin("g"), chat_type="group")).decode()
    await process.plant("UPDATE outbox SET source=$1 WHERE key=$2", group, key_of("g"))
    ended = await process.store.run(revoke, "fake", "ann", process.now)
    assert [each.key for each in ended] == ([key_of()] if after[2] == ENDED else [])
    look = "SELECT kind, state, text, error FROM outbox WHERE key=$1"
    assert await process.look(look, key_of()) == [after]
    assert await process.look(look, key_of("g")) == [("reply", "pending", "done", None)]
    assert await process.unchanged(revoke, "fake", "ann", process.now) == ended


async def test_what_an_approver_or_a_person_allowed_is_forgotten(process: StoreProcess) -> None:
    """Their own allowances in every scope and under every id, and what they allowed for others; nobody else's."""
    await process.store.run(approve_person, "fake", ["bob", "robert"], None, process.now, owner=False)
    rows = [
        ("person:fake:bob", "fake:bob", False),
        ("person:fake:robert", "fake:boss", False),
        ("session:s1:fake:bob", "fake:bob", False),
        ("session:s2:fake:eve", "fake:robert", False),
        ("key:agent:main:fake:dm:c", "fake:bob", False),
        ("key:agent:main:fake:dm:d", None, True),
        ("person:fake:eve", "fake:boss", True),
        ("person:other:bob", "other:bob", True),
        ("session:s1:other:bob", "fake:eve", True),
    ]
    for scope, by, _ in rows:
        await process.plant("INSERT INTO allowance VALUES ('main', 'shell', $1, $2, 1)", scope, by)
    await process.twice(revoke, "fake", "robert", process.now)
    left = await process.look("SELECT scope FROM allowance ORDER BY scope")
    assert [row[0] for row in left] == sorted(scope for scope, _, stays in rows if stays)


async def test_letting_in_again_under_one_id_lets_in_under_all(process: StoreProcess) -> None:
    await process.store.run(approve_person, "fake", ["bob", "robert"], "Bob", process.now, owner=False)
    await process.store.run(approve_person, "fake", ["eve"], None, process.now, owner=False)
    await process.store.run(revoke, "fake", "bob", process.now)
    await process.store.run(revoke, "fake", "eve", process.now)
    await process.twice(approve_person, "fake", ["robert"], None, process.now, owner=False)
    both = replace(origin(), user_id="bob", user_id_alt="robert")
    assert await process.store.read(standing, both) == "granted"
    assert await process.store.read(standing, replace(origin(), user_id="eve")) == "revoked"
    await process.store.run(revoke, "fake", "bob", process.now)
    assert await process.store.read(standing, replace(origin(), user_id="robert")) == "revoked"


async def test_all_ids_of_a_person_are_revoked_and_approved_again(process: StoreProcess) -> None:
    await process.twice(approve_person, "fake", ["bob", "robert"], "Bob", process.now, owner=True)
    robert = replace(origin(), user_id="robert")
    assert await process.store.read(standing, robert) == "owner"
    await process.store.run(revoke, "fake", "robert", process.now)
    people = await process.store.read(list_people)
    assert [(each["id"], each["state"], each["owner"]) for each in people] == [
        ("bob", "revoked", False),
        ("robert", "revoked", False),
    ]
    await process.store.run(approve_person, "fake", ["bob", "robert"], None, process.now, owner=False)
    assert await process.store.read(standing, robert) == "granted"


async def test_messages_of_the_revoked_do_not_join_and_their_commands_do_nothing(process: StoreProcess) -> None:
    """Whatever slipped in between the check on arrival and now."""
    begun = await process.begun()
    await process.accept("no", busy="steer")
    joined = await process.twice(
        join_turn, begun, process.ids.next(), Isolation(), process.now, process.delivery, NOBODY
    )
    assert (joined.messages, joined.begun.waiting) == ((), 0)
    command = process.arrival("/new")
    await process.store.run(accept, command, QUEUE, None)
    terms = replace(process.terms(), admission=NOBODY)
    applied = await process.store.run(apply_command, command.id, "fresh", process.now, process.delivery, terms)
    assert applied is not None
    assert await process.look("SELECT body, state, why FROM inbox WHERE kind='command'") == [
        ("/new", "dead", "revoked")
    ]
    assert (await process.entry()).session_id == begun.session_id
