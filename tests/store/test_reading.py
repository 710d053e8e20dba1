"""Looking: transcripts, the life of one message, events that were missed, figures. Nothing here changes a row."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.store.operations.outbox import record_sent
from everturn.store.operations.reading import explain, figures, transcript
from everturn.store.operations.telling import events_after
from everturn.store.operations.transcripts import last_messages
from everturn.store.operations.turns import fail
from tests.contracts.store import BY_EVENT, Life, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def test_a_transcript_is_read_in_pages_from_either_end(life: Life) -> None:
    begun = [await life.talk(f"{number}") for number in range(3)][-1]
    page = await life.store.read(transcript, begun.session_id, 2, 3)
    assert [row.seq for row in page] == [3, 4, 5]
    newest = await life.store.read(last_messages, begun.session_id, 3)
    assert [(row.seq, row.content) for row in newest] == [(4, "done"), (5, "2"), (6, "done")]
    assert await life.store.read(last_messages, "nothing", 3) == []


async def test_what_was_undone_is_not_read(life: Life) -> None:
    begun = await life.talk()
    await life.plant("UPDATE message SET hidden=1 WHERE seq=2")
    assert [row.seq for row in await life.store.read(transcript, begun.session_id, 0, 9)] == [1]
    assert [row.seq for row in await life.store.read(last_messages, begun.session_id, 9)] == [1]


async def test_a_row_with_damaged_calls_is_read_without_them(life: Life) -> None:
    begun = await life.called()
    await life.tool(begun)
    await life.plant("UPDATE message SET calls='[{' WHERE seq=2")
    rows = await life.store.read(transcript, begun.session_id, 0, 9)
    assert [(row.role, row.calls) for row in rows] == [("user", ()), ("assistant", ()), ("tool", ())]
    await life.die()
    assert (await life.began()).attempt == 2


async def test_the_life_of_a_message_is_told_from_its_arrival_to_its_delivery(life: Life) -> None:
    accepted = await life.accept("hello", ext="m1@c")
    begun = await life.began()
    await life.tool(begun)
    await life.die()
    await life.finish(await life.began())
    await life.store.run(record_sent, await life.sending(), ("p1",), life.now)
    (told,) = await life.store.read(explain, "m1")
    assert (told["id"], told["key"], told["state"]) == ("m1@c", accepted.key, "done")
    turn, replies = told["turn"], told["replies"]
    assert isinstance(turn, dict)
    assert isinstance(replies, list)
    assert (turn["state"], turn["session_id"]) == ("answered", begun.session_id)
    assert [(each["attempt"], each["note"]) for each in turn["attempts"]] == [
        (1, None),
        (2, "resume:restart_interrupted"),
    ]
    assert [(step["seq"], step["role"]) for step in turn["steps"]] == [
        (1, "user"), (2, "assistant"), (3, "tool"), (4, "assistant"),
    ]  # fmt: skip
    assert [(effect["call_id"], effect["state"]) for effect in turn["effects"]] == [("call", "done")]
    assert [(reply["id"], reply["state"], reply["parts"]) for reply in replies] == [(str(begun.turn), "sent", '["p1"]')]


async def test_the_life_of_a_message_never_holds_a_notes_text(life: Life) -> None:
    """Promise 7"""
    await life.called("hello")
    await life.die()
    await life.finish(await life.began())
    everything = json.dumps([await life.dump(), await life.store.read(explain, "m")])
    assert "[System note" not in everything
    assert "resume:restart_interrupted" in everything


async def test_a_failed_message_and_a_command_say_how_they_ended(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(fail, begun, "the model is gone", "sorry", life.now, life.delivery)
    ((ext,),) = await life.look("SELECT ext_id FROM inbox")
    (told,) = await life.store.read(explain, ext)
    assert (told["state"], told["why"]) == ("dead", "the model is gone")
    await life.command("/status")
    ((ext,),) = await life.look("SELECT ext_id FROM inbox WHERE kind='command'")
    (told,) = await life.store.read(explain, ext)
    assert (told["kind"], told["state"], told["turn"], len(told["replies"])) == ("command", "done", None, 1)  # type: ignore[arg-type]


async def test_only_messages_of_that_very_id_are_explained(life: Life) -> None:
    for ext in ("m1@a", "m1@b", "m10@a", "m1", "m1A", "m"):
        await life.accept(ext=ext)
    assert [told["id"] for told in await life.store.read(explain, "m1")] == ["m1@a", "m1@b", "m1"]
    assert await life.store.read(explain, "m2") == []


async def test_a_watcher_misses_and_repeats_nothing(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.talk("one")
    await here.command("/new")
    await here.talk("two")
    events = await life.store.read(events_after, key_of(), 0, 99)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events] == ["message", "turn", "reply", "turn", "message", "reply", "message", "turn", "reply", "turn"]  # fmt: skip
    assert await life.store.read(events_after, key_of(), 4, 3) == events[4:7]
    assert [json.loads(event.data)["text"] for event in events if event.kind == "message"] == ["one", "/new", "two"]


async def test_figures_count_what_is_open(life: Life) -> None:
    await life.talk("done")
    await life.called(chat="running")
    await life.accept("waiting", chat="running")
    await life.called(chat="cut off")
    await life.plant("UPDATE turn SET state='interrupted' WHERE key=$1", key_of("cut off"))
    assert await life.store.read(figures) == {
        "inbox": {"claimed": 2, "waiting": 1}, "turns": {"running": 1, "interrupted": 1}, "outbox": {"owed": 1},
    }  # fmt: skip
