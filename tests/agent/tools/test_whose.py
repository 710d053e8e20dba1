"""Two people at once: whoever asks a tool who it works for hears their own name, in this process, in a thread, in a child
process, in an MCP server and in an agent that is a program; and again after a resume.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.outside import ProcessAgent
from everturn.agent.toolbox import Tool, ToolPlace
from everturn.agent.tools.shell import ShellSettings, shell_tools
from everturn.agent.wire import WireSettings
from everturn.clock import SystemClock
from everturn.model import Effect, Json, ToolCall
from everturn.testing import FakePlatform, World
from tests.agent.tools.benches import Bench
from tests.agent.tools.test_mcp import offered
from tests.scenes import die
from tests.waiting import WAIT_S, within

STALE = {"PATH": os.environ["PATH"], "TURN_USER": "stale", "TURN_CHAT_NAME": "stale"}
ECHO = 'echo "$TURN_USER/$TURN_CHAT/$TURN_KEY/$TURN_CHAT_NAME"'
PEOPLE = ("ann", "bob")


class Meeting:
    """A tool that answers only when both turns are in it, so that whatever they share would be the other's by then."""

    def __init__(self) -> None:
        self.open = True
        self.here: set[str] = set()
        self.full = asyncio.Event()
        self._go = asyncio.Event()

    def tools(self, bench: Bench) -> list[Tool]:
        """The meeting, and commands."""
        settings = ShellSettings(
            folder=Path(str(bench.world.url).removeprefix("sqlite:///")).parent, approval="never",
            environment=("TURN_USER", "TURN_CHAT_NAME"),
        )  # fmt: skip
        meet = Tool(name="who", description="", parameters={}, run=self._who, effect=Effect.PURE)
        return [meet, *shell_tools(settings, STALE, SystemClock())]

    async def _who(self, _: Json, place: ToolPlace) -> str:
        self.here.add(place.turn.key)
        if len(self.here) == len(PEOPLE):
            self.full.set()
        await (self.full if self.open else self._go).wait()
        in_thread = await asyncio.to_thread(lambda: place.turn_info()["user"])
        return f"{place.turn.source.user_id} {in_thread} {place.turn_info()['key']}"


def asks(bench: Bench, who: str) -> str:
    return bench.say(("who", {}), ("run_command", {"command": ECHO}), chat=f"chat-{who}", user=who)


async def heard(bench: Bench, message: str) -> tuple[str, str]:
    first, second = await bench.results(message)
    return first.content, second.content.splitlines()[-1]


def own(who: str) -> tuple[str, str]:
    key = f"agent:main:fake:dm:chat-{who}"
    return f"{who} {who} {key}", f"{who}/chat-{who}/{key}/"


async def test_two_people_at_once_are_never_mistaken_for_each_other(tmp_path: Path) -> None:
    async with Bench(tmp_path, Meeting().tools) as bench:
        asked = {who: asks(bench, who) for who in PEOPLE}
        assert {who: await heard(bench, asked[who]) for who in PEOPLE} == {who: own(who) for who in PEOPLE}


async def test_nor_after_a_resume(tmp_path: Path) -> None:
    closed = Meeting()
    closed.open = False
    first = Bench(tmp_path, closed.tools)
    await first.world.start()
    asked = {who: asks(first, who) for who in PEOPLE}
    await closed.full.wait()
    await die(first.world)
    async with Bench(tmp_path, Meeting().tools) as bench:
        assert {who: await heard(bench, asked[who]) for who in PEOPLE} == {who: own(who) for who in PEOPLE}


class Listener:
    """Says for whom its tools work before and after it heard what was written meanwhile."""

    def __init__(self) -> None:
        self.thinks, self.go = asyncio.Event(), asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """One turn, in which others may join."""
        await turn.calling()
        place = ToolPlace(turn, ToolCall("1", "who"), "")
        before = place.turn_info()["user"]
        self.thinks.set()
        await self.go.wait()
        await turn.joined()
        after = place.turn_info()
        return Answer(f"{before or 'nobody'}, then {after['user'] or 'nobody'} in {after['chat']}")


@pytest.mark.parametrize(("second", "then"), [("bob", "nobody"), ("ann", "ann")])
async def test_a_turn_that_another_person_joins_works_for_nobody(store_url: str, second: str, then: str) -> None:
    """Whoever speaks last in a shared topic does not lend their name to what was asked before."""
    platform, agent = FakePlatform(), Listener()
    topic = {"chat_type": "group", "thread_id": "topic"}
    async with World(store_url, agent, [platform]):
        platform.say("g", "delete everything", user_id="ann", **topic)
        async with within(WAIT_S, lambda: "no turn"):
            await agent.thinks.wait()
        platform.say("g", "thanks", user_id=second, **topic)
        await platform.until(lambda: platform.acknowledged == 2)
        agent.go.set()
        await platform.until(lambda: bool(platform.texts("g")))
    assert platform.texts("g") == [f"ann, then {then} in g"]


@pytest.mark.prove  # two real servers that load a large library
async def test_a_server_is_told_who_asks_only_if_the_owner_wants_it(tmp_path: Path) -> None:
    for context, turn_info in ((True, "{0} in chat-{0}"), (False, "nobody in nowhere")):
        folder = tmp_path / str(context)
        folder.mkdir()
        async with offered(folder, context=context) as server:
            uses = (server.bench.use("test_whose", chat=f"chat-{who}", user=who) for who in PEOPLE)
            assert await asyncio.gather(*uses) == [turn_info.format(who) for who in PEOPLE]


PROGRAM = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    who = asked["source"]["user_id"]
    if asked["type"] == "call":
        said = {"type": "result", "content": who + os.environ.get("TURN_USER", "")}
    elif len(asked["own"]) < 2:
        said = {"type": "step", "calls": [{"id": "1", "name": "who"}]}
    else:
        said = {"type": "answer", "text": who + " is " + asked["own"][-1]["content"]}
    print(json.dumps(said), flush=True)
"""


async def test_a_program_is_told_with_every_request(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "agent.py")]
    agent, platform = ProcessAgent(command, tmp_path, STALE, SystemClock(), WireSettings()), FakePlatform()
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", agent, [platform]):
        for who in PEOPLE:
            platform.say(f"chat-{who}", "who am I?", user_id=who)
        await platform.until(lambda: all(platform.texts(f"chat-{who}") for who in PEOPLE))
    assert [platform.texts(f"chat-{who}") for who in PEOPLE] == [[f"{who} is {who}"] for who in PEOPLE]
    await agent.close()
