"""A model in the turn: a message goes in, tools are used, each step is committed, an answer comes out."""

import asyncio

import pytest

from everturn.testing import EditingPlatform
from everturn.testing.model import ModelReply, ModelRequest, ModelToolCall
from tests.agent.llm.scenes import Lines, scene
from tests.scenes import die, happened, restarted


async def test_words_reach_the_model_byte_for_byte_and_its_answer_the_user(store_url: str) -> None:
    """In a DM with nothing to resume nothing is added to what the user wrote."""
    text = "  Grüße \t[System] <system>x</system>\n\n「李」 \u202e end  "
    async with scene(store_url) as it:
        answer = await it.ask(text)
        (sent,) = it.sent()
    assert answer.strip() == f"answer to {text}".strip()
    assert sent[-1] == {"role": "user", "content": text}
    assert [each["role"] for each in sent] == ["system", "user"]


async def test_tools_are_used_step_by_step(store_url: str) -> None:
    async with scene(store_url) as it:
        assert await it.ask("tools 3") == "answer to tools 3"
        assert it.lines.written == ["1", "2", "3"]
        rows = await it.transcript()
        assert [row.role for row in rows] == ["user", *["assistant", "tool"] * 3, "assistant"]
        assert len(it.seen()) == 4
        last = it.sent()[-1]
    assert [each["content"] for each in last if each["role"] == "tool"] == [f"wrote {n} with write" for n in (1, 2, 3)]


async def test_several_calls_of_one_response_are_run_in_order(store_url: str) -> None:
    async with scene(store_url) as it:
        assert await it.ask("calls 2") == "answer to calls 2"
        assert it.lines.written == ["1", "2"]
        assert [row.content for row in await it.transcript()][1] == "I use my tools."


@pytest.mark.parametrize("dies", [False, True])
async def test_what_a_model_says_before_its_tools_stays_on_the_screen(store_url: str, dies: bool) -> None:  # noqa: FBT001
    lines = Lines(hold=asyncio.Event())
    async with scene(store_url, platform=EditingPlatform(), lines=lines) as it:
        it.platform.say("one", "calls 2")
        await it.told("I use my tools.")
        await lines.begun.wait()
        if dies:
            await restarted(it.world)
        lines.hold.set() if lines.hold else None
        await it.told("answer to calls 2")
        await it.platform.until(lambda: it.platform.texts("one") == ["I use my tools.\n\nanswer to calls 2"])
        said = [row.content for row in await it.transcript() if row.role == "assistant"]
    assert said == ["I use my tools.", "answer to calls 2"]


async def test_a_tool_that_is_not_there_is_an_error_the_model_reads(store_url: str) -> None:
    async with scene(store_url) as it:
        assert "there is no tool named 'vanish' now" in await it.ask("use vanish {}")


async def test_an_interrupted_turn_goes_on_after_its_last_step(store_url: str) -> None:
    async with scene(store_url) as it:
        it.model.fail("stall", text="tools 2", times=1)
        it.platform.say("one", "tools 2")
        await it.model.until(lambda: len(it.model.seen) == 1)
        await restarted(it.world)
        assert await it.told("answer to tools 2")
        assert it.lines.written == ["1", "2"]
        assert "[System note: " in str(it.sent()[-1][1]["content"])
        assert not any("System note" in row.content for row in await it.transcript())


def write_and_erase(asked: ModelRequest) -> ModelReply:
    """Asks for both tools in one response."""
    line = '{"line": "x"}'
    return (
        ModelReply("", (ModelToolCall("write", line), ModelToolCall("erase", line)))
        if not asked.results
        else ModelReply("both are done")
    )


async def test_a_call_to_a_tool_that_was_away_needs_its_approval_when_the_tool_is_back_after_a_death(
    store_url: str,
) -> None:
    """It was journaled when nobody knew its class or that it asks."""
    lines = Lines(names=["write", "erase"])
    async with scene(store_url, lines=lines) as it:
        await it.ask("hello")
        it.model.script = write_and_erase
        lines.names, lines.hold = ["write"], asyncio.Event()
        it.platform.say("one", "go")
        await happened(lines.begun)
        await die(it.world)
        lines.names, lines.hold, lines.asks = ["write", "erase"], None, True
        await it.world.start()
        await it.told("May I use erase?")
        assert lines.written == []
        it.platform.say("one", "/approve")
        await it.told("both are done")
    assert lines.written == ["x"]
