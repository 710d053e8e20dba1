"""Sending through the outbox: to allowed chats only, once for each call, in whichever way the platform delivers."""

import asyncio

import pytest

from everturn.agent.toolbox import Tool
from everturn.agent.tools.send import SendSettings, send_tools
from everturn.model import Effect, Inbound, SessionSource, ToolCall
from everturn.outbox.rows.replies import events_after
from everturn.platform.posted import ApiPlatform
from everturn.store.interface import Op, sql
from tests.agent.tools.benches import Bench

TEAM = SessionSource(platform="fake", chat_id="team", chat_type="group")
PAGE = SessionSource(platform="api", chat_id="page", user_id="owner")
SETTINGS = SendSettings(targets={"team": TEAM, "page": PAGE}, text_chars=100)


def sending(bench: Bench) -> list[Tool]:
    return send_tools(SETTINGS, bench.world.gateway.sending.send)


async def test_a_message_reaches_another_chat_and_ones_own(store_url: str) -> None:
    async with Bench(store_url, sending) as tools:
        assert await tools.use("send_message", to="team", text="hello team") == "The message to team will be delivered."
        assert await tools.use("send_message", to="here", text="one moment") == "The message to here will be delivered."
        await tools.platform.until(lambda: "hello team" in tools.platform.texts("team"))
        assert tools.platform.texts("team") == ["hello team"]
        await tools.platform.until(lambda: "one moment" in tools.platform.texts("one"))
        assert sorted(tools.platform.texts("one")) == ["done: m1", "done: m2", "one moment"]


async def test_nobody_else_is_written_to(store_url: str) -> None:
    async with Bench(store_url, sending) as tools:
        for to in ("two", "Team", "agent:main:fake:dm:two", ""):
            assert (await tools.use("send_message", to=to, text="x")).startswith("Error: ")
        assert "100 characters" in await tools.use("send_message", to="team", text="x" * 101)
        (result,) = await tools.use_all(("send_message", {"to": "team", "text": "x", "chat_id": "two"}))
        assert result.startswith("Error: the arguments do not match the schema")
    assert {shown.chat for shown in tools.platform.screen} == {"one"}


def test_without_targets_there_is_no_tool() -> None:
    async def nobody(*_: object) -> bool:
        raise AssertionError

    assert send_tools(SendSettings(own_chat=False), nobody) == []
    (tool,) = send_tools(SendSettings(), nobody)
    assert tool.effect is Effect.IDEMPOTENT
    assert tool.description.endswith("Chats you may write to: here.")


async def test_where_events_are_the_delivery_it_is_an_event(store_url: str) -> None:
    async with Bench(store_url, sending, platforms=[ApiPlatform()]) as tools:
        assert "nobody in page has written yet" in await tools.use("send_message", to="page", text="hello")
        key = await tools.world.accept(Inbound(id="1", source=PAGE, text="hi"))
        assert await tools.use("send_message", to="page", text="hello page") == "The message to page will be delivered."
        events = await tools.store.read(events_after, key, 0, 100)
        assert [event.data for event in events if event.kind == "notice"] == ['{"text":"hello page","reason":"sent"}']


def rows(text: str) -> Op[int]:
    found = yield sql("SELECT count(*) FROM outbox WHERE text=$1", text)
    return int(found[0][0])


class Repeating:
    """Sends the same call several times, as a turn does that was interrupted after the commit."""

    def __init__(self, times: int) -> None:
        self.times = times

    def tools(self, bench: Bench) -> list[Tool]:
        """The send tool, each use of which is repeated."""
        send = bench.world.gateway.sending.send

        async def again(*given: object) -> bool:
            results = await asyncio.gather(*(send(*given) for _ in range(self.times)))  # type: ignore[arg-type]
            return all(results)

        return send_tools(SETTINGS, again)


@pytest.mark.parametrize("to", ["team", "page"])
async def test_a_call_that_is_repeated_sends_once(store_url: str, to: str) -> None:
    async with Bench(store_url, Repeating(5).tools, platforms=[ApiPlatform()]) as tools:
        await tools.world.accept(Inbound(id="1", source=PAGE, text="hi"))
        await tools.use("send_message", to=to, text="once only")
        assert await tools.store.read(rows, "once only") == 1


async def test_two_calls_of_one_turn_are_two_messages(store_url: str) -> None:
    call = ("send_message", {"to": "team", "text": "again"})
    async with Bench(store_url, sending) as tools:
        await tools.use_all(call, call)
        await tools.platform.until(lambda: tools.platform.texts("team") == ["again", "again"])
        assert [each.id for each in tools.calls] == [ToolCall("call-0", "").id, "call-1"]
