"""What tools store on behalf of a turn: refused when the turn lost its key, and the same however often it is run."""

from collections.abc import AsyncIterator

import pytest

from everturn.errors import FenceLost
from everturn.model import SessionSource
from everturn.store.operations.memories import Memory, forget_memory, recall, remember
from everturn.store.operations.outputs import Page, read_page
from everturn.store.operations.sending import Letter, post
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import finish_effect, step
from tests.contracts.store import AT_ONCE, BY_EVENT, BY_OUTBOX, Life, call_of, key_of, living, response, result, select

OTHER = SessionSource(platform="fake", chat_id="other", user_id="u")


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


def letter(life: Life, begun: Begun, delivery: Delivery = BY_OUTBOX, call: str = "call") -> Letter:
    return Letter(
        key=begun.key,
        turn=begun.turn,
        attempt=begun.attempt,
        call_id=call,
        number=life.ids.next(),
        to_key=key_of("other"),
        to=OTHER,
        text="hello",
        at=life.now,
        delivery=delivery,
        instance=life.instance,
    )


async def owed(life: Life) -> list[str]:
    rows = await life.store.read(select, "SELECT text FROM outbox WHERE key=$1", key_of("other"))
    return [str(text) for (text,) in rows if text == "hello"]


async def begun_call(life: Life) -> Begun:
    """A turn with a call that was begun."""
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    return begun


@pytest.mark.parametrize("delivery", [BY_OUTBOX, AT_ONCE, BY_EVENT])
async def test_a_call_owes_one_message_however_often_it_is_repeated(life: Life, delivery: Delivery) -> None:
    """Promise 5: each repetition brings a number of its own, as a later life does."""
    await life.talk(chat="other")
    begun = await begun_call(life)
    assert await life.twice(post, letter(life, begun, delivery)) is not None
    assert await life.store.run(post, letter(life, begun, delivery)) is not None
    assert await owed(life) == ["hello"]


async def test_where_events_are_the_delivery_somebody_must_be_there(life: Life) -> None:
    begun = await begun_call(life)
    assert await life.store.run(post, letter(life, begun, BY_EVENT)) is None
    assert await owed(life) == []


@pytest.mark.parametrize("since", ["reset", "interrupted", "resumed"])
async def test_a_turn_that_lost_its_key_sends_and_remembers_nothing(life: Life, since: str) -> None:
    """Promise 8. Where the turn goes on in another attempt, the former one has lost it as well."""
    begun = await begun_call(life)
    if since == "reset":
        await life.command("/new")
    else:
        await life.die()
    if since == "resumed":
        assert (await life.began()).turn == begun.turn
    memory = Memory("name", "text", life.now)
    for operation, given in (
        (post, (letter(life, begun),)),
        (remember, (begun.key, begun.turn, begun.attempt, "scope", memory, 10)),
        (forget_memory, (begun.key, begun.turn, begun.attempt, "scope", "name")),
    ):
        with pytest.raises(FenceLost):
            await life.store.run(operation, *given)
    assert await owed(life) == []
    assert await life.store.read(recall, "scope", 10) == []


async def test_memories_are_kept_and_forgotten_the_same_however_often(life: Life) -> None:
    begun = await life.begun()
    memory = Memory("name", "text", life.now)
    assert await life.twice(remember, begun.key, begun.turn, begun.attempt, "scope", memory, 1) is True
    more = Memory("more", "x", life.now)
    assert await life.store.run(remember, begun.key, begun.turn, begun.attempt, "scope", more, 1) is False
    assert await life.store.read(recall, "scope", 10) == [memory]
    assert await life.store.read(recall, "another", 10) == []
    await life.twice(forget_memory, begun.key, begun.turn, begun.attempt, "scope", "name")
    assert await life.store.read(recall, "scope", 10) == []


async def test_a_long_output_is_committed_with_its_result(life: Life) -> None:
    begun = await begun_call(life)
    await life.twice(finish_effect, begun, result(begun, 2, "call", "short"), None, "the whole of it")
    page = await life.store.read(read_page, begun.turn, "call", begun.key, "", 4, 5)
    assert page == Page("whole", 15)
    assert await life.store.read(read_page, begun.turn, "call", key_of("other"), "", 0, 5) is None
    assert await life.store.read(read_page, begun.turn, "call", "", begun.session_id, 14, 5) == Page("t", 15)
