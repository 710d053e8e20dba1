"""An agent of a real gateway process that works until it is let go: what a test does meanwhile, it does while a turn runs."""

import os
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from tests.house import ROOT
from tests.waiting import WAIT_S, poll

FOLDER = "HOLDING_FOLDER"
LONGEST_S = 40 * WAIT_S  # only ends what hangs: a test lets it go


class Holding:
    """`hold` shows that it works, and is done when it was let go; anything else is said back at once."""

    async def run(self, turn: TurnContext) -> Answer:
        """Answer one message."""
        if turn.text != "hold":
            return Answer(f"You said: {turn.text}")
        await turn.calling()
        turn.stream("working: held")
        folder = Path(os.environ[FOLDER])
        (folder / "held").touch()
        await poll((folder / "go").exists, LONGEST_S)
        return Answer("done: let go")


def holding(folder: Path) -> dict[str, str]:
    """The environment of a gateway that has this agent; the folder is how one speaks with it."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"EVERTURN_AGENT_KIND": "python", "EVERTURN_AGENT_OBJECT": "tests.cli.holding:Holding"}
    return own | {FOLDER: str(folder), "PYTHONPATH": path}


async def held(folder: Path) -> None:
    """Wait until it holds, and that is committed."""
    await poll((folder / "held").exists, seen=lambda: sorted(folder.iterdir()))


def let_go(folder: Path) -> None:
    """Whatever is held, and whatever would be, is done."""
    (folder / "go").touch()
