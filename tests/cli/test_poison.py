"""A message that ends the process as soon as a foreign agent gets it: the gateway suspends its conversation, and others are answered."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.outside import answered, call, ended, post
from tests.cli.program import GatewayProgram

# As people write one: it never says that it calls a model.
AGENT = """
import os

async def answer(turn):
    if turn.text == "poison":
        os._exit(11)
    return f"You said: {turn.text}"
"""
DEATH = "ended unexpectedly (exit code 11)"
OWN = {"EVERTURN_AGENT_KIND": "python", "EVERTURN_AGENT_OBJECT": "poisoned:answer"}


def listens_after_three_deaths(output: str) -> bool:
    """A process that dies at once may not have said where it listens."""
    return output.count(DEATH) == 3 and "http://127.0.0.1:" in output.rpartition(DEATH)[2]


@pytest.mark.prove
async def test_a_conversation_that_ends_the_process_is_suspended_and_the_others_are_answered(tmp_path: Path) -> None:
    (tmp_path / "poisoned.py").write_text(AGENT)
    with GatewayProgram(tmp_path, "--supervise", **OWN) as gateway:
        gateway.ready()
        with suppress(ConnectionError):  # it is stored; its sender may get no response
            post(tmp_path, "ann", "fatal", "poison")
        gateway.until(listens_after_three_deaths)
        assert ended(tmp_path, "fatal") == "suspended"
        assert await answered(tmp_path, "bob", "1", "hello") == "You said: hello"
        (notice,) = call(tmp_path, "/control/explain/fatal")["messages"][0]["replies"]
    assert (notice["kind"], notice["state"]) == ("notice", "sent")
    assert gateway.output.count(DEATH) == 3
    assert "again in 0.8 s" in gateway.output  # the last and longest pause
