"""`/v1` through the official client for Node, unchanged."""

import asyncio
import json
from pathlib import Path

from tests.house import ROOT
from tests.waiting import WAIT_S, within
from tests.web.composition import TOKEN, running
from tests.web.programs import Obliging

EXPECTED = {
    "models": ["main", "other"],
    "chat": "echo: hello",
    "stream": "echo: hello",
    "tokens": 13,
    "asked": ["tool_calls", "look"],
    "told": "it said rain",
    "response": "echo: hello",
    "continued": "|user=hello|assistant=echo: hello|user=seen",
    "again": "echo: hello",
    "streamed": "echo: hello",
    "same": True,
    "errors": [
        ["ConflictError", 409, "idempotency_key_reused"],
        ["NotFoundError", 404, "model_not_found"],
        ["BadRequestError", 400, "unsupported_parameter"],
        ["AuthenticationError", 401, "invalid_api_key"],
    ],
}


async def test_the_client_for_node_runs_unchanged(tmp_path: Path) -> None:
    script = ROOT / "tests" / "npm" / "openai_client.mjs"
    async with running(tmp_path, Obliging()) as web:
        node = await asyncio.create_subprocess_exec(
            "node", str(script), f"{web.serving.url}/v1", TOKEN, stdout=-1, stderr=-1
        )
        async with within(2 * WAIT_S, lambda: "node did not end"):  # it starts, and loads a library
            out, err = await node.communicate()
    assert node.returncode == 0, err.decode()
    assert json.loads(out) == EXPECTED
