"""The page's endpoints over real HTTP, as its own code uses them: list, show, follow, post, search."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.model import Effect, ToolCall
from everturn.testing import ScriptedAgent
from everturn.turns.rows.recovery import suspend_session
from everturn.web.events import MOST_OF_ONE
from tests.web.composition import SHARED, Echo, Held, Watcher, Web, running


class Page:
    """A browser that has logged in."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def say(self, chat: str, message_id: str, text: str) -> httpx.Response:
        return await self.client.post(f"/web/conversations/{chat}/messages", json={"id": message_id, "text": text})

    async def show(self, chat: str) -> Any:
        answer = await self.client.get(f"/web/conversations/{chat}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def earlier(self, chat: str, place: dict[str, Any]) -> Any:
        query = {"session": place["session_id"], "before": place["before"]}
        answer = await self.client.get(f"/web/conversations/{chat}/earlier", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def titles(self, **query: str) -> list[str]:
        found = (await self.client.get("/web/conversations", params=query)).json()["conversations"]
        return [each["title"] for each in found]

    @contextlib.asynccontextmanager
    async def events(self, chat: str, after: int) -> AsyncIterator[Watcher]:
        async with self.client.stream("GET", f"/web/conversations/{chat}/events?after={after}") as response:
            assert response.status_code == 200
            yield Watcher(response)

    async def answered(self, chat: str, message_id: str, text: str) -> None:
        async with self.events(chat, (await self.show(chat))["event"]) as watcher:
            await self.say(chat, message_id, text)
            while (heard := await watcher.next()).name != "turn" or heard.data["state"] != "answered":
                pass


@contextlib.asynccontextmanager
async def paged(where: Path | str, agent: Agent | None = None) -> AsyncIterator[tuple[Web, Page]]:
    async with running(where, agent or Echo()) as web, web.browser() as client:
        yield web, Page(client)


async def test_a_conversation_shows_its_rows_its_events_and_where_to_go_on(store_url: str) -> None:
    async with paged(store_url) as (_, page):
        assert (await page.show("c"))["event"] == 0
        await page.answered("c", "m1", "hello")
        shown = await page.show("c")
    assert [(row["role"], row["content"]) for row in shown["rows"]] == [("user", "hello"), ("assistant", "echo: hello")]
    assert [event["kind"] for event in shown["events"]] == ["message", "turn", "reply", "turn"]
    message = shown["events"][0]
    assert (message["data"]["id"], message["at"]) == ("m1", shown["rows"][0]["at"])
    assert (shown["event"], shown["turn"], shown["queued"], shown["title"]) == (4, None, [], "hello")


async def test_conversations_are_listed_with_the_last_used_first(store_url: str) -> None:
    async with paged(store_url) as (_, page):
        for chat in ("one", "two", "three"):
            await page.answered(chat, "m", f"words of {chat}")
        await page.answered("one", "m2", "again")
        assert await page.titles() == ["words of one", "words of three", "words of two"]
        assert await page.titles(limit="1") == ["words of one"]


SEARCHES = {
    "BLUE": ["the Blue Whale"],
    "ECHO: a red": ["a red fox"],
    "100%": ["100% sure"],
    "100_": [],
    "x": ["a red fox"],
    "nothing": [],
}


async def test_search_finds_what_was_said(store_url: str) -> None:
    async with paged(store_url) as (_, page):
        for number, text in enumerate(("the Blue Whale", "a red fox", "100% sure")):
            await page.answered(f"c{number}", "m", text)
        assert {words: await page.titles(search=words) for words in SEARCHES} == SEARCHES


async def test_a_message_is_taken_once_and_listed_from_then_on(tmp_path: Path) -> None:
    agent = Held()
    async with paged(tmp_path, agent) as (_, page):
        first, again = await page.say("c", "m1", "hello"), await page.say("c", "m1", "hello")
        assert (first.status_code, again.status_code) == (202, 200)
        await agent.began.wait()
        found = (await page.client.get("/web/conversations")).json()["conversations"]
        assert [(each["chat"], each["state"]) for each in found] == [("c", "working")]
        shown = await page.show("c")
        assert (shown["turn"]["state"], len(shown["rows"])) == ("running", 1)
        agent.go.set()


async def test_a_queued_message_is_shown_by_its_own_id(tmp_path: Path) -> None:
    agent = Held()
    async with paged(tmp_path, agent) as (_, page):
        await page.say("c", "m1", "hello")
        await agent.began.wait()
        await page.say("c", "50%@home", "and more")
        assert "50%@home" in (await page.show("c"))["queued"]
        agent.go.set()


async def test_steps_are_hinted_at_and_their_rows_read(tmp_path: Path) -> None:
    agent = ScriptedAgent(["look"], effect=Effect.PURE)
    async with paged(tmp_path, agent) as (_, page), page.events("c", 0) as watcher:
        await page.say("there", "m1", "hello")
        await watcher.until("elsewhere")  # it has caught up with what is stored: hints are for what happens from now on
        await page.say("c", "m1", "hello")
        heard = [each.name for each in await watcher.until("reply")]
        assert heard.count("step") == 2
        rows = (await page.client.get("/web/conversations/c/rows?after=1")).json()["rows"]
    assert [(row["role"], row.get("call_id")) for row in rows] == [
        ("assistant", None),
        ("tool", "call-1"),
        ("assistant", None),
    ]
    assert rows[0]["calls"] == [{"id": "call-1", "name": "look", "arguments": ""}]


async def test_what_happens_elsewhere_is_hinted_at(tmp_path: Path) -> None:
    async with paged(tmp_path) as (web, page), page.events("here", 0) as watcher:
        await web.post("api-chat", "m", "not of the page")
        await page.say("there", "m1", "hello")
        heard = await watcher.next()
        assert (heard.id, heard.name, heard.data) == (None, "elsewhere", {"key": "agent:main:web:dm:there"})


async def test_one_person_has_a_bounded_number_of_windows(tmp_path: Path) -> None:
    async with paged(tmp_path) as (_, page), contextlib.AsyncExitStack() as windows:
        for _ in range(MOST_OF_ONE):
            await windows.enter_async_context(page.events("c", 0))
        refused = await page.client.get("/web/conversations/c/events?after=0")
        assert (refused.status_code, "close one" in refused.json()["error"]) == (429, True)


async def test_a_long_conversation_is_read_page_by_page(tmp_path: Path) -> None:
    class Chatty:
        async def run(self, turn: TurnContext) -> Answer:
            turn.calling()
            for number in range(150):
                await turn.step("", [ToolCall(id=f"c{number}", name="t", effect=Effect.PURE)], done)
            return Answer("end")

    async def done(call: ToolCall, _key: str) -> str:
        return call.id

    async with paged(tmp_path, Chatty()) as (_, page):
        await page.answered("c", "m", "go")
        shown = await page.show("c")
        seqs = [row["seq"] for row in shown["rows"]]
        earlier = await page.earlier("c", shown["earlier"])
    assert (len(seqs), shown["earlier"]["before"], seqs[-1]) == (200, seqs[0], 302)
    assert ([row["seq"] for row in earlier["rows"]], earlier["earlier"]) == (list(range(1, seqs[0])), None)


class Summing:
    """Compacts the conversation on request, and keeps the newest two rows."""

    async def run(self, turn: TurnContext) -> Answer:
        if turn.text.startswith("sum up"):
            await turn.session.compact("it was about whales", 2)
        return Answer(f"echo: {turn.text}")


async def test_rows_from_before_a_compaction_can_be_read_and_none_twice(store_url: str) -> None:
    async with paged(store_url, Summing()) as (_, page):
        text = ["one", "two", "sum up", "three", "sum up again", "four"]
        for number, each in enumerate(text):
            await page.answered("c", f"m{number}", each)
        shown = await page.show("c")
        pages = [shown]
        while (place := pages[-1]["earlier"]) is not None:
            pages.append(await page.earlier("c", place))
        elsewhere = await page.client.get(
            "/web/conversations/other/earlier", params={"session": shown["earlier"]["session_id"], "before": 5}
        )
    said = [row["content"] for each in reversed(pages) for row in each["rows"] if row["role"] == "user"]
    assert said == text
    assert [each["rows"][0]["content"] for each in pages] == ["it was about whales", "it was about whales", "one"]
    assert [each.get("depth", 0) for each in pages] == [0, 1, 2]
    assert elsewhere.status_code == 404


async def test_a_long_tool_result_is_shown_by_its_beginning(tmp_path: Path) -> None:
    async def long(_name: str, _key: str) -> str:
        await asyncio.sleep(0)
        return "x" * 10_000

    async with paged(tmp_path, ScriptedAgent(["t"], act=long)) as (_, page):
        await page.answered("c", "m", "go")
        (result,) = [row for row in (await page.show("c"))["rows"] if row["role"] == "tool"]
    assert (len(result["content"]), result["cut"]) == (4000, True)


@pytest.mark.parametrize(
    "path",
    [
        "/web/conversations/%00",
        "/web/conversations/" + "x" * 201,
        "/web/conversations/c/earlier?before=x",
        "/web/conversations/c/earlier?session=%00",
        "/web/conversations?search=%00",
    ],
)
@SHARED
async def test_what_cannot_be_is_refused(shared: Web, path: str) -> None:
    async with shared.browser() as client:
        assert (await client.get(path)).status_code == 400


async def test_a_suspended_conversation_is_shown_as_suspended(store_url: str) -> None:
    async with paged(store_url) as (web, page):
        await page.answered("c", "m", "hello")
        await web.world.store.run(suspend_session, "agent:main:web:dm:c", 2_000_000_000.0)
        (listed,) = (await page.client.get("/web/conversations")).json()["conversations"]
        assert (listed["state"], (await page.show("c"))["state"]) == ("suspended", "suspended")


async def test_the_api_does_not_see_the_page_and_the_page_not_the_api(tmp_path: Path) -> None:
    async with paged(tmp_path) as (web, page):
        await page.answered("c", "m", "mine")
        assert (await web.client.get("/api/chats/c/transcript")).json()["messages"] == []
        await web.post("d", "m", "of a program")
        assert (await page.show("d"))["rows"] == []
        assert await page.titles() == ["mine"]
