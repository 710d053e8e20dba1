"""An instance that others have closed takes no more work: it begins no turn, and claims no reply."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.errors import FenceLost
from everturn.inbox.rows.inbox import accept
from everturn.lifecycle.rows import join, record_end
from everturn.model import Reply
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.turn_values import StartedTurn
from tests.contracts.store import QUEUE, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    """It has joined the others of its database."""
    async with living(store_url) as process:
        number = await process.store.run(join, "token", "host", 1, process.now)
        yield replace(process, instance=number)
        assert await process.store.read(broken) == {}


async def close(process: StoreProcess) -> StoreProcess:
    """Let another instance take this one for dead; returns the other one, which goes on."""
    other = await process.store.run(join, "another", "host", 2, process.now)
    await process.store.run(record_end, process.instance, "unclean", process.now)
    return replace(process, instance=other)


async def test_it_begins_no_turn_with_a_message(process: StoreProcess) -> None:
    """The message is not stored either: its platform delivers it again, to whoever reads it next."""
    other = await close(process)
    stored = await process.dump()
    with pytest.raises(FenceLost, match="instance 1 was closed"):
        await process.store.run(accept, process.arrival(), QUEUE, process.start())
    assert await process.dump() == stored
    assert (await other.begun()).texts == ("hello",)


async def test_it_stores_a_message_without_beginning_its_turn(process: StoreProcess) -> None:
    other = await close(process)
    await process.accept()
    assert await process.states("inbox") == ["queued"]
    assert isinstance(await other.begin(), StartedTurn)


@pytest.mark.parametrize("interrupted", [False, True])
async def test_it_takes_no_key(process: StoreProcess, interrupted: bool) -> None:  # noqa: FBT001
    """Neither for a message that waits, nor to go on with an interrupted turn."""
    if interrupted:
        await process.called()
        await process.die()
    else:
        await process.accept()
    other = await close(process)
    stored = await process.dump()
    with pytest.raises(FenceLost, match="instance 1 was closed"):
        await process.store.run(begin_next, key_of(), process.start())
    assert await process.dump() == stored
    assert (await other.began()).attempt == 1 + interrupted


async def test_it_claims_no_reply(process: StoreProcess) -> None:
    await process.talk()
    other = await close(process)
    stored = await process.dump()
    assert await process.claim() is None
    assert await process.dump() == stored
    assert await process.states("outbox") == ["pending"]
    assert isinstance(await other.claim(), Reply)


async def test_while_it_is_open_it_takes_work(process: StoreProcess) -> None:
    await process.talk()
    assert isinstance(await process.claim(), Reply)
