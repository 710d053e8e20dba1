"""What the start of a demo gateway loads: no library of a model, of MCP or of a local model."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from bench.disk import folder
from bench.process import free_port
from bench.report import Line, at_most

METHOD = (
    "`everturn run` with the demo agent as a process of its own, told by the interpreter itself what it imports until it is"
    " ready (PYTHONPROFILEIMPORTTIME); beside it, how long importing those libraries would take"
)
PROVIDERS = ("pydantic_ai", "openai", "anthropic", "mcp", "xllamacpp")
IMPORTED = re.compile(r"^import time:.*\| +([\w.]+)$", re.MULTILINE)


async def measure() -> list[Line]:
    """One start, read to its readiness."""
    with folder() as path:
        loaded = await asyncio.to_thread(_loaded, path)
    providers = sorted(loaded & set(PROVIDERS))
    cost = await asyncio.to_thread(_import_s)
    return [
        Line(
            name="provider libraries a demo gateway loads", value=len(providers), unit="", target=at_most(0),
            detail=", ".join(providers),
        ),
        Line(name="packages a demo gateway loads", value=len(loaded), unit=""),
        Line(name="importing pydantic-ai, openai and anthropic", value=cost, unit="s"),
    ]  # fmt: skip


def _loaded(home: Path) -> set[str]:
    command = [sys.executable, "-P", "-m", "everturn", "run", "--home", str(home), "--port", str(free_port())]
    env = os.environ | {"EVERTURN_AGENT_KIND": "demo", "PYTHONPROFILEIMPORTTIME": "1"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    for line in process.stderr or ():
        lines.append(line)
        if "address=http" in line:
            break
    process.terminate()
    process.communicate(timeout=60)
    return {name.partition(".")[0] for name in IMPORTED.findall("".join(lines))}


def _import_s() -> float:
    code = "import pydantic_ai.models.openai, pydantic_ai.models.anthropic"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
    return time.perf_counter() - began
