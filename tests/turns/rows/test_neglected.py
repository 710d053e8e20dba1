"""Work that nobody does: what an instance committed after it was closed, and then it ended."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.model import ToolCall
from everturn.outbox.rows.outbox import try_later
from everturn.turns.rows.approvals import ApprovalTerms, May, begin_approved
from everturn.turns.rows.recovery import unbegun_since, unsent_since
from tests.contracts.store import StoreProcess, broken, key_of, living

LIMIT_S = 30.0


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process
        assert await process.store.read(broken) == {}


async def neglected(process: StoreProcess) -> bool:
    """Whether something has waited for more than the limit."""
    since, now = process.now - LIMIT_S, process.now
    return bool(await process.store.read(unbegun_since, since) + await process.store.read(unsent_since, since, now))


async def when(process: StoreProcess, seconds: float) -> bool:
    """What is found after so much time."""
    process.clock.advance(seconds)
    return await neglected(process)


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_nothing_is_neglected_where_nothing_waits(process: StoreProcess) -> None:
    assert not await neglected(process)


async def test_a_message_that_nobody_begins_is_neglected_once_it_is_old(process: StoreProcess) -> None:
    await process.accept()
    assert [await when(process, LIMIT_S), await when(process, 1.0)] == [False, True]
    await process.began()
    assert not await neglected(process)


async def test_a_command_that_nobody_applies_is_neglected(process: StoreProcess) -> None:
    await process.accept("/status")
    assert await when(process, LIMIT_S + 1.0)


async def test_a_message_behind_a_turn_that_runs_is_not_neglected(process: StoreProcess) -> None:
    await process.begun()
    await process.accept("behind it")
    assert not await when(process, LIMIT_S + 1.0)


async def test_a_message_behind_a_turn_that_was_interrupted_is_not_neglected(process: StoreProcess) -> None:
    """Whether that one goes on is not a question of time."""
    await process.called()
    await process.accept("behind it")
    await process.die()
    assert not await when(process, LIMIT_S + 1.0)


async def test_a_message_to_a_turn_that_awaits_approval_is_not_neglected(process: StoreProcess) -> None:
    begun = await process.called()
    terms = ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=3600.0, delivery=process.delivery)
    permission = await process.store.run(begin_approved, begun, ToolCall("c1", "write", ask="May I?"), terms)
    assert permission.may is May.REQUESTED
    await process.accept("behind it")
    await process.plant("UPDATE outbox SET state='sent', ended_at=1.0")  # the request is out
    assert not await when(process, LIMIT_S + 1.0)


async def test_a_message_that_waits_for_its_suspended_session_is_not_neglected(process: StoreProcess) -> None:
    """Nobody begins it until its sender writes again."""
    await process.called()
    await process.accept("behind it")
    await replace(process, stuck_after=1).die()
    await process.plant("UPDATE outbox SET state='sent', ended_at=1.0")  # the notice is out
    assert await process.look("SELECT why FROM inbox WHERE state='queued'") == [("suspended",)]
    assert not await when(process, LIMIT_S + 1.0)


# -- replies ----------------------------------------------------------------------------------------------------------


async def test_a_reply_that_nobody_sends_is_neglected_once_it_is_long_due(process: StoreProcess) -> None:
    await process.talk()
    assert [await when(process, LIMIT_S), await when(process, 1.0)] == [False, True]
    await process.sending()
    assert not await neglected(process)


async def test_a_reply_that_failed_is_neglected_when_its_next_try_is_long_due(process: StoreProcess) -> None:
    await process.talk()
    await process.store.run(try_later, await process.sending(), process.now + 100.0, "busy")
    assert not await when(process, LIMIT_S + 1.0)
    assert await when(process, 100.0)


async def test_a_reply_behind_one_that_is_being_sent_is_not_neglected(process: StoreProcess) -> None:
    await process.talk("one")
    await process.talk("two")
    await process.sending()
    assert not await when(process, LIMIT_S + 1.0)


async def test_a_reply_behind_one_that_is_not_due_is_not_neglected(process: StoreProcess) -> None:
    """The platform asked for a pause, and nothing overtakes."""
    await process.talk("one")
    await process.talk("two")
    await process.store.run(try_later, await process.sending(), process.now + 3600.0, "slow down", failed=False)
    assert not await when(process, LIMIT_S + 1.0)
    await process.talk(chat="elsewhere")
    assert await when(process, LIMIT_S + 1.0)


async def test_what_is_neglected_is_found_among_what_is_not(process: StoreProcess) -> None:
    """Of each kind one that somebody works on, in other chats."""
    await process.begun(chat="a")
    await process.accept("behind it", "a")
    await process.talk(chat="b")
    await process.sending("b")
    assert not await when(process, LIMIT_S + 1.0)
    await process.accept(chat="c")
    await process.talk(chat="d")
    assert await when(process, LIMIT_S + 1.0)
    assert await process.store.read(unbegun_since, process.now - LIMIT_S) == [key_of("c")]
    assert await process.store.read(unsent_since, process.now - LIMIT_S, process.now) == [key_of("d")]
