"""The one note of an attempt: given to the agent, never stored, and offered again only until the model has answered it."""

from everturn.sessions.rules.notes import tail_key
from everturn.testing import FakePlatform, World
from tests.promises import NOTE
from tests.scenes import EAGER, Actor, ask, die, entry_of, said_in, told, trace_of, until_ended


async def test_a_note_is_for_one_attempt_and_never_stored(store_url: str) -> None:
    """Promise 7: the transcript keeps the user's own text, byte for byte."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        message = platform.say("one", "hold  on\n please ")
        await agent.held("hold  on\n please ")
        await die(world)
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
        await ask(platform, "one", "next")
        rows = await said_in(world, agent.attempts[0].session_id)
        trace = await trace_of(world, message)
    assert [each.note.startswith(NOTE) for each in agent.attempts] == [False, True, False]
    assert [row.content for row in rows if row.role == "user"] == ["hold  on\n please ", "next"]
    assert not any(NOTE in row.content for row in rows)
    assert trace["turn"]["note"] == "resume:restart_interrupted"
    assert [each["note"] for each in trace["turn"]["attempts"]] == [None, "resume:restart_interrupted"]


async def test_the_resume_note_replaces_the_tool_tail_note(store_url: str) -> None:
    """One note at most; it covers the tail, which is acknowledged as soon as the model has answered."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "tool hold")
        await agent.held("tool hold")
        await die(world)
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
        entry = await entry_of(world, platform, "one")
        rows = await said_in(world, entry.session_id or "")
    assert agent.attempts[1].note.count(NOTE) == 1
    assert "gateway interruption" in agent.attempts[1].note
    assert "have not answered yet" not in agent.attempts[1].note
    assert entry.tail_key == tail_key(rows[:3])


async def failed_after_a_tool(world: World, platform: FakePlatform, text: str) -> None:
    """A turn that fails behind its tool result: no model has answered that result."""
    await until_ended(world, platform.say("one", text), "dead")


async def test_an_unanswered_tool_tail_gives_the_next_message_a_note(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await failed_after_a_tool(world, platform, "tool raise")
        message = await ask(platform, "one", "next")
        await ask(platform, "one", "more")
        trace = await trace_of(world, message)
    assert "tool result" in agent.notes("next")[0]
    assert agent.notes("more") == [""]
    assert trace["turn"]["note"] == "tool_tail"


async def test_an_acknowledged_tool_tail_gives_no_second_note_and_a_different_one_does(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        keys = []
        for text in ("tool raise", "next", "then tool raise", "more", "end"):
            if text.endswith("raise"):
                await failed_after_a_tool(world, platform, text)
            else:
                await ask(platform, "one", text)
                keys.append((await entry_of(world, platform, "one")).tail_key)
    assert [bool(agent.notes(text)[0]) for text in ("next", "more", "end")] == [True, True, False]
    assert keys[0] != keys[1] == keys[2]


async def test_a_stopped_task_leaves_no_tail_to_finish(store_url: str) -> None:
    """After /stop the next message must not finish its tool results."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "tool hold")
        await agent.held("tool hold")
        platform.say("one", "/stop")
        await told(platform, "one", "Stopped")
        acknowledged = (await entry_of(world, platform, "one")).tail_key
        await ask(platform, "one", "next")
    assert acknowledged is not None
    assert agent.notes("next") == [""]


async def test_an_attempt_that_never_reached_the_model_acknowledges_nothing(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await failed_after_a_tool(world, platform, "tool raise")
        before = await entry_of(world, platform, "one")
        platform.say("one", "nocall hold")
        await agent.held("nocall hold")
        await die(world)
        await world.start()
        await agent.held("nocall hold")
        during = await entry_of(world, platform, "one")
        agent.release()
        await told(platform, "one", "answer: nocall hold")
        after = await entry_of(world, platform, "one")
    assert (before.tail_key, during.tail_key) == (None, None)
    assert after.tail_key is not None
    assert ["tool result" in note for note in agent.notes("nocall hold")] == [True, True]


async def test_the_tail_acknowledgement_survives_a_crash(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await failed_after_a_tool(world, platform, "tool raise")
        await ask(platform, "one", "next")
        before = await entry_of(world, platform, "one")
        await die(world)
        await world.start()
        after = await entry_of(world, platform, "one")
    assert (before.tail_key, before.tail_at) == (after.tail_key, after.tail_at)
    assert after.tail_at is not None


async def test_with_nothing_to_resume_there_is_no_note(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        for text in ("tool", "next"):
            await ask(platform, "one", text)
    assert [each.note for each in agent.attempts] == ["", ""]


async def test_the_note_names_what_interrupted_the_previous_attempt(store_url: str) -> None:
    """By reason, with or without a tool result at the end."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "step hold")
        for kind in ("restart", "stop", "death"):
            await agent.held("step hold")
            await (die(world) if kind == "death" else world.stop(kind))
            await world.start()
        agent.release()
        await told(platform, "one", "answer")
    said = ("gateway restart", "gateway shutdown", "gateway interruption")
    assert [text in each.note for text, each in zip(said, agent.attempts[1:], strict=True)] == [True] * 3
