"""Dead letters and recoveries from the command line, with the gateway running and without it."""

import json
from pathlib import Path
from typing import Any

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import Refused
from everturn.operator.rows.overview import messages, replies
from everturn.testing import FakePlatform, SendFault, World
from tests.cli.program import GatewayProgram, called, everturn
from tests.scenes import until_read


class Failing:
    """Answers everything but `fail`."""

    async def run(self, turn: TurnContext) -> Answer:
        if turn.text == "fail":
            raise RuntimeError("the model is not there")
        return Answer(f"echo: {turn.text}")


def world(home: Path, platform: FakePlatform) -> World:
    return World(f"sqlite:///{home / 'everturn.db'}", Failing(), [platform])


async def two_dead_letters(home: Path) -> None:
    """Run a gateway that leaves a reply that was refused and a message that failed."""
    platform = FakePlatform(faults=[SendFault(Refused("blocked"))])
    async with world(home, platform) as living:
        platform.say("one", "hello")
        await until_read(lambda: living.store.read(replies, "dead", 0, 9), bool)
        platform.say("two", "fail")
        await until_read(lambda: living.store.read(messages, "dead", 0, 9), bool)


def listed(home: Path) -> tuple[list[Any], list[Any]]:
    found = json.loads(called("dead", "list", "--json", home=home).out)
    return found["replies"], found["messages"]


async def test_a_dead_letter_of_a_stopped_home_is_sent_and_run_at_its_next_start(tmp_path: Path) -> None:
    await two_dead_letters(tmp_path)
    table = called("dead", "list", home=tmp_path).out
    assert ("blocked" in table, "RuntimeError" in table, "echo: hello" in table) == (True, True, True)
    (reply,), (message,) = listed(tmp_path)
    assert everturn("dead", "send", reply["reply"], home=tmp_path).code == 0
    assert called("dead", "run", message["id"], home=tmp_path).code == 0
    again = called("dead", "run", message["id"], home=tmp_path)
    assert (again.code, "no such dead letter" in again.err) == (1, True)
    platform = FakePlatform()
    async with world(tmp_path, platform):
        await platform.until(lambda: platform.texts("one") == ["echo: hello"] and len(platform.texts("two")) == 1)


async def test_dead_letters_are_listed_and_dropped_while_the_gateway_runs(tmp_path: Path) -> None:
    await two_dead_letters(tmp_path)
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        (reply,), (message,) = listed(tmp_path)
        for dead_id in (reply["reply"], message["id"]):
            assert called("dead", "drop", dead_id, home=tmp_path).code == 0
        assert called("dead", "list", home=tmp_path).out.startswith("There are no dead letters")
        refused = called("dead", "drop", message["id"], home=tmp_path)
        assert (refused.code, "everturn dead list" in refused.err) == (1, True)
        assert called("dead", "send", "x", home=tmp_path).code == 1
        gateway.kill()
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        running = called("recoveries", "--json", home=tmp_path).out
        assert [each["previous_exit"] for each in json.loads(running)["recoveries"]] == ["unclean"]
    assert "unclean" in called("recoveries", home=tmp_path).out
    assert called("recoveries", home=tmp_path / "none").out.startswith("There are no recoveries")
