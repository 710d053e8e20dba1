"""Our scripted people on a real homeserver: what they do is what others see, also after the server was killed."""

import time
from typing import Any

import httpx
import pytest

from everturn.testing.matrix import MatrixFault, MatrixProxy
from tests.synapse import Person, SynapseServer
from tests.waiting import WAIT_S

pytestmark = pytest.mark.prove


def room_of_two(synapse: SynapseServer) -> tuple[Person, Person, str]:
    ann, bob = synapse.stranger("ann"), synapse.stranger("bob")
    room = ann.direct(bob.user_id)
    bob.joins(room)
    return ann, bob, room


def test_a_person_sees_what_another_does(synapse: SynapseServer) -> None:
    ann, bob, room = room_of_two(synapse)
    root = ann.says(room, "frist")
    ann.edits(room, root, "first")
    bob.edits(room, root, "not his to change")
    inside = bob.says(room, "inside", thread=root)
    answer = bob.says(room, "an answer", reply_to=root)
    bob.reacts(room, root, "👀")
    ann.redacts(room, ann.says(room, "forget it"))
    file = ann.sends_file(room, b"words", "words.txt", "text/plain")
    bob.asks("POST", f"/rooms/{room}/receipt/m.read/{file}", json={})
    bob.asks("PUT", f"/rooms/{room}/typing/{bob.user_id}", json={"typing": True, "timeout": 20000})
    seen = ann.screen(room)
    assert [each.text for each in seen.messages] == ["first", "inside", "an answer", "words.txt"]
    assert (seen.message(root).edits, seen.message(root).reactions) == (1, {"👀": {bob.user_id}})
    assert (seen.message(inside).thread, seen.message(answer).thread, seen.message(answer).reply_to) == (
        root, None, root,
    )  # fmt: skip
    assert (seen.typing, seen.read[bob.user_id]) == ({bob.user_id}, file)
    assert bob.downloads(seen.message(file).content["url"]) == b"words"


async def test_a_killed_homeserver_keeps_what_it_took_and_the_keys_of_it(own_synapse: SynapseServer) -> None:
    synapse = own_synapse
    ann, bob, room = room_of_two(synapse)
    first = ann.says(room, "once", txn="a-key")
    synapse.restart()
    assert ann.says(room, "once", txn="a-key") == first
    for number in range(25):  # more than one answer of /sync may hold
        ann.says(room, str(number))
    ann.says(room, "last")
    await bob.until(lambda: "last" in bob.screen(room).texts(ann.user_id))
    assert bob.screen(room).texts(ann.user_id) == ["once", *map(str, range(25)), "last"]


async def got(proxy: MatrixProxy, who: Person, method: str, path: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=proxy.url, headers=who.headers, timeout=WAIT_S) as client:
        return await client.request(method, f"/_matrix/client/v3{path}", **more)


async def synced(proxy: MatrixProxy, who: Person, **params: str) -> Any:
    return (await got(proxy, who, "GET", "/sync", params={"timeout": "0", **params})).json()


@pytest.mark.parametrize(
    ("fault", "code", "done"),
    [
        (MatrixFault("flood", "send", retry_after_ms=3000), 429, 0),
        (MatrixFault("server", "send"), 502, 0),
        (MatrixFault("server", "send", accepted=True), 502, 1),
        (MatrixFault("reset", "send", accepted=True), 0, 1),
        (MatrixFault("error", "send", code=403, errcode="M_FORBIDDEN"), 403, 0),
        (MatrixFault("slow", "send", seconds=0.2), 200, 1),
        (MatrixFault("flood", "sync"), 200, 1),
    ],
)
async def test_the_way_to_the_homeserver_misbehaves_on_order(
    synapse: SynapseServer, fault: MatrixFault, code: int, done: int
) -> None:
    ann, began = synapse.stranger("orders"), time.monotonic()
    room = ann.makes_room()
    async with MatrixProxy(synapse.url) as proxy:
        proxy.faults.append(fault)
        try:
            answer = await got(
                proxy, ann, "PUT", f"/rooms/{room}/send/m.room.message/1", json={"msgtype": "m.text", "body": "x"}
            )
        except httpx.RemoteProtocolError:
            answer = httpx.Response(0)
        assert (answer.status_code, len(ann.screen(room).texts(ann.user_id))) == (code, done)
        assert code != 429 or answer.json()["retry_after_ms"] == 3000
        assert fault.kind != "slow" or time.monotonic() - began > 0.2
        assert [each.fault for each in proxy.calls] == [None if fault.path == "sync" else fault.kind]


async def test_news_are_told_again_or_cut_on_order_and_taken_when_they_are_read_past(synapse: SynapseServer) -> None:
    ann, bob, room = room_of_two(synapse)
    async with MatrixProxy(synapse.url) as proxy:
        start = (await synced(proxy, bob))["next_batch"]
        sent = [ann.says(room, text) for text in ("one", "two", "three")]
        proxy.fail("limited", limit=1)
        cut = await synced(proxy, bob, since=start)
        whole = await synced(proxy, bob, since=start)
        assert (proxy.taken(), cut["rooms"]["join"][room]["timeline"]["limited"]) == ([], True)
        proxy.fail("repeat")
        assert await synced(proxy, bob, since=start) == whole
        proxy.fail("again")
        again = await synced(proxy, bob, since=whole["next_batch"])
        assert [each["event_id"] for each in proxy.taken(ann.user_id)] == sent
    news = [each["rooms"]["join"][room]["timeline"]["events"] for each in (cut, whole, again)]
    assert [[each["event_id"] for each in events] for events in news] == [sent[2:], sent, sent]
