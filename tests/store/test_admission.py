"""Turning somebody out, on both engines: in one transaction, under all their ids, and nobody else."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide import admission_words, bubble_words
from everturn.decide.admission import Admission, Policy
from everturn.decide.admission_words import FORGOTTEN
from everturn.decide.delivery import Doubtful
from everturn.decide.keys import Isolation
from everturn.errors import FenceLost
from everturn.model import ToolCall
from everturn.store.operations.admission import let_in, list_people, revoke, standing
from everturn.store.operations.approvals import Asking, ask_first
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.commands import apply_command
from everturn.store.operations.entries import write_source
from everturn.store.operations.inbox import accept
from everturn.store.operations.joining import join_turn
from everturn.store.operations.outbox import record_bubble
from everturn.store.operations.previews import Opened, Opening, open_bubble
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import finish
from tests.contracts.store import QUEUE, Life, key_of, living, origin

ENDED = bubble_words.ended("revoked")
NOBODY = Admission(policies={"fake": Policy()})


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as made:
        yield made


async def test_revoking_takes_the_fence_and_closes_the_question(life: Life) -> None:
    begun = await life.begun("delete it")
    call = ToolCall("call", "rm", ask="may I?")
    await life.twice(
        ask_first, begun, call, Asking(id=life.ids.next(), at=life.now, expires_s=60.0, delivery=life.delivery)
    )
    other = await life.begun("hello", "d")
    ended = await life.store.run(revoke, "fake", "ann", life.now)
    assert {each.key: each.turn for each in ended} == {key_of(): begun.turn, key_of("d"): other.turn}
    assert await life.states("approval") == ["closed"]
    assert await life.states("turn") == ["stopped", "stopped"]
    assert await life.states("inbox") == ["dead", "dead"]
    with pytest.raises(FenceLost):
        await life.store.run(finish, other, life.answer(other), life.delivery, life.instance, None)
    assert await life.store.run(revoke, "fake", "ann", life.now) == []


async def test_revoking_once_more_ends_a_turn_that_slipped_through(life: Life) -> None:
    """Its message was being accepted in the moment of the first revocation, and its author had no row to lock."""
    await life.store.run(revoke, "fake", "ann", life.now)
    begun = await life.begun()
    life.clock.advance(1)
    ended = await life.store.run(revoke, "fake", "ann", life.now)
    assert [(each.key, each.turn) for each in ended] == [(key_of(), begun.turn)]
    with pytest.raises(FenceLost):
        await life.finish(begun)


async def test_others_in_the_conversation_go_on(life: Life) -> None:
    await life.begun("hello", "d")
    await life.accept("mine", "d", user_id="bob")
    await life.accept("theirs", "d", user_id="eve")
    await life.store.run(revoke, "fake", "bob", life.now)
    rows = await life.look("SELECT body, state, why FROM inbox ORDER BY id")
    assert rows == [("hello", "claimed", None), ("mine", "dead", "revoked"), ("theirs", "waiting", None)]
    assert (await life.entry("d")).waiting == 1


async def test_who_shared_the_stopped_turn_is_told(life: Life) -> None:
    begun = await life.begun("hello", "d")
    await life.accept("mine too", "d", busy="steer", user_id="bob")
    await life.store.run(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery)
    await life.store.run(revoke, "fake", "bob", life.now)
    assert await life.states("inbox") == ["dead", "dead"]
    (notice,) = await life.look("SELECT text FROM outbox WHERE kind='notice'")
    assert "stopped" in notice[0]


async def test_who_shared_the_stopped_turn_is_told_in_its_bubble(life: Life) -> None:
    """The bubble is the turn's row in the outbox, so that a notice of its own would be none."""
    life = dataclasses.replace(life, delivery=Delivery(by_event=False, edits=True, streams=True))
    begun = await life.called("hello", "d")
    opening = Opening(number=life.ids.next(), instance=life.instance, at=life.now, doubtful=Doubtful.REPEAT)
    opened = await life.store.run(open_bubble, begun, opening)
    assert isinstance(opened, Opened)
    bubble = replace(opened.bubble, sending=None, said="first words")
    await life.store.run(record_bubble, begun.turn, opening.number, ("p1",), bubble)
    await life.accept("mine too", "d", busy="steer", user_id="bob")
    await life.store.run(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery)
    await life.store.run(revoke, "fake", "bob", life.now)
    rows = await life.look("SELECT kind, state, text FROM outbox")
    assert rows == [("broken_off", "owed", admission_words.stopped_with_other())]


@pytest.mark.parametrize("more", ["and this", ""])
async def test_who_is_turned_out_by_the_next_start_leaves_a_notice_that_is_known(life: Life, more: str) -> None:
    begun = await life.called("hello", "d")
    await life.accept("mine too", "d", busy="steer", user_id="bob")
    await life.store.run(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery)
    if more:
        await life.accept(more, "d")
    await life.die()
    only_ann = Admission(policies={"fake": Policy(allow=("ann",))})
    next_ = await life.twice(begin_next, key_of("d"), replace(life.start(), admission=only_ann))
    assert (next_.spoke if isinstance(next_, Begun) else next_) is (True if more else None)
    assert [row[0] for row in await life.look("SELECT kind FROM outbox")] == ["notice"]


