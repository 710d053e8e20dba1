"""What tools store on behalf of a turn: refused when the turn lost its key, and the same however often it is run."""

from collections.abc import AsyncIterator

import pytest

from everturn.agent.rows import Memory, forget_memory, recall, remember
from everturn.errors import FenceLost
from everturn.model import SessionSource
from everturn.outbox.rows.outbox import ToolMessage, post
from everturn.outbox.rules.delivery import Delivery
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import OutputPage, finish_effect, read_page, step
from tests.contracts.store import (
    AT_ONCE,
    BY_EVENT,
    BY_OUTBOX,
    StoreProcess,
    call_of,
    key_of,
    living,
    response,
    result,
    select,
)

OTHER = SessionSource(platform="fake", chat_id="other", user_id="u")


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


def tool_message(
    process: StoreProcess, begun: StartedTurn, delivery: Delivery = BY_OUTBOX, call: str = "call"
) -> ToolMessage:
    return ToolMessage(
        key=begun.key,
        turn=begun.turn,
        attempt=begun.attempt,
        call_id=call,
        number=process.ids.next(),
        to_key=key_of("other"),
        to=OTHER,
        text="hello",
        at=process.now,
        delivery=delivery,
        instance=process.instance,
    )


async def pending(process: StoreProcess) -> list[str]:
    rows = await process.store.read(select, "SELECT text FROM outbox WHERE key=$1", key_of("other"))
    return [str(text) for (text,) in rows if text == "hello"]


async def begun_call(process: StoreProcess) -> StartedTurn:
    """A turn with a call that was begun."""
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    return begun


@pytest.mark.parametrize("delivery", [BY_OUTBOX, AT_ONCE, BY_EVENT])
async def test_a_call_queues_one_message_however_often_it_is_repeated(
    process: StoreProcess, delivery: Delivery
) -> None:
    """Promise 5: each repetition brings a number of its own, as a later process does."""
    await process.talk(chat="other")
    begun = await begun_call(process)
    assert await process.twice(post, tool_message(process, begun, delivery)) is not None
    assert await process.store.run(post, tool_message(process, begun, delivery)) is not None
    assert await pending(process) == ["hello"]


async def test_where_events_are_the_delivery_somebody_must_be_there(process: StoreProcess) -> None:
    begun = await begun_call(process)
    assert await process.store.run(post, tool_message(process, begun, BY_EVENT)) is None
    assert await pending(process) == []


@pytest.mark.parametrize("since", ["reset", "interrupted", "resumed"])
async def test_a_turn_that_lost_its_key_sends_and_remembers_nothing(process: StoreProcess, since: str) -> None:
    """Promise 8. Where the turn goes on in another attempt, the former one has lost it as well."""
    begun = await begun_call(process)
    if since == "reset":
        await process.command("/new")
    else:
        await process.die()
    if since == "resumed":
        assert (await process.began()).turn == begun.turn
    memory = Memory("name", "text", process.now)
    for operation, given in (
        (post, (tool_message(process, begun),)),
        (remember, (begun.key, begun.turn, begun.attempt, "scope", memory, 10)),
        (forget_memory, (begun.key, begun.turn, begun.attempt, "scope", "name")),
    ):
        with pytest.raises(FenceLost):
            await process.store.run(operation, *given)
    assert await pending(process) == []
    assert await process.store.read(recall, "scope", 10) == []


async def test_memories_are_kept_and_forgotten_the_same_however_often(process: StoreProcess) -> None:
    begun = await process.begun()
    memory = Memory("name", "text", process.now)
    assert await process.twice(remember, begun.key, begun.turn, begun.attempt, "scope", memory, 1) is True
    more = Memory("more", "x", process.now)
    assert await process.store.run(remember, begun.key, begun.turn, begun.attempt, "scope", more, 1) is False
    assert await process.store.read(recall, "scope", 10) == [memory]
    assert await process.store.read(recall, "another", 10) == []
    await process.twice(forget_memory, begun.key, begun.turn, begun.attempt, "scope", "name")
    assert await process.store.read(recall, "scope", 10) == []


async def test_a_long_output_is_committed_with_its_result(process: StoreProcess) -> None:
    begun = await begun_call(process)
    await process.twice(finish_effect, begun, result(begun, 2, "call", "short"), None, "the whole of it")
    page = await process.store.read(read_page, begun.turn, "call", begun.key, "", 4, 5)
    assert page == OutputPage("whole", 15)
    assert await process.store.read(read_page, begun.turn, "call", key_of("other"), "", 0, 5) is None
    assert await process.store.read(read_page, begun.turn, "call", "", begun.session_id, 14, 5) == OutputPage("t", 15)
