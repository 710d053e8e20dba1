"""The one progress notice of a turn: replaced where that is possible, and never sent when its turn has ended."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.model import Reply
from everturn.outbox.rows.outbox import record_progress
from everturn.outbox.rules.delivery import Delivery
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import Progress, message_waits, notify_progress
from tests.contracts.store import BY_EVENT, StoreProcess, broken, key_of, living

EDITS = Delivery(by_event=False, edits=True)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url, delivery=EDITS) as process:
        yield process
        assert await process.store.read(broken) == {}


async def said(process: StoreProcess, begun: StartedTurn, text: str) -> object:
    progress = Progress(id=process.ids.next(), text=text, reason="progress", at=process.now)
    return await process.twice(notify_progress, begun, progress, process.delivery)


async def sent(process: StoreProcess, *parts: str) -> Reply:
    reply = await process.sending()
    await process.store.run(record_progress, reply, parts, process.now)
    return reply


async def test_where_the_platform_can_edit_the_notice_is_replaced(process: StoreProcess) -> None:
    begun = await process.called()
    await said(process, begun, "one")
    first = await sent(process, "p1")
    await said(process, begun, "two")
    second = await sent(process, "p1")
    assert (first.text, first.sent_parts, second.text, second.sent_parts) == ("one", (), "two", ("p1",))
    assert await process.states("outbox") == ["sent"]


async def test_what_is_not_out_yet_simply_says_something_else(process: StoreProcess) -> None:
    begun = await process.called()
    await said(process, begun, "one")
    await said(process, begun, "two")
    assert (await sent(process, "p1")).text == "two"
    assert await process.claim() is None


async def test_what_is_said_while_it_is_being_sent_is_sent_afterwards(process: StoreProcess) -> None:
    begun = await process.called()
    await said(process, begun, "one")
    reply = await process.sending()
    await said(process, begun, "two")
    assert await process.twice(record_progress, reply, ("p1",), process.now)
    assert (await sent(process, "p1")).text == "two"


async def test_where_it_can_not_edit_every_notice_is_a_message(process: StoreProcess) -> None:
    plain = replace(process, delivery=Delivery(by_event=False))
    begun = await plain.called()
    for text in ("one", "two"):
        await said(plain, begun, text)
        assert (await sent(plain, f"p {text}")).sent_parts == ()
    assert await plain.states("outbox") == ["sent", "sent"]


async def test_watchers_get_a_stable_id(process: StoreProcess) -> None:
    watched = replace(process, delivery=BY_EVENT)
    begun = await watched.called()
    for text in ("one", "two"):
        assert await said(watched, begun, text)
    (number,) = (await watched.look("SELECT progress FROM turn"))[0]
    notices = await watched.look("SELECT data FROM event WHERE kind='notice' ORDER BY seq")
    assert [f'"id":"{number}"' in row[0] for row in notices] == [True, True]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_notice_never_outlives_its_turn(process: StoreProcess, seen: bool) -> None:  # noqa: FBT001
    begun = await process.called()
    await said(process, begun, "one")
    if seen:
        await sent(process, "p1")
        await said(process, begun, "two")
    await process.finish(begun)
    reply = await process.sending()
    assert reply.kind == "reply"
    await process.plant("UPDATE outbox SET state='sent', ended_at=1 WHERE id=$1", reply.id)
    assert await process.claim() is None
    assert await said(process, begun, "late") is None
    assert await process.look("SELECT kind, state FROM outbox ORDER BY kind") == [("progress", "sent")] * seen + [
        ("reply", "sent")
    ]


async def test_a_later_attempt_goes_on_with_the_same_notice(process: StoreProcess) -> None:
    begun = await process.called()
    await said(process, begun, "one")
    await sent(process, "p1")
    await process.die()
    await said(process, await process.began(), "two")
    assert (await sent(process, "p1")).sent_parts == ("p1",)


async def test_only_a_message_makes_somebody_wait(process: StoreProcess) -> None:
    await process.called()
    await process.accept("/status")
    assert not await process.store.read(message_waits, key_of())
    await process.accept("hello")
    assert await process.store.read(message_waits, key_of())
