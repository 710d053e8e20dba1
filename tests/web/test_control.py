"""Health and control over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import httpx
import pytest

from everturn.store.interface import Op, sql
from everturn.web import texts as web_texts
from tests.waiting import poll
from tests.web.composition import PLAIN, SHARED, Web, running


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


async def post_and_wait(web: Web, chat: str, message_id: str) -> None:
    async with web.events(chat) as watcher:
        await web.post(chat, message_id, "hello")
        await watcher.until("reply")


@SHARED
async def test_health_and_readiness_need_no_token(shared: Web) -> None:
    async with httpx.AsyncClient(base_url=shared.serving.url, **PLAIN) as client:
        health, ready = await client.get("/health"), await client.get("/ready")
    assert (health.status_code, health.json()) == (200, {"alive": True})
    assert (ready.status_code, ready.json()) == (200, {"ready": True})


async def test_a_gateway_that_cannot_answer_says_why(web: Web) -> None:
    web.desk.why_not_ready = "it is stopping"
    answer = await web.client.get("/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "reason": "it is stopping"})
    assert (await web.client.get("/health")).status_code == 200


async def test_the_cause_of_a_database_error_is_only_for_the_scope_read(web: Web, tmp_path: Path) -> None:
    stuck = True

    def on_a_bad_sector() -> Op[None]:
        yield sql("SELECT 1")
        if stuck:
            raise apsw.IOError

    call = web.world.store.run(on_a_bad_sector)
    await poll(lambda: web.world.store.trouble() is not None)
    async with web.stranger() as client, web.stranger(Authorization="Bearer wrong") as wrong:
        answers = [await each.get("/ready") for each in (client, wrong, web.client)]
    stuck = False
    await call
    assert [answer.status_code for answer in answers] == [503] * 3
    *strangers, owner = [answer.json()["reason"] for answer in answers]
    assert str(tmp_path) in owner
    assert strangers == [web_texts.NO_DATABASE] * 2


async def test_status_tells_what_runs_and_what_is_open(web: Web) -> None:
    assert (await web.client.get("/control/status")).json() == {
        "state": "running", "open": {"inbox": {}, "turns": {}, "outbox": {}},
    }  # fmt: skip


async def test_sessions_are_listed_page_by_page(web: Web) -> None:
    for chat in ("a", "b", "c"):
        await post_and_wait(web, chat, "m1")
    first = (await web.client.get("/control/sessions", params={"limit": 2})).json()
    rest = (await web.client.get("/control/sessions", params={"limit": 2, "after": first["next"]})).json()
    keys = [session["key"] for session in first["sessions"] + rest["sessions"]]
    assert keys == [f"agent:main:api:dm:{chat}" for chat in "abc"]
    assert (first["sessions"][0]["state"], rest["next"]) == ("active", None)


@SHARED
@pytest.mark.parametrize("message_id", ["m1", "a@b", "50%", "a/b", "a b?", "ü"])
async def test_a_message_is_explained_by_the_id_its_sender_gave(shared: Web, message_id: str) -> None:
    await post_and_wait(shared, "explained", message_id)
    await post_and_wait(shared, "explained-too", message_id)
    url = httpx.URL(shared.serving.url).copy_with(raw_path=b"/control/explain/" + quoted(message_id))
    traces = (await shared.client.get(url)).json()["messages"]
    assert [trace["key"] for trace in traces] == [
        "agent:main:api:dm:explained",
        "agent:main:api:dm:explained-too",
    ]
    assert {trace["state"] for trace in traces} == {"done"}


def quoted(text: str) -> bytes:
    return "".join(f"%{byte:02X}" for byte in text.encode()).encode()


@SHARED
async def test_an_unknown_message_has_no_timeline(shared: Web) -> None:
    assert (await shared.client.get("/control/explain/nobody")).json() == {"messages": []}


async def test_a_stop_is_asked_for_with_its_reason(web: Web) -> None:
    answer = await web.client.post("/control/stop", json={"kind": "restart", "reason": "new version"})
    assert answer.status_code == 202
    assert web.desk.asked == [("restart", "new version")]


@SHARED
@pytest.mark.parametrize("body", [b"", b"{}", b'{"kind": "explode"}', b'{"kind": "stop", "now": true}', b"\xff"])
async def test_a_bad_stop_is_refused_and_stops_nothing(shared: Web, body: bytes) -> None:
    before = list(shared.desk.asked)
    answer = await shared.client.post("/control/stop", content=body)
    assert answer.status_code == 400
    assert "the body must be JSON like" in answer.json()["error"]
    assert shared.desk.asked == before


@SHARED
async def test_a_huge_stop_is_refused(shared: Web) -> None:
    assert (await shared.client.post("/control/stop", content=b" " * 100_000)).status_code == 413


@SHARED
async def test_other_paths_and_methods_get_an_error_text(shared: Web) -> None:
    nowhere, wrong = await shared.client.get("/control/nothing"), await shared.client.get("/control/stop")
    assert (nowhere.status_code, nowhere.json()) == (404, {"error": "no such endpoint: /control/nothing"})
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "the method GET is not allowed" in wrong.json()["error"]


async def test_a_store_that_does_not_answer_is_a_503_everywhere(web: Web) -> None:
    await web.world.abandon()
    answers = [await web.client.get(f"/api/chats/alice/{what}") for what in ("events", "transcript")]
    answers += [await web.client.get("/control/sessions"), await web.post("alice", "m1", "hello")]
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "the store is closed" in answer.json()["error"]
    assert (await web.client.get("/control/status")).json() == {"state": "running", "open": None}


@SHARED
async def test_a_wrong_page_of_sessions_is_refused(shared: Web) -> None:
    assert (await shared.client.get("/control/sessions", params={"limit": "many"})).status_code == 400
