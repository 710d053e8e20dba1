"""What a start loads: a demo gateway answers without any library of a model, of MCP, or of the local model."""

import re
import signal
from pathlib import Path

from tests.cli.program import GatewayProgram, everturn

OPTIONAL = {"anthropic", "asyncpg", "mcp", "openai", "opentelemetry", "pydantic", "pydantic_ai", "xllamacpp"}
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
