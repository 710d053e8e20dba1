"""The one progress notice of a turn: replaced where that is possible, and never sent when its turn has ended."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.model import Reply
from everturn.store.operations.outbox import record_progress
from everturn.store.operations.progress import Progress, message_waits, tell_progress
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun
from tests.contracts.store import BY_EVENT, Life, broken, key_of, living

EDITS = Delivery(by_event=False, edits=True)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url, delivery=EDITS) as life:
        yield life
        assert await life.store.read(broken) == {}


async def said(life: Life, begun: Begun, text: str) -> object:
    progress = Progress(id=life.ids.next(), text=text, reason="progress", at=life.now)
    return await life.twice(tell_progress, begun, progress, life.delivery)


async def sent(life: Life, *parts: str) -> Reply:
    reply = await life.sending()
    await life.store.run(record_progress, reply, parts, life.now)
    return reply


async def test_where_the_platform_can_edit_the_notice_is_replaced(life: Life) -> None:
    begun = await life.called()
    await said(life, begun, "one")
    first = await sent(life, "p1")
    await said(life, begun, "two")
    second = await sent(life, "p1")
    assert (first.text, first.sent_parts, second.text, second.sent_parts) == ("one", (), "two", ("p1",))
    assert await life.states("outbox") == ["sent"]


async def test_what_is_not_out_yet_simply_says_something_else(life: Life) -> None:
    begun = await life.called()
    await said(life, begun, "one")
    await said(life, begun, "two")
    assert (await sent(life, "p1")).text == "two"
    assert await life.claim() is None


async def test_what_is_said_while_it_is_being_sent_is_sent_afterwards(life: Life) -> None:
    begun = await life.called()
    await said(life, begun, "one")
    reply = await life.sending()
    await said(life, begun, "two")
    assert await life.twice(record_progress, reply, ("p1",), life.now)
    assert (await sent(life, "p1")).text == "two"


async def test_where_it_can_not_edit_every_notice_is_a_message(life: Life) -> None:
    plain = replace(life, delivery=Delivery(by_event=False))
    begun = await plain.called()
    for text in ("one", "two"):
        await said(plain, begun, text)
        assert (await sent(plain, f"p {text}")).sent_parts == ()
    assert await plain.states("outbox") == ["sent", "sent"]


async def test_watchers_get_a_stable_id(life: Life) -> None:
    watched = replace(life, delivery=BY_EVENT)
    begun = await watched.called()
    for text in ("one", "two"):
        assert await said(watched, begun, text)
    (number,) = (await watched.look("SELECT progress FROM turn"))[0]
    notices = await watched.look("SELECT data FROM event WHERE kind='notice' ORDER BY seq")
    assert [f'"id":"{number}"' in row[0] for row in notices] == [True, True]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_notice_never_outlives_its_turn(life: Life, seen: bool) -> None:  # noqa: FBT001
    begun = await life.called()
    await said(life, begun, "one")
    if seen:
        await sent(life, "p1")
        await said(life, begun, "two")
    await life.finish(begun)
    reply = await life.sending()
    assert reply.kind == "reply"
    await life.plant("UPDATE outbox SET state='sent', ended_at=1 WHERE id=$1", reply.id)
    assert await life.claim() is None
    assert await said(life, begun, "late") is None
    assert await life.look("SELECT kind, state FROM outbox ORDER BY kind") == [("progress", "sent")] * seen + [
        ("reply", "sent")
    ]


async def test_a_later_attempt_goes_on_with_the_same_notice(life: Life) -> None:
    begun = await life.called()
    await said(life, begun, "one")
    await sent(life, "p1")
    await life.die()
    await said(life, await life.began(), "two")
    assert (await sent(life, "p1")).sent_parts == ("p1",)


async def test_only_a_message_makes_somebody_wait(life: Life) -> None:
    await life.called()
    await life.accept("/status")
    assert not await life.store.read(message_waits, key_of())
    await life.accept("hello")
    assert await life.store.read(message_waits, key_of())
