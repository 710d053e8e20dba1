"""A newcomer's first message: a real gateway process, a real model on this machine, no key, no network."""

import json
import signal
import sys
from pathlib import Path

from tests.cli.outside import answers, call, post
from tests.cli.program import GatewayProgram
from tests.cli.test_start_up import OPTIONAL, packages
from tests.waiting import WAIT_S, poll

LONGEST_S = 8 * WAIT_S  # libraries and a model are loaded, and the model thinks on few cores


async def test_the_real_local_model_answers_through_a_real_gateway(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, EVERTURN_AGENT_KIND="local", PYTHONPROFILEIMPORTTIME="1") as gateway:
        gateway.ready()
        post(tmp_path, "ann", "first", "What is the capital of France?")
        await poll(lambda: bool(answers(tmp_path)), LONGEST_S, 0.2, seen=lambda: gateway.output)
        (message,) = call(tmp_path, "/control/explain/first")["messages"]
        said = answers(tmp_path)
        assert gateway.kill(signal.SIGTERM) == 0
        loaded = packages(gateway.output)
    assert said[0].strip()
    assert message["turn"]["state"] == "answered", json.dumps(message)
    assert loaded & OPTIONAL == set()
    assert "xllamacpp" not in sys.modules
