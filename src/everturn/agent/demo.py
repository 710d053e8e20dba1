"""The built-in demo agent: it needs no model and no network, and shows what survives a crash.

`work N [SECONDS]` runs N effects that must not happen twice; `crash` and `crash always` kill the process; `call NAME JSON`
calls one of the functions that an API client offers; anything else is answered with what the agent sees.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from everturn.agent.interface import Answer, RunTool, TurnContext
from everturn.clock import Clock
from everturn.model import Message, ToolCall

_WORK = re.compile(r"work +(\d{1,4})(?: +(\d{1,4}(?:\.\d{1,3})?))?\s*", re.IGNORECASE)
_CRASH = re.compile(r"crash( +always)?\s*", re.IGNORECASE)


_CALL = re.compile(r"call +([A-Za-z0-9_-]{1,64})(?: +(\{.*\}))?\s*", re.IGNORECASE)


def kill_this_process() -> None:
    """Kill this process as the kernel does when memory runs out: nothing more runs."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def is_for_demo(text: str) -> bool:
    """Whether this text is `work` or `crash`, which other agents leave to the demo."""
    first = text.partition("\n")[0]
    return bool(_WORK.fullmatch(first) or _CRASH.fullmatch(first))


class DemoAgent:
    """An agent that works through its turn step by step and writes each effect into a ledger file."""

    def __init__(self, ledger: Path, clock: Clock, die: Callable[[], None] = kill_this_process) -> None:
        self._ledger = ledger
        self._clock = clock
        self._die = die

    async def run(self, turn: TurnContext) -> Answer:
        """Answer the first line of what the user wrote."""
        text = turn.text
        first = text.partition("\n")[0]
        if found := _WORK.fullmatch(first):
            return await self._work(turn, int(found[1]), float(found[2] or 1))
        if found := _CRASH.fullmatch(first):
            return await self._crash(turn, always=found[1] is not None)
        if found := _CALL.fullmatch(first):
            return await self._call(turn, found[1], found[2] or "{}")
        if not text:
            return await self._repeat_results(turn)
        return Answer(f"I see {turn.earlier} earlier messages of this conversation. You said: {text}")

    async def _work(self, turn: TurnContext, steps: int, seconds: float) -> Answer:
        """Continue after the last committed step; a step whose outcome a crash hid is reported, never repeated."""
        turn.calling()

        async def act(call: ToolCall, _key: str) -> str:
            await asyncio.to_thread(self._write, f"{turn.id} {call.id}\n")
            await self._clock.sleep(seconds)
            return f"{call.id} done"

        results = await self._results_so_far(turn, act)
        for number in range(len(results) + 1, steps + 1):
            turn.stream(f"working: step {number} of {steps}")
            call = ToolCall(id=f"step-{number}", name="work")
            results += await turn.step(f"Step {number} of {steps}.", [call], act)
        unknown = sum(result.unknown for result in results)
        suffix = f" ({unknown} with unknown outcome)" if unknown else ""
        return Answer(f"done: {steps} steps{suffix}")

    async def _results_so_far(self, turn: TurnContext, act: RunTool) -> list[Message]:
        if turn.attempt == 1:
            return []
        await turn.settle(act)
        return [row for row in await turn.own() if row.role == "tool"]

    def _write(self, line: str) -> None:
        """Append one line to the ledger and sync it to disk: the ledger is what the outside saw of an effect."""
        number = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, line.encode())
            os.fsync(number)
        finally:
            os.close(number)

    async def _call(self, turn: TurnContext, name: str, arguments: str) -> Answer:
        offered = [tool.name for tool in (await turn.extras()).tools]
        if name not in offered:
            return Answer(f"There is no function {name} here; I was offered: {', '.join(offered) or 'none'}.")
        return Answer("", calls=(ToolCall(id=f"call_{turn.id}", name=name, arguments=arguments),))

    async def _repeat_results(self, turn: TurnContext) -> Answer:
        """Answer a request that has function results and no text."""
        rows = await turn.history()
        names = {call.id: call.name for row in rows for call in row.calls}
        results = list(takewhile(lambda row: row.role == "tool", reversed((await turn.extras()).rows)))
        said = [f"{names.get(row.call_id or '', 'it')} said: {row.content}" for row in reversed(results)]
        return Answer("; ".join(said) or "You said nothing.")

    async def _crash(self, turn: TurnContext, *, always: bool) -> Answer:
        if always or turn.attempt == 1:
            await turn.calling()
            self._die()
        return Answer("I was killed in the middle of this turn and resumed it. Nothing was lost.")
