"""Copied into a home: the demo agent, whose turns stay in their second step until they are cut off, and then need no time.

So a turn is in the middle of an effect for as long as it takes to end the gateway, however slow the machine is.
"""

import asyncio
import shutil
from pathlib import Path

from everturn.agent.demo import DemoAgent
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock

HELD = {"EVERTURN_AGENT_KIND": "python", "EVERTURN_AGENT_OBJECT": "held:run"}


class Pauses(SystemClock):
    """A clock whose first pauses take no time; the next one never ends."""

    def __init__(self, left: int) -> None:
        self._left = left

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002  a clock's word
        """Come back at once, or never."""
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()


async def run(turn: TurnContext) -> Answer:
    """Run the demo agent with such a clock."""
    clock = Pauses(1 if turn.attempt == 1 else 10_000)
    return await DemoAgent(Path(__file__).with_name("demo-ledger.txt"), clock).run(turn)


def install_in(home: Path) -> None:
    """Copy this module into the home, so that its gateways find it."""
    shutil.copy(__file__, home / "held.py")
