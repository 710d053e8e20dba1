"""Internals of uvicorn that `web/wire/connection.py` relies on: the version is capped, and a new one is tested here."""

import asyncio
import importlib.metadata
import inspect
import re
import tomllib
from collections import deque
from pathlib import Path

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from everturn.web.wire.connection import Connection, GatewayServer, MessageCycle
from everturn.web.wire.limits import SharedState
from everturn.web.wire.requests import refusal
from tests.web.composition import SHARED, Web

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
OF_A_CONNECTION = {
    "app": object,
    "client": tuple,
    "connections": set,
    "cycle": RequestResponseCycle,
    "expect_100_continue": bool,
    "flow": FlowControl,
    "headers": list,
    "loop": asyncio.AbstractEventLoop,
    "parser": httptools.HttpRequestParser,
    "pipeline": deque,
    "server_state": ServerState,
    "tasks": set,
    "transport": object,
    "url": bytes,
}
CALLED_BY_UVICORN = [
    (HttpToolsProtocol, Connection, "send_400_response"),
    (uvicorn.Server, GatewayServer, "capture_signals"),
    (uvicorn.Server, GatewayServer, "startup"),
    (uvicorn.Server, GatewayServer, "on_tick"),
]
CALLED_BY_THE_PARSER = ["on_message_begin", "on_header", "on_headers_complete", "on_body", "on_message_complete"]


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_no_version_is_allowed_that_was_not_tried() -> None:
    major, minor, *_ = importlib.metadata.version("uvicorn").split(".")
    wanted = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    allowed = f"uvicorn>={major}.{minor},<{major}.{int(minor) + 1}"
    assert allowed in wanted, "read the new uvicorn's httptools_impl.py and server.py, then allow it in pyproject.toml"


@SHARED
async def test_a_connection_has_what_we_use_of_it(shared: Web) -> None:
    assert (await shared.client.get("/health")).status_code == 200
    connection = shared.serving.server.open_connections()[-1]
    missing = [name for name, kind in OF_A_CONNECTION.items() if not isinstance(getattr(connection, name, None), kind)]
    assert not missing
    assert isinstance(connection.server_state, SharedState)
    assert connection.server_state.default_headers


@pytest.mark.parametrize(("theirs", "ours", "name"), CALLED_BY_UVICORN)
def test_what_we_replace_is_still_called(theirs: type, ours: type, name: str) -> None:
    assert parameters(getattr(theirs, name)) == parameters(getattr(ours, name))
    assert re.search(rf"self\.{name}\(", inspect.getsource(theirs))


@pytest.mark.parametrize("name", CALLED_BY_THE_PARSER)
def test_what_the_parser_calls_is_there_to_be_extended(name: str) -> None:
    assert parameters(getattr(HttpToolsProtocol, name)) == parameters(getattr(Connection, name))


def test_a_message_cycle_has_everything_that_a_connection_needs() -> None:
    quick = MessageCycle(b"alice")
    asked = set(re.findall(r"\bcycle\.(\w+)", inspect.getsource(HttpToolsProtocol))) - {"run_asgi"}  # it is never run
    assert {name for name in asked if not hasattr(quick, name)} == set()
    assert {"body", "more_body", "keep_alive", "response_complete", "disconnected", "message_event"} <= asked


def test_every_status_that_we_answer_has_its_line() -> None:
    assert STATUS_LINE[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    assert refusal(503, "why").wire().startswith(STATUS_LINE[503])
