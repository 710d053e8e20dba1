"""Commands through a whole gateway: what the agent sees after them, which notices people get, and what a death leaves."""

import pytest

from everturn.lifecycle.gateway import PlannedStop
from everturn.lifecycle.settings import Settings
from everturn.model import Usage
from everturn.people.rules.rights import ChatRights, Rights
from everturn.testing import FakePlatform, World
from everturn.turns.rows.spending import count_usage
from tests.scenes import Actor, answer_to, ask, die, restarted, said_in, session_of, told
from tests.turns.test_approvals import Asker
from tests.waiting import within

OWNED = Settings(rights=Rights(owners=("fake:ann",)))


async def times_told(platform: FakePlatform, chat: str, part: str, times: int) -> None:
    """Wait until this was said so often."""
    await platform.until(lambda: sum(part in text for text in platform.texts(chat)) == times)


async def test_undo_hides_and_the_next_turn_goes_on_without(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        for text in ("one", "two tool"):
            await ask(platform, "one", text)
        platform.say("one", "/undo")
        said = await told(platform, "one", "Hidden from the agent")
        await ask(platform, "one", "three")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert "1 tool call did happen and stays done" in said
    assert [row.content for row in rows] == ["one", answer_to("one"), "three", answer_to("three")]
    assert len(agent.effects) == 1


async def test_retry_ends_what_runs_and_runs_it_again(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        platform.say("one", "/retry")
        await told(platform, "one", "Running your last message again")
        agent.release("hold")
        await platform.until(lambda: answer_to("hold") in platform.texts("one"))
        platform.say("one", "/retry")
        await times_told(platform, "one", answer_to("hold"), 2)
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [row.content for row in rows] == ["hold", answer_to("hold")]
    assert len({each.turn for each in agent.given("hold")}) == len(agent.given("hold")) >= 2
    assert agent.overlaps == []


async def test_a_branch_leaves_the_first_conversation_as_it_was(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "first")
        kept = await session_of(world, platform, "one")
        platform.say("one", "/branch side")
        await told(platform, "one", "a copy of the conversation")
        await ask(platform, "one", "second")
        side = await session_of(world, platform, "one")
        assert [row.content for row in await said_in(world, kept)] == ["first", answer_to("first")]
        assert [row.role for row in await said_in(world, side)] == ["user", "assistant"] * 2
    assert agent.given("second")[0].earlier == 2


@pytest.mark.parametrize("command", ["/undo", "/branch", "/retry"])
async def test_a_command_accepted_before_a_death_is_applied_once(store_url: str, command: str) -> None:
    """Whether the death came before or after it was applied: the next process adds nothing."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "first")
        await ask(platform, "one", "second")
        platform.say("one", command)
        await platform.until(lambda: platform.acknowledged == 3)
        await die(world)
        await world.start()
        await restarted(world)
        await ask(platform, "one", "third")
        rows = await said_in(world, await session_of(world, platform, "one"))
    said = [row.content for row in rows if row.role == "user"]
    assert said == ["first", *(["second"] if command != "/undo" else []), "third"]
    assert sum(text.startswith(("Hidden", "This is a copy", "Running")) for text in platform.texts("one")) == 1


async def test_approve_and_deny_answer_an_approval_request(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        await restarted(world)
        platform.say("one", "/approve")
        await told(platform, "one", "done: shell used")
        platform.say("one", "files")
        await told(platform, "one", "May I use files?")
        platform.say("one", "/deny not today")
        await told(platform, "one", "not today")
    assert agent.used == ["shell"]


async def test_an_approval_request_is_answered_from_another_chat(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        platform.say("one", "shell")
        request = await told(platform, "one", "May I use shell?")
        number = request.partition("/approve ")[2].split("/approve ")[-1].partition(".")[0]
        platform.say("two", f"/approve {number}")
        await told(platform, "two", "Approved")
        await told(platform, "one", "done: shell used")


async def test_the_owner_restarts_and_gets_one_notice_afterwards(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform], settings=OWNED) as world:
        platform.say("one", "/restart")
        async with within():
            assert await world.gateway.stop_requested == PlannedStop("restart", "/restart")
        await world.stop("restart")
        await world.start()
        await told(platform, "one", "I'm back:")
        await restarted(world)
        assert not world.gateway.stop_requested.done()
        await ask(platform, "one", "hello")
    assert [text.startswith("I'm back") for text in platform.texts("one")] == [False, True, False]


async def test_a_death_instead_of_the_restart_is_one_too(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform], settings=OWNED) as world:
        platform.say("one", "/restart")
        await told(platform, "one", "The gateway restarts now")
        await restarted(world)
        await told(platform, "one", "I'm back:")
        assert not world.gateway.stop_requested.done()


async def test_a_denied_command_is_answered_and_chatting_goes_on(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    gated = Settings(rights=Rights(scopes={"fake:dm": ChatRights(admins=("bob",), commands=("status",))}))
    async with World(store_url, agent, [platform], settings=gated):
        await ask(platform, "one", "hello")
        platform.say("one", "/new")
        await told(platform, "one", "Only the admins of this chat may use /new")
        platform.say("one", "/queue words")
        await told(platform, "one", "Only the admins of this chat may use /queue")
        platform.say("one", "/new", user_id="bob")
        await told(platform, "one", "fresh conversation")
        platform.say("one", "/restart", user_id="bob")
        await told(platform, "one", "Only the owner of this gateway may use /restart")
    assert [each.text for each in agent.attempts] == ["hello"]


async def test_usage_says_the_same_after_a_restart(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        (begun,) = world.gateway.turns.running()
        await world.store.run(count_usage, begun, Usage(requests=2, input_tokens=70, output_tokens=8, cost=0.25))
        agent.release()
        await told(platform, "one", answer_to("hold"))
        for times in (1, 2):
            platform.say("one", "/usage")
            await times_told(platform, "one", "Last task: 2 model calls, 70 tokens in, 8 out, $0.2500.", times)
            await restarted(world)
    before, after = (text for text in platform.texts("one") if "Last task" in text)
    assert before == after
