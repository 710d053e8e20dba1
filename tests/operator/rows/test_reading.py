"""Transcripts, the timeline of a message, events that were missed, counts. Nothing here changes a row."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.operator.rows.reading import count_open, explain
from everturn.outbox.rows.outbox import record_sent
from everturn.outbox.rows.replies import events_after
from everturn.sessions.rows.entries import last_messages, transcript
from everturn.turns.rows.turns import fail
from tests.contracts.store import BY_EVENT, StoreProcess, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def test_a_transcript_is_read_in_pages_from_either_end(process: StoreProcess) -> None:
    begun = [await process.talk(f"{number}") for number in range(3)][-1]
    page = await process.store.read(transcript, begun.session_id, 2, 3)
    assert [row.seq for row in page] == [3, 4, 5]
    newest = await process.store.read(last_messages, begun.session_id, 3)
    assert [(row.seq, row.content) for row in newest] == [(4, "done"), (5, "2"), (6, "done")]
    assert await process.store.read(last_messages, "nothing", 3) == []


async def test_what_was_undone_is_not_read(process: StoreProcess) -> None:
    begun = await process.talk()
    await process.plant("UPDATE message SET hidden=1 WHERE seq=2")
    assert [row.seq for row in await process.store.read(transcript, begun.session_id, 0, 9)] == [1]
    assert [row.seq for row in await process.store.read(last_messages, begun.session_id, 9)] == [1]


async def test_a_row_with_damaged_calls_is_read_without_them(process: StoreProcess) -> None:
    begun = await process.called()
    await process.tool(begun)
    await process.plant("UPDATE message SET calls='[{' WHERE seq=2")
    rows = await process.store.read(transcript, begun.session_id, 0, 9)
    assert [(row.role, row.calls) for row in rows] == [("user", ()), ("assistant", ()), ("tool", ())]
    await process.die()
    assert (await process.began()).attempt == 2


async def test_the_timeline_of_a_message_goes_from_its_arrival_to_its_delivery(process: StoreProcess) -> None:
    accepted = await process.accept("hello", ext="m1@c")
    begun = await process.began()
    await process.tool(begun)
    await process.die()
    await process.finish(await process.began())
    await process.store.run(record_sent, await process.sending(), ("p1",), process.now)
    (told,) = await process.store.read(explain, "m1")
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


async def test_the_timeline_of_a_message_never_holds_a_notes_text(process: StoreProcess) -> None:
    """Promise 7"""
    await process.called("hello")
    await process.die()
    await process.finish(await process.began())
    everything = json.dumps([await process.dump(), await process.store.read(explain, "m")])
    assert "[System note" not in everything
    assert "resume:restart_interrupted" in everything


async def test_a_failed_message_and_a_command_say_how_they_ended(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(fail, begun, "the model is gone", "sorry", process.now, process.delivery)
    ((ext,),) = await process.look("SELECT ext_id FROM inbox")
    (told,) = await process.store.read(explain, ext)
    assert (told["state"], told["why"]) == ("dead", "the model is gone")
    await process.command("/status")
    ((ext,),) = await process.look("SELECT ext_id FROM inbox WHERE kind='command'")
    (told,) = await process.store.read(explain, ext)
    assert (told["kind"], told["state"], told["turn"], len(told["replies"])) == ("command", "done", None, 1)  # type: ignore[arg-type]


async def test_only_messages_of_that_very_id_are_explained(process: StoreProcess) -> None:
    for ext in ("m1@a", "m1@b", "m10@a", "m1", "m1A", "m"):
        await process.accept(ext=ext)
    assert [told["id"] for told in await process.store.read(explain, "m1")] == ["m1@a", "m1@b", "m1"]
    assert await process.store.read(explain, "m2") == []


async def test_a_watcher_misses_and_repeats_nothing(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.talk("one")
    await here.command("/new")
    await here.talk("two")
    events = await process.store.read(events_after, key_of(), 0, 99)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events] == ["message", "turn", "reply", "turn", "message", "reply", "message", "turn", "reply", "turn"]  # fmt: skip
    assert await process.store.read(events_after, key_of(), 4, 3) == events[4:7]
    assert [json.loads(event.data)["text"] for event in events if event.kind == "message"] == ["one", "/new", "two"]


async def test_what_is_open_is_counted(process: StoreProcess) -> None:
    await process.talk("done")
    await process.called(chat="running")
    await process.accept("waiting", chat="running")
    await process.called(chat="cut off")
    await process.plant("UPDATE turn SET state='interrupted' WHERE key=$1", key_of("cut off"))
    assert await process.store.read(count_open) == {
        "inbox": {"claimed": 2, "queued": 1}, "turns": {"running": 1, "interrupted": 1}, "outbox": {"pending": 1},
    }  # fmt: skip
