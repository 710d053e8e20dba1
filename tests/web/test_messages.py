"""Posting messages over HTTP: every answer a sender can get, from the real server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from everturn.errors import StoreUnavailable
from everturn.inbox.rows.inbox import Accepted
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound
from everturn.operator.rows.reading import explain
from tests.web.composition import AUTHORIZED, PLAIN, Held, Web, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    """One gateway for the whole file: each test has chats of its own."""
    async with running(tmp_path_factory.mktemp("messages"), settings=Settings(message_chars=1000)) as started:
        yield started


async def test_a_message_is_accepted_once_and_known_by_its_id(web: Web) -> None:
    first, again = await web.post("alice", "m1", "hello"), await web.post("alice", "m1", "hello")
    assert (first.status_code, first.json()) == (202, {"key": "agent:main:api:dm:alice", "duplicate": False})
    assert (again.status_code, again.json()) == (200, {"key": "agent:main:api:dm:alice", "duplicate": True})


async def test_it_is_stored_when_it_is_acknowledged(web: Web) -> None:
    await web.post("stored", "known", "hello")
    [trace] = await web.world.store.read(explain, "known")
    assert (trace["id"], trace["key"]) == ("known@stored", "agent:main:api:dm:stored")


async def test_the_same_id_with_another_text_is_a_conflict(web: Web) -> None:
    await web.post("changing", "m1", "hello")
    answer = await web.post("changing", "m1", "good bye")
    assert answer.status_code == 409
    assert "new id" in answer.json()["error"]


async def test_the_same_id_in_another_chat_is_another_message(web: Web) -> None:
    await web.post("ann", "m1", "hello")
    answer = await web.post("bob", "m1", "good bye")
    assert (answer.status_code, answer.json()["key"]) == (202, "agent:main:api:dm:bob")


async def test_a_full_queue_gets_retry_after(tmp_path: Path) -> None:
    agent = Held()
    async with running(tmp_path, agent, Settings(queue_per_session=1)) as web:
        await web.post("alice", "m1", "one")
        await agent.began.wait()
        assert (await web.post("alice", "m2", "two")).status_code == 202
        full = await web.post("alice", "m3", "three")
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) >= 1
        assert (await web.post("alice", "m2", "two")).status_code == 200
        agent.go.set()


async def test_a_store_that_cannot_write_is_reported_with_the_reason(tmp_path: Path) -> None:
    async def accept(_: Inbound) -> Accepted:
        raise StoreUnavailable("the disk is full")

    async with running(tmp_path, accept=accept) as web:
        answer = await web.post("alice", "m1", "hello")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "the disk is full" in answer.json()["error"]


async def test_an_internal_error_is_reported_without_its_details(tmp_path: Path) -> None:
    async def accept(_: Inbound) -> Accepted:
        raise KeyError("a secret")

    async with running(tmp_path, accept=accept) as web:
        answer = await web.post("alice", "m1", "hello")
    assert answer.status_code == 500
    assert "secret" not in answer.text


async def test_a_text_over_the_limit_is_too_long(web: Web) -> None:
    assert (await web.post("long", "m1", "ä" * 1000)).status_code == 202
    answer = await web.post("long", "m2", "ä" * 1001)
    assert answer.status_code == 413
    assert "1,000" in answer.json()["error"] or "1000" in answer.json()["error"]


async def test_the_longest_message_fits_however_it_is_escaped(web: Web) -> None:
    body = b'{"id": "m1", "text": "' + b"\\ud83d\\ude00" * 1000 + b'"}'
    assert (await web.client.post("/api/chats/escaped/messages", content=body)).status_code == 202


async def test_a_huge_body_is_refused_by_its_announced_length(web: Web) -> None:
    answer = await web.client.post("/api/chats/alice/messages", content=b"x" * 5_000_000)
    assert answer.status_code == 413
    assert "bytes" in answer.json()["error"]


async def test_a_huge_body_is_refused_while_it_is_read(web: Web) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 50_000

    answer = await web.client.post("/api/chats/alice/messages", content=parts())
    assert answer.status_code == 413


async def test_a_body_in_chunks_is_put_together(web: Web) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for byte in b'{"id": "m1", "text": "hello"}':
            yield bytes([byte])

    assert (await web.client.post("/api/chats/chunks/messages", content=parts())).status_code == 202


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b'{"id": 1, "text": "x"}', b'{"id": "a", "text": "b", "c": 1}', b'{"id": "a"}']
)
async def test_a_bad_body_is_refused(web: Web, body: bytes) -> None:
    answer = await web.client.post("/api/chats/alice/messages", content=body)
    assert answer.status_code == 400
    assert "the body must be JSON like" in answer.json()["error"]


@pytest.mark.parametrize("chat", ["a%2Fb", "%2E%2E", "%C3%BC", "%F0%9F%98%80", "a%20b", "x" * 200, "a%25b", "a%40b"])
async def test_unusual_chat_names_have_conversations_of_their_own(web: Web, chat: str) -> None:
    async with web.events(chat) as watcher:
        posted = await web.post(chat, "m1", "hello")
        heard = await watcher.until("reply")
    assert posted.status_code == 202
    assert "/" not in posted.json()["key"]
    assert heard[-1].data["text"] == "echo: hello"
    assert len((await web.client.get(f"/api/chats/{chat}/transcript")).json()["messages"]) == 2


@pytest.mark.parametrize("chat", ["", "%00", "a%0Ab", "%FF", "x" * 201])
async def test_impossible_chat_names_are_refused(web: Web, chat: str) -> None:
    answer = await web.post(chat, "m1", "hello")
    assert answer.status_code == 400
    assert "the chat's name" in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/api/chats/a/b/messages", "/api/chats/alice", "/api/chats/alice/", "/api/nothing", "/nothing"]
)
async def test_there_is_nothing_elsewhere(web: Web, path: str) -> None:
    answer = await web.client.post(path, json={"id": "m1", "text": "hello"})
    assert answer.status_code == 404
    assert "no such endpoint" in answer.json()["error"]


async def test_a_wrong_method_gets_the_right_one_in_the_error(web: Web) -> None:
    got = await web.client.get("/api/chats/alice/messages")
    posted = await web.client.post("/api/chats/alice/events")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {AUTHORIZED['Authorization'][7:]}"])
async def test_without_the_token_everything_is_denied(web: Web, header: str | None) -> None:
    async with httpx.AsyncClient(base_url=web.serving.url, **PLAIN) as client:
        headers = {} if header is None else {"Authorization": header}
        for path in ("/api/chats/alice/transcript", "/control/status", "/nowhere"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "api_token" in answer.json()["error"]


async def test_the_word_bearer_may_be_written_in_any_case(web: Web) -> None:
    token = AUTHORIZED["Authorization"][7:]
    answer = await web.client.get("/api/chats/alice/transcript", headers={"Authorization": f"bEARER {token}"})
    assert answer.status_code == 200


async def test_many_messages_at_once_are_all_accepted(web: Web) -> None:
    answers = await asyncio.gather(*(web.post(f"chat{number % 20}", f"m{number}", "hello") for number in range(200)))
    assert {answer.status_code for answer in answers} == {202}
