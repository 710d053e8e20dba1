"""Transcripts over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.testing import ScriptedAgent
from tests.web.composition import SHARED, Web, running


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path, ScriptedAgent(tools=["look"])) as started:
        yield started


async def post_and_wait(web: Web, message_id: str, text: str) -> None:
    async with web.events("alice") as watcher:
        await web.post("alice", message_id, text)
        await watcher.until("reply")


async def test_a_chat_without_a_session_has_an_empty_transcript(web: Web) -> None:
    answer = await web.client.get("/api/chats/alice/transcript")
    assert (answer.status_code, answer.json()) == (
        200,
        {"session_id": None, "messages": [], "next": None, "parent": None},
    )


async def test_it_holds_what_the_user_the_agent_and_the_tools_said(web: Web) -> None:
    await post_and_wait(web, "m1", "hello")
    page = (await web.client.get("/api/chats/alice/transcript")).json()
    call = {"id": "call-1", "name": "look", "arguments": ""}
    user, asked, result, answer = page["messages"]
    assert page["session_id"]
    assert (user["role"], user["content"], user["tool_calls"], user["tool_call_id"]) == ("user", "hello", [], None)
    assert (asked["role"], asked["tool_calls"]) == ("assistant", [call])
    assert (result["role"], result["content"], result["tool_call_id"]) == ("tool", "look done", "call-1")
    assert (answer["role"], answer["content"]) == ("assistant", "echo: hello")
    assert user["at"] > 1_700_000_000
    assert set(user) == {"role", "content", "tool_calls", "tool_call_id", "at", "outcome"}


async def test_it_can_be_read_page_by_page(web: Web) -> None:
    await post_and_wait(web, "m1", "hello")
    path = "/api/chats/alice/transcript"
    first = (await web.client.get(path, params={"limit": 3})).json()
    rest = (await web.client.get(path, params={"limit": 3, "after": first["next"]})).json()
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool"]
    assert [message["content"] for message in rest["messages"]] == ["echo: hello"]
    assert rest["next"] is None


async def test_an_earlier_session_of_the_chat_can_be_read(web: Web) -> None:
    await post_and_wait(web, "m1", "hello")
    earlier = (await web.client.get("/api/chats/alice/transcript")).json()
    await post_and_wait(web, "m2", "/new")
    now = (await web.client.get("/api/chats/alice/transcript")).json()
    again = (await web.client.get("/api/chats/alice/transcript", params={"session": earlier["session_id"]})).json()
    assert now["messages"] == []
    assert now["session_id"] != earlier["session_id"]
    assert again == earlier


async def test_a_session_of_another_chat_cannot_be_read(web: Web) -> None:
    await post_and_wait(web, "m1", "hello")
    session_id = (await web.client.get("/api/chats/alice/transcript")).json()["session_id"]
    answer = await web.client.get("/api/chats/bob/transcript", params={"session": session_id})
    assert answer.status_code == 404
    assert "no such session" in answer.json()["error"]


@SHARED
@pytest.mark.parametrize("query", [{"after": "x"}, {"limit": "-1"}, {"limit": "10001"}, {"limit": ""}])
async def test_a_wrong_page_is_refused(shared: Web, query: dict[str, str]) -> None:
    answer = await shared.client.get("/api/chats/alice/transcript", params=query)
    assert answer.status_code == 400
    assert "whole number" in answer.json()["error"]


async def test_the_session_that_was_compacted_is_named_and_can_be_read(tmp_path: Path) -> None:
    class Summing:
        async def run(self, turn: TurnContext) -> Answer:
            if turn.text == "sum up":
                await turn.session.compact("what was said", 0)
            return Answer(f"echo: {turn.text}")

    async with running(tmp_path, Summing()) as web:
        for text in ("one", "sum up"):
            await post_and_wait(web, text.replace(" ", "-"), text)
        path = "/api/chats/alice/transcript"
        now = (await web.client.get(path)).json()
        before = (await web.client.get(path, params={"session": now["parent"]})).json()
    assert now["messages"][0]["content"] == "what was said"
    assert ([each["content"] for each in before["messages"]][:2], before["parent"]) == (["one", "echo: one"], None)
