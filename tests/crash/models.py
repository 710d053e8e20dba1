"""A language model agent for processes that die, and the scripted model it calls: a process of its own that outlives them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.toolbox import Tool, ToolPlace
from everturn.model import Effect, Json
from everturn.testing.model import LoggedRequest, read_log

SCHEMA: Json = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}


class ModelProcess:
    """`python -m everturn.testing.model`, with a log that says what it was asked."""

    def __init__(self, folder: Path, pace_s: float = 0.0) -> None:
        self.log = folder / "requests.jsonl"
        command = [sys.executable, "-P", "-m", "everturn.testing.model", "--log", str(self.log), "--pace", str(pace_s)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._read = 0

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().partition("listening on ")[2].strip()
        assert self.base_url, "the scripted model does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def news(self) -> list[LoggedRequest]:
        """The requests since the last call of this."""
        seen = read_log(self.log)
        news, self._read = seen[self._read :], len(seen)
        return news


class Ledger:
    """A source of one tool of class once; each run is a line of a file that outlives the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tools(self) -> Sequence[Tool]:
        """What it offers."""
        return [Tool(name="write", description="write a line", parameters=SCHEMA, run=self._write, effect=Effect.ONCE)]

    async def _write(self, arguments: Json, place: ToolPlace) -> str:
        await asyncio.sleep(0)
        number = os.open(self._folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, f"{place.key}\n".encode())
        os.close(number)
        return f"wrote {arguments['line']}"


def model_agent(base_url: str, folder: Path) -> LlmAgent:
    """The agent of one process."""
    settings = LlmSettings(model="openai:scripted", base_url=base_url)
    return LlmAgent(settings, [Ledger(folder)])


def asks(base_url: str) -> partial[LlmAgent]:
    """How a process makes its agent."""
    return partial(model_agent, base_url)
