"""After SIGKILL with a thousand turns in flight: how soon all of them go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from bench.disk import folder
from bench.process import Child, gateway
from bench.report import Line, at_most, say

METHOD = (
    "`everturn run` (limits.running_turns = 2000) gets 1,000 messages in 1,000 chats whose turns run for minutes; when all run it "
    "is killed by SIGKILL and started again; from /ready until all 1,000 run again or are queued, asked of the gateway"
)
TURNS = 1_000
SETTINGS = {"limits_running_turns": 2 * TURNS}
PATIENCE_S = 60.0


async def measure() -> list[Line]:
    """Fill, kill, start, look."""
    with folder() as path:
        home = path / "home"
        before = await asyncio.to_thread(_fill_and_kill, home)
        ready, kept, all_running = await asyncio.to_thread(_start_again, home)
    return [
        Line(name="turns kept over SIGKILL with 1,000 in flight", value=kept, unit="turns"),
        Line(name="all 1,000 run again after ready", value=all_running, unit="s", target=at_most(1.0)),
        Line(
            name="ready after SIGKILL with 1,000 in flight", value=ready, unit="s", detail=f"empty home {before:.2f} s"
        ),
    ]


def _fill_and_kill(home: Path) -> float:
    with gateway(home, **SETTINGS) as child:
        ready = child.wait_ready()
        for number in range(TURNS):
            body = json.dumps({"id": f"m{number}", "text": "work 2 600"}).encode()
            status, answer = child.ask(f"/api/chats/chat-{number}/messages", body)
            if status != 202:
                raise RuntimeError(f"not accepted: {answer}")
        _until(lambda: _effects(home) >= TURNS)
        say(f"  {TURNS} turns run, each in its first effect; killing the gateway")
        child.kill()
    return ready


def _start_again(home: Path) -> tuple[float, int, float]:
    with gateway(home, **SETTINGS) as child:
        ready = child.wait_ready()
        began = time.perf_counter()
        first = _turns(child)
        say(f"  ready {ready:.2f} s after its start; then {first}")
        _until(lambda: _turns(child).get("running", 0) == TURNS)
        all_running = time.perf_counter() - began
        child.kill()
    return ready, sum(first.values()), all_running


def _effects(home: Path) -> int:
    ledger = home / "demo-ledger.txt"
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def _turns(child: Child) -> dict[str, int]:
    """Open turns by state; those of a dead instance are `interrupted` by then, and queued."""
    found: dict[str, int] = child.ask("/control/status")[1]["open"]["turns"]
    return found


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError("it did not come to that")
        time.sleep(0.005)
