"""LiteLLM's proxy in the gateway's place, which people would put there instead: the same requests, the same model server, in one run."""

from __future__ import annotations

import http.client
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from bench.disk import ROOT, folder
from bench.first_token import first_tokens
from bench.process import free_port
from bench.report import Line
from bench.shipped import OURS, Process, Side, end, pinned, shipped, stage
from bench.streams import HOST
from bench.token_rate import token_rates

METHOD = (
    "`litellm --config` with one worker and its settings for production, in an environment of its own (.venv-litellm), on the core that the gateway "
    "has; direct, everturn and LiteLLM in turn, measured as in first_token and token_rate; ready: from its start until GET /health/readiness "
    "answers 200 (ours: /ready); memory: RSS of its processes after all of it. It stores nothing: no message survives it"
)
LITELLM = ROOT / ".venv-litellm" / "bin" / "litellm"
CONFIG = """\
model_list:
  - model_name: main
    litellm_params:
      model: openai/scripted
      api_base: {url}
      api_key: none
"""
# It reads its table of prices from its own package then, and asks nobody.
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"}
FIRST_ROUNDS, RATE_ROUNDS = 2, 2
WHERE = "side by side: "
PATIENCE_S = 120.0
LOOK_S = 0.01


async def measure() -> list[Line]:
    """Both beside the model server, in turn."""
    with folder() as path, stage() as on:
        with shipped(path, on.model_url), litellm(path, on.model_url):
            pass  # the first start writes the home and warms the disk's cache
        with shipped(path, on.model_url) as ours, litellm(path, on.model_url) as other:
            sides = (ours, other)
            for side in sides:
                await on.warm(side)
            lines = await first_tokens(on, sides, FIRST_ROUNDS, {}, WHERE)
            lines += await token_rates(on, sides, RATE_ROUNDS, None, WHERE)
            lines += [Line(name=f"{WHERE}ready, {side.name}", value=side.ready_s, unit="s") for side in sides]
            lines += [
                Line(name=f"{WHERE}memory after it, RSS, {side.name}", value=side.process.memory() / 1e6, unit="MB")
                for side in sides
            ]
    return lines


@contextmanager
def litellm(path: Path, model_url: str) -> Iterator[Side]:
    """Start it; it is ready then."""
    if not LITELLM.exists():
        raise RuntimeError(f"there is no {LITELLM}: `make .venv-litellm/.bench-litellm` installs it")
    port, key = free_port(), f"sk-{secrets.token_hex(32)}"
    config = path / "litellm.yaml"
    config.write_text(CONFIG.format(url=model_url), encoding="utf-8")
    command = [*pinned(OURS), str(LITELLM), "--config", str(config), "--host", HOST, "--port", str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--telemetry", "False"], cwd=path, env=os.environ | QUIET | {"LITELLM_MASTER_KEY": key},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.perf_counter() > began + PATIENCE_S:
                raise RuntimeError("LiteLLM's proxy did not start")
            time.sleep(LOOK_S)
        yield Side("litellm", port, key, Process(process.pid), time.perf_counter() - began)
    finally:
        end(process)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health/readiness")
        return connection.getresponse().status == 200
    return False
