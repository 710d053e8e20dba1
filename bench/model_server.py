"""The scripted model of `everturn.testing.model` as a process of its own, and the clients that both sides of a comparison use."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.process import free_port
from everturn.agent.llm.settings import LlmSettings

PATIENCE_S = 30.0
LOOK_S = 0.02


@contextmanager
def model_server(path: Path) -> Iterator[str]:
    """Start it; its base url."""
    more_files()
    port = free_port()
    command = [sys.executable, "-P", "-m", "everturn.testing.model", "--port", str(port), "--log", str(path / "log")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait(port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def llm_settings(base_url: str, instructions: str) -> LlmSettings:
    """An agent that asks it."""
    return LlmSettings(model="openai:scripted", base_url=base_url, instructions=instructions)


def more_files() -> None:
    """A thousand connections want a thousand file numbers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _wait(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(LOOK_S)
    raise TimeoutError("the scripted model did not start")
