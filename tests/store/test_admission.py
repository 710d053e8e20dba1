"""Turning somebody out, on both engines: in one transaction, under all their ids, and nobody else."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide.admission import Admission, Policy
from everturn.decide.keys import Isolation
from everturn.errors import FenceLost
from everturn.model import ToolCall
from everturn.store.operations.admission import let_in, list_people, revoke, standing
from everturn.store.operations.approvals import Asking, ask_first
from everturn.store.operations.commands import apply_command
from everturn.store.operations.inbox import accept
from everturn.store.operations.joining import join_turn
from everturn.store.operations.turns import finish
from tests.contracts.store import QUEUE, Life, key_of, living, origin

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
    await life.store.run(join_turn, begun, Isolation(), life.now, life.delivery)
    await life.store.run(revoke, "fake", "bob", life.now)
    assert await life.states("inbox") == ["dead", "dead"]
    (notice,) = await life.look("SELECT text FROM outbox WHERE kind='notice'")
    assert "stopped" in notice[0]


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
    joined = await life.twice(join_turn, begun, Isolation(), life.now, life.delivery, NOBODY)
    assert (joined.messages, joined.begun.waiting) == ((), 0)
    command = life.arrival("/new")
    await life.store.run(accept, command, QUEUE, None)
    terms = replace(life.terms(), admission=NOBODY)
    applied = await life.store.run(apply_command, command.id, "fresh", life.now, life.delivery, terms)
    assert applied is not None
    assert await life.look("SELECT body, state, why FROM inbox WHERE kind='command'") == [("/new", "dead", "revoked")]
    assert (await life.entry()).session_id == begun.session_id
