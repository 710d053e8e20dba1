"""A real MCP server, over standard streams or (with a port) over HTTP. What it did is written to the file `ledger`."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("test")


def did(what: str) -> None:
    """Write down that it really happened."""
    with Path("ledger").open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@server.tool(description="Add two numbers.", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def env(name: str) -> str:
    return os.environ.get(name, "(not set)")


@server.tool()
def whose(ctx: Context) -> str:
    meta: dict[str, Any] = dict(ctx.request_context.meta or {})
    told = meta.get("everturn/turn", {})
    return f"{told.get('user', 'nobody')} in {told.get('chat', 'nowhere')}"


@server.tool()
def fail(text: str) -> str:
    raise ValueError(text)


@server.tool()
async def hang(ctx: Context) -> str:
    did(f"hang {os.getpid()}")
    await asyncio.Event().wait()
    return "never"


@server.tool()
def die() -> str:
    did("die")
    os._exit(1)


@server.tool()
def pid() -> str:
    return str(os.getpid())


@server.tool()
def much(count: int) -> str:
    return "x" * count


@server.tool(name="a tool whose name no model can say")
def unsayable() -> str:
    return ""


def serve_at(port: int) -> None:
    """Serve at a port that somebody else holds for us."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run([listener])


if __name__ == "__main__":
    serve_at(int(sys.argv[1])) if len(sys.argv) > 1 else server.run()
