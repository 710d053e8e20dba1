"""How a command asks a running gateway, and prints what it hears: tables for people, JSON for programs."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, reachable

# Removes control characters from text before it is printed to a terminal.


_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return _STEERS.sub("", text)


# Prints tables for people. Output to a program has every cell whole, without colours, one row per line.


WIDE = 1000


def show_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column heads."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE)
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, show_header=any(head))
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def shown(value: object) -> str:
    """A cell as text, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def moment(at: object, *, exact: bool = False) -> str:
    """A stored time as local date and time, with milliseconds if `exact`."""
    if not isinstance(at, int | float):
        return "-"
    seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{seconds}.{int(at % 1 * 1000):03}" if exact else seconds


# Sends single HTTP requests to the running gateway.


PATIENCE_S = 10.0


class Unreachable(EverturnError):
    """The gateway does not answer, or is not available now."""


def base_url(gateway: Holder) -> str:
    """The gateway's URL for requests from this machine, also when it listens on every address."""
    return reachable(gateway.url)


def ask(home: Home, gateway: Holder, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one request to the control API. Raises Unreachable, or EverturnError with the gateway's error."""
    status, answer = _request(gateway, method, path, {"Authorization": f"Bearer {home.api_token()}"}, body)
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise EverturnError(f"the gateway at {gateway.url} does not accept the token in {home.token_file}")
    if status >= http.HTTPStatus.BAD_REQUEST:
        kind = Unreachable if status == http.HTTPStatus.SERVICE_UNAVAILABLE else EverturnError
        raise kind(f"the gateway at {gateway.url} reports an error: {error_text(answer)}")
    return answer


def answers(gateway: Holder, path: str = "/health") -> bool:
    """Whether the gateway answers a GET of this path with 200."""
    try:
        return _request(gateway, "GET", path, {}, None)[0] == http.HTTPStatus.OK
    except Unreachable:
        return False


def error_text(answer: object) -> str:
    """The message of an error response."""
    if isinstance(answer, dict):
        return str(answer.get("error") or answer.get("detail") or answer)
    return str(answer)


def _request(
    gateway: Holder, method: str, path: str, headers: dict[str, str], body: dict[str, Any] | None
) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(base_url(gateway))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, _decoded(response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the gateway ({gateway}) does not answer: {error}") from error
    finally:
        connection.close()


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"error": data.decode(errors="replace")[:200]}
    return answer if isinstance(answer, dict) else {"answer": answer}