@pytest.mark.parametrize(
    ("kind", "state", "parts", "after"),
    [
        ("reply", "owed", None, ("reply", "dead", "done", "revoked")),
        ("notice", "doubtful", None, ("notice", "dead", "done", "revoked")),
        ("reply", "sending", None, ("reply", "dead", "done", "revoked")),
        ("pairing", "owed", None, ("pairing", "dead", FORGOTTEN, "revoked")),
        ("reply", "owed", '["p1"]', ("reply", "owed", ENDED, None)),
        ("reply", "sending", '["p1"]', ("reply", "sending", ENDED, None)),
        ("reply", "doubtful", '["p1"]', ("reply", "dead", "done", "revoked")),
        ("broken_off", "owed", '["p1"]', ("broken_off", "owed", "done", None)),
    ],
)
async def test_what_is_owed_to_the_revoked_in_their_own_chat_ends(
    life: Life, kind: str, state: str, parts: str | None, after: tuple[str, str, str, str | None]
) -> None:
    """Of a bubble that is on the screen only the end is shown; what is in a sender's hand is not sent again."""
    await life.talk()
    await life.talk(chat="g")
    await life.plant("UPDATE outbox SET kind=$1, state=$2 WHERE key=$3", kind, state, key_of())
    if parts is not None:
        await life.plant('UPDATE outbox SET parts=$1, bubble=\'{"name":"b"}\' WHERE key=$2', parts, key_of())
    group = write_source(replace(origin("g"), chat_type="group")).decode()
    await life.plant("UPDATE outbox SET source=$1 WHERE key=$2", group, key_of("g"))
    ended = await life.store.run(revoke, "fake", "ann", life.now)
    assert [each.key for each in ended] == ([key_of()] if after[2] == ENDED else [])
    look = "SELECT kind, state, text, error FROM outbox WHERE key=$1"
    assert await life.look(look, key_of()) == [after]
    assert await life.look(look, key_of("g")) == [("reply", "owed", "done", None)]
    assert await life.unchanged(revoke, "fake", "ann", life.now) == ended


async def test_what_an_approver_or_a_person_allowed_is_forgotten(life: Life) -> None:
    """Their own wishes in every scope and under every id, and what they allowed for others; nobody else's."""
    await life.store.run(let_in, "fake", ["bob", "robert"], None, life.now, owner=False)
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
        await life.plant("INSERT INTO allowance VALUES ('main', 'shell', $1, $2, 1)", scope, by)
    await life.twice(revoke, "fake", "robert", life.now)
    left = await life.look("SELECT scope FROM allowance ORDER BY scope")
    assert [row[0] for row in left] == sorted(scope for scope, _, stays in rows if stays)


async def test_letting_in_again_under_one_id_lets_in_under_all(life: Life) -> None:
    await life.store.run(let_in, "fake", ["bob", "robert"], "Bob", life.now, owner=False)
    await life.store.run(let_in, "fake", ["eve"], None, life.now, owner=False)
    await life.store.run(revoke, "fake", "bob", life.now)
    await life.store.run(revoke, "fake", "eve", life.now)
    await life.twice(let_in, "fake", ["robert"], None, life.now, owner=False)
    both = replace(origin(), user_id="bob", user_id_alt="robert")
    assert await life.store.read(standing, both) == "granted"
    assert await life.store.read(standing, replace(origin(), user_id="eve")) == "revoked"
    await life.store.run(revoke, "fake", "bob", life.now)
    assert await life.store.read(standing, replace(origin(), user_id="robert")) == "revoked"


async def test_all_ids_of_a_person_are_revoked_and_let_in_again(life: Life) -> None:
    await life.twice(let_in, "fake", ["bob", "robert"], "Bob", life.now, owner=True)
    robert = replace(origin(), user_id="robert")
    assert await life.store.read(standing, robert) == "owner"
    await life.store.run(revoke, "fake", "robert", life.now)
    people = await life.store.read(list_people)
    assert [(each["id"], each["state"], each["owner"]) for each in people] == [
        ("bob", "revoked", False),
        ("robert", "revoked", False),
    ]
    await life.store.run(let_in, "fake", ["bob", "robert"], None, life.now, owner=False)
    assert await life.store.read(standing, robert) == "granted"


async def test_words_of_the_revoked_do_not_join_and_their_commands_do_nothing(life: Life) -> None:
    """Whatever slipped in between the check at the door and now."""
    begun = await life.begun()
    await life.accept("no", busy="steer")
    joined = await life.twice(join_turn, begun, life.ids.next(), Isolation(), life.now, life.delivery, NOBODY)
    assert (joined.messages, joined.begun.waiting) == ((), 0)
    command = life.arrival("/new")
    await life.store.run(accept, command, QUEUE, None)
    terms = replace(life.terms(), admission=NOBODY)
    applied = await life.store.run(apply_command, command.id, "fresh", life.now, life.delivery, terms)
    assert applied is not None
    assert await life.look("SELECT body, state, why FROM inbox WHERE kind='command'") == [("/new", "dead", "revoked")]
    assert (await life.entry()).session_id == begun.session_id
