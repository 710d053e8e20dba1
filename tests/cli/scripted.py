"""A real gateway process that asks a scripted model, with settings from a file and one of the examples."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.testing.model import ModelServer, ScriptedModel
from tests.cli.program import GatewayProgram
from tests.house import ROOT

KEY = "k3y-of-the-tests"
AGENT = """
[agent]
model = "openai:scripted"
base_url = "URL"
api_key_env = "THE_KEY"
"""


@asynccontextmanager
async def scripted(home: Path, settings: str, example: str) -> AsyncIterator[GatewayProgram]:
    """Run a gateway with these settings beside the agent's, in which ["PYTHON", "EXAMPLE"] is how the example is run."""
    async with ModelServer(ScriptedModel(key=KEY)) as server:
        values = {"URL": server.base_url, "PYTHON": sys.executable, "EXAMPLE": str(ROOT / "examples" / example)}
        text = AGENT + settings
        for word, meant in values.items():
            text = text.replace(word, meant)
        (home / "everturn.toml").write_text(text)
        with GatewayProgram(home, EVERTURN_AGENT_KIND="auto", THE_KEY=KEY) as gateway:
            gateway.ready()
            yield gateway
