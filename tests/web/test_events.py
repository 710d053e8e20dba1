"""Event streams over HTTP: a client that reconnects misses no event and gets none twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Message

from everturn.lifecycle.rows import EVENTS_KEPT_S, forget
from everturn.model import Event
from everturn.outbox.hub import Hub
from everturn.outbox.rows.replies import event_range
from everturn.store.open import open_store
from everturn.web.events import EventStreams, Watched
from tests.waiting import PATIENCE, within
from tests.web.composition import SHARED, Echo, Held, Watcher, Web, running

KEY = "agent:main:api:dm:alice"


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


async def answered(web: Web, *numbers: int) -> None:
    """Post messages to alice and wait for each answer."""
    async with web.events("alice") as watcher:
        for number in numbers:
            await web.post("alice", f"m{number}", f"words {number}")
            while (await watcher.until("turn"))[-1].data["state"] != "answered":
                pass


async def test_a_watcher_gets_the_message_the_turn_and_the_reply_in_order(web: Web) -> None:
    async with web.events("alice") as watcher:
        await web.post("alice", "m1", "hello")
        heard = [await watcher.next() for _ in range(4)]
    assert [event.name for event in heard] == ["message", "turn", "reply", "turn"]
    assert [event.id for event in heard] == [1, 2, 3, 4]
    assert heard[0].data["text"] == "hello"
    assert heard[2].data["text"] == "echo: hello"
    assert [heard[1].data["state"], heard[3].data["state"]] == ["running", "answered"]


async def status_of(streams: EventStreams, client: str, open_until: asyncio.TaskGroup) -> int:
    """Open one more stream, which stays open; its response."""
    said: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            said.set_result(message["status"])

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    open_until.create_task(streams(Watched(KEY, person=client, most=1000), None, receive, send))
    async with within():
        return await said


async def test_the_next_client_finds_a_slot_however_many_take_all_they_may(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'everturn.db'}")
    streams = EventStreams(Hub(), store, 15.0, most=60)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            while await status_of(streams, f"key {number}", group) == 200:
                pass
        assert streams.count() < 60
        assert await status_of(streams, "owner", group) == 200
        streams.close()
    await store.close()


async def test_the_answer_is_a_stream_that_nobody_keeps(web: Web) -> None:
    async with web.events("alice") as watcher:
        headers = watcher.response.headers
    assert headers["content-type"] == "text/event-stream"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")


async def test_without_a_position_only_new_events_are_sent(web: Web) -> None:
    await answered(web, 1)
    async with web.events("alice") as watcher:
        await web.post("alice", "m2", "again")
        assert (await watcher.next()).id == 5


async def test_from_zero_every_stored_event_is_sent(web: Web) -> None:
    await answered(web, *range(30))
    async with web.events("alice", after=0) as watcher:
        assert [(await watcher.next()).id for _ in range(120)] == list(range(1, 121))


async def test_a_reconnect_goes_on_after_the_last_id_across_a_restart(store_url: str) -> None:
    async with running(store_url) as web:
        await answered(web, 1)
    async with running(store_url) as web:
        await web.post("alice", "m2", "again")
        async with web.events("alice", last=3) as watcher:
            heard = [await watcher.next() for _ in range(4)]
    assert [event.id for event in heard] == [4, 5, 6, 7]
    assert heard[-1].data["text"] == "echo: again"


async def test_the_id_of_a_reconnect_is_newer_than_the_address(web: Web) -> None:
    await answered(web, 1)
    async with web.events("alice", last=3, after=0) as watcher:
        assert (await watcher.next()).id == 4


async def test_a_new_conversation_does_not_restart_the_ids(web: Web) -> None:
    await answered(web, 1)
    async with web.events("alice") as watcher:
        await web.post("alice", "m2", "/new")
        assert [event.id for event in await watcher.until("reply")] == [5, 6]


async def test_an_id_that_is_too_old_gets_the_gap_first(web: Web) -> None:
    await answered(web, 1)
    await web.world.store.run(forget, time.time() + EVENTS_KEPT_S + 60)
    await answered(web, 2)
    async with web.events("alice", last=2) as watcher:
        gap, first = await watcher.next(), await watcher.next()
    assert (gap.id, gap.name, gap.data) == (None, "gap", {"oldest": 5})
    assert first.id == 5


async def test_a_gap_is_sent_even_when_no_event_is_stored(web: Web) -> None:
    await answered(web, 1)
    await web.world.store.run(forget, time.time() + EVENTS_KEPT_S + 60)
    async with web.events("alice", last=2) as watcher:
        assert (await watcher.next()).data == {"oldest": 5}
        await web.post("alice", "m2", "again")
        assert (await watcher.next()).id == 5


async def test_a_client_that_saw_the_last_event_has_no_gap(web: Web) -> None:
    await answered(web, 1)
    await web.world.store.run(forget, time.time() + EVENTS_KEPT_S + 60)
    async with web.events("alice", last=4) as watcher:
        await web.post("alice", "m2", "again")
        assert (await watcher.next()).id == 5


async def test_an_id_from_the_future_gets_a_gap_and_then_everything_kept(web: Web) -> None:
    await answered(web, 1)
    async with web.events("alice", last=900) as watcher:
        gap, first = await watcher.next(), await watcher.next()
    assert (gap.name, gap.data) == ("gap", {"oldest": 1})
    assert first.id == 1


async def test_the_text_so_far_has_no_id_and_a_late_watcher_gets_it(tmp_path: Path) -> None:
    agent = Held()
    async with running(tmp_path, agent) as web, web.events("alice") as early:
        await web.post("alice", "m1", "hello")
        delta = (await early.until("delta"))[-1]
        await agent.began.wait()
        async with web.events("alice") as late:
            snapshot = await late.next()
            agent.go.set()
            reply = await late.next()
    assert (delta.id, delta.data["text"]) == (None, "thinking about hello")
    assert (snapshot.name, snapshot.data) == ("delta", delta.data)
    assert (reply.name, reply.data["turn"]) == ("reply", delta.data["turn"])


async def test_what_a_finished_turn_showed_is_not_shown_again(tmp_path: Path) -> None:
    agent = Held()
    agent.go.set()
    async with running(tmp_path, agent) as web:
        await answered(web, 1)
        async with web.events("alice", after=0) as watcher:
            assert [(await watcher.next()).name for _ in range(4)] == ["message", "turn", "reply", "turn"]
            await web.post("alice", "m2", "again")
            assert (await watcher.next()).name == "message"


async def test_a_watcher_that_must_resync_reads_the_store(web: Web) -> None:
    async with web.events("alice") as watcher:
        await web.post("alice", "m1", "hello")
        await watcher.until("reply")
        for _ in range(1000):
            web.world.gateway.hub.resync(KEY)
        await web.post("alice", "m2", "again")
        heard = await watcher.until("reply")
    assert [event.id for event in heard] == [4, 5, 6, 7]


async def test_a_reader_that_falls_behind_gets_every_event_once(web: Web) -> None:
    async with web.events("alice") as watcher:
        for number in range(100):
            while (await web.post("alice", f"m{number}", "x" * 20_000)).status_code == 429:
                pass
        heard = [(await watcher.next()).id for _ in range(400)]
    assert heard == list(range(1, 401))


async def test_an_idle_stream_sends_heartbeats(tmp_path: Path) -> None:
    async with running(tmp_path, heartbeat_s=0.02) as web, web.events("nobody-yet") as watcher:
        await watcher.comment()
        await watcher.comment()
        await web.post("nobody-yet", "m1", "hello")
        assert (await watcher.next()).id == 1


async def test_watching_creates_no_conversation(web: Web) -> None:
    async with web.events("alice", after=0):
        assert await web.world.store.read(event_range, KEY) == (0, 0)
        assert (await web.client.get("/control/sessions")).json()["sessions"] == []


async def test_closing_the_server_ends_streams_in_form_within_a_second_or_two(web: Web) -> None:
    async with web.events("alice") as watcher:
        began = time.monotonic()
        await web.serving.close()
        assert await watcher.over()
    assert time.monotonic() - began < 5 * PATIENCE


async def test_a_watcher_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, Echo(), heartbeat_s=0.02) as web:
        for _ in range(20):
            async with web.events("alice"):
                pass
        async with web.events("alice") as watcher:
            await web.post("alice", "m1", "hello")
            assert len(await watcher.until("reply")) == 3


@SHARED
@pytest.mark.parametrize("place", ["x", "-1", "1.5", "9" * 30, "\u0663"])
async def test_a_place_that_is_no_number_is_refused(shared: Web, place: str) -> None:
    url = "/api/chats/alice/events"
    by_header = await shared.client.get(url, headers=[(b"Last-Event-ID", place.encode())])
    for answer in (by_header, await shared.client.get(url, params={"after": place})):
        assert answer.status_code == 400
        assert "whole number" in answer.json()["error"]


async def test_a_client_of_added_text_gets_the_whole_text_after_every_event(web: Web) -> None:
    hub = web.world.gateway.hub
    hub.stream(KEY, "1", "one")
    async with web.client.stream("GET", "/api/chats/alice/events?added=1") as response:
        watcher = Watcher(response)
        heard = [await watcher.next()]
        for text in ("one two", "one two three", "another"):
            hub.stream(KEY, "1", text)
            heard.append(await watcher.next())
        assert [(each.name, each.data["text"]) for each in heard] == [
            ("delta", "one"), ("added", " two"), ("added", " three"), ("delta", "another"),
        ]  # fmt: skip
        hub.publish(KEY, [Event(1, "turn", "{}", 0.0)])
        await watcher.until("turn")
        hub.stream(KEY, "1", "another one")
        assert (await watcher.until("delta"))[-1].data["text"] == "another one"
