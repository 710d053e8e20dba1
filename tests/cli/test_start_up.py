"""What a start loads: a demo gateway answers without any library of a model, of MCP, or of the local model."""

import re
import signal
from pathlib import Path

from everturn.testing.model import ModelServer
from tests.cli.outside import answers, post
from tests.cli.program import GatewayProgram, everturn
from tests.waiting import WAIT_S, poll

OPTIONAL = {
    "anthropic", "asyncpg", "genai_prices", "httpx", "httpx2", "mcp", "openai", "opentelemetry", "pydantic", "pydantic_ai", "xllamacpp",
}  # fmt: skip
IMPORTED = re.compile(r"^import time:.*\| +([\w.]+)$", re.MULTILINE)


def packages(output: str) -> set[str]:
    """What was imported, as the interpreter itself tells, by the name of its package."""
    return {name.partition(".")[0] for name in IMPORTED.findall(output)}


def test_a_demo_gateway_loads_no_library_of_a_model(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, PYTHONPROFILEIMPORTTIME="1") as gateway:
        gateway.ready()
        assert "You said: hello" in everturn("chat", "ann", home=tmp_path, text="hello\n").out
        assert gateway.kill(signal.SIGTERM) == 0
        loaded = packages(gateway.output)
    assert "apsw" in loaded
    assert loaded & OPTIONAL == set()


async def test_a_gateway_with_a_model_of_a_compatible_server_loads_none_either(tmp_path: Path) -> None:
    async with ModelServer() as server:
        agent = {"KIND": "llm", "MODEL": "openai:scripted", "BASE_URL": server.base_url}
        env = {f"EVERTURN_AGENT_{name}": value for name, value in agent.items()}
        with GatewayProgram(tmp_path, PYTHONPROFILEIMPORTTIME="1", **env) as gateway:
            gateway.ready()
            post(tmp_path, "ann", "first", "hello")
            await poll(lambda: answers(tmp_path) == ["answer to hello"], WAIT_S, 0.05, seen=lambda: gateway.output)
            assert gateway.kill(signal.SIGTERM) == 0
            loaded = packages(gateway.output)
    assert "httptools" in loaded
    assert loaded & OPTIONAL == set()
