"""The example MCP server, used by a real gateway process on the event loop that it ships with."""

from pathlib import Path

import pytest

from tests.cli.outside import answered, ended, post, state_of
from tests.cli.scripted import scripted
from tests.waiting import poll

SETTINGS = """
[mcp.shop]
command = ["PYTHON", "EXAMPLE"]
approval = ["order"]
[mcp.mute]
command = ["sleep", "600"]
start_s = 3600
"""


@pytest.mark.prove
async def test_an_mcp_server_is_used_and_one_that_never_starts_delays_nobody(tmp_path: Path) -> None:
    """The example, on the loop that the gateway really runs on. No conversation waits for the mute one."""
    async with scripted(tmp_path, SETTINGS, "mcp_server.py") as gateway:
        assert await answered(tmp_path, "ann", "1", "say hello") == "hello"
        gateway.until(lambda output: "mcp_server_connected" in output)
        assert "0 of coffee" in await answered(tmp_path, "ann", "2", 'use shop_stock {"item": "coffee"}')
        post(tmp_path, "ann", "3", 'use shop_order {"item": "tea", "count": 2}')
        await poll(lambda: state_of(tmp_path, "3") == "awaiting_approval", seen=lambda: gateway.output)
        assert "ordered" not in gateway.output
        post(tmp_path, "ann", "4", "/approve")
        await poll(lambda: ended(tmp_path, "3") == "answered", seen=lambda: gateway.output)
        output = gateway.shows("ordered 2 of tea").splitlines()
        (line,) = (each for each in output if "mcp_server_stderr" in each and "ordered" in each)
        assert "server=shop" in line
