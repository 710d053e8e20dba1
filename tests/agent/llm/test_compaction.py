"""A conversation that outgrows the window continues in a child session; a summary that cannot be made never fails a turn."""

from typing import Any

from everturn.testing.model import ModelReply, ModelRequest, ModelToolCall, by_text
from tests.agent.llm.scenes import STALL_S, Impatient, Lines, Scene, scene
from tests.scenes import restarted, session_of

SMALL: dict[str, Any] = {"context_tokens": 1000, "compact_at": 0.5, "compact_keep": 0.1}
LONG = "a long story " * 60


async def fill_window(it: Scene) -> str:
    """Say so much that the next turn has to compact; the session's id."""
    for number in (1, 2):
        await it.ask(f"{number} {LONG}")
    return await session_of(it.world, it.platform, "one")


async def test_a_long_conversation_goes_on_with_a_summary_and_its_newest_rows(store_url: str) -> None:
    async with scene(store_url, **SMALL) as it:
        before = await fill_window(it)
        assert await it.ask("and now?") == "answer to and now?"
        assert await session_of(it.world, it.platform, "one") != before
        last = it.sent()[-1]
        rows = await it.transcript()
    assert rows[0].role == "summary"
    assert [row.content for row in rows[-2:]] == ["and now?", "answer to and now?"]
    assert last[1]["content"].endswith(rows[0].content)
    assert last[-1] == {"role": "user", "content": "and now?"}
    assert len(str(last)) < 3000


async def test_a_summary_that_fails_does_not_fail_the_turn(store_url: str) -> None:
    clock = Impatient()
    async with scene(store_url, agent_clock=clock, stall_s=STALL_S, **SMALL) as it:
        it.model.fail("server", times=99, text="Summarise the conversation")
        before = await fill_window(it)
        assert await it.ask("and now?") == "answer to and now?"
        assert await session_of(it.world, it.platform, "one") == before
        asked = [seen for seen in it.seen() if seen.fault]
    assert len(asked) == 1


async def test_an_overflow_is_answered_after_a_compaction(store_url: str) -> None:
    async with scene(store_url) as it:
        before = await fill_window(it)
        it.model.fail("overflow", text="and now?")
        assert await it.ask("and now?") == "answer to and now?"
        assert await session_of(it.world, it.platform, "one") != before
        assert [seen.fault for seen in it.seen()][2:] == ["overflow", None, None]


async def test_an_overflow_that_stays_is_told(store_url: str) -> None:
    async with scene(store_url) as it:
        await fill_window(it)
        it.model.fail("overflow", times=9, text="and now?")
        assert "longer than the model can read" in await it.ask("and now?")
        assert [seen.fault for seen in it.seen()][2:] == ["overflow", None, "overflow"]


async def test_a_death_in_the_summary_is_recovered_from_and_no_note_is_summarised(store_url: str) -> None:
    async with scene(store_url, **SMALL) as it:
        await fill_window(it)
        it.model.fail("silent", text="Summarise the conversation")
        it.platform.say("one", "tools 2")
        await it.model.until(lambda: it.model.seen[-1].fault == "silent")
        await restarted(it.world)
        assert await it.told("answer to tools 2")
        summaries = [seen.body for seen in it.seen() if "Summarise the conversation" in seen.body]
        assert it.lines.written == ["1", "2"]
        assert not any("System note" in row.content for row in await it.transcript())
    assert len(summaries) >= 2
    assert not any("System note" in body for body in summaries)


async def test_requests_after_a_compaction_share_their_bytes_again(store_url: str) -> None:
    async with scene(store_url, **SMALL) as it:
        await fill_window(it)
        await it.ask("and now?")
        await it.ask("and then?")
        first, second = it.seen()[-2:]
    assert second.conversation.startswith(first.conversation)


async def test_a_call_that_has_the_id_of_one_before_the_compaction_is_asked_about_anew(store_url: str) -> None:
    """The scripted model numbers its calls by those that it is sent: after the third one it is sent one, and says `call_2` again."""
    lines = Lines(asks=True)

    def write_four(asked: ModelRequest) -> ModelReply:
        done = len(lines.written)
        if done == 4 or not asked.tools:
            return by_text(asked)
        return ModelReply(calls=(ModelToolCall("write", f'{{"line": "{done + 1}"}}'),))

    async with scene(store_url, lines=lines) as it:
        it.model.script = write_four
        it.model.fail("overflow", text="go", results=3)
        it.platform.say("one", "go")
        for number in range(4):
            await it.told(f"'line': '{number + 1}'")
            assert len(lines.written) == number
            it.platform.say("one", "/approve")
        await it.told("answer to go")
        assert (await it.transcript())[0].role == "summary"
    assert lines.written == ["1", "2", "3", "4"]
