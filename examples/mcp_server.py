"""Tools as an MCP server over its standard streams. What it writes to standard error appears in the gateway's log.

everturn.toml: [mcp.shop] command = ["python3", "mcp_server.py"], approval = ["order"]; this file in the home. It needs `pip install mcp`.
"""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")
STOCK = {"tea": 3, "coffee": 0}


@server.tool()
def stock(item: str) -> str:
    """Tell how many of an item there are."""
    return f"{STOCK.get(item, 0)} of {item}"


@server.tool()
def order(item: str, count: int) -> str:
    """Order an item."""
    print(f"ordered {count} of {item}", file=sys.stderr)
    return f"Ordered {count} of {item}."


if __name__ == "__main__":
    server.run()
