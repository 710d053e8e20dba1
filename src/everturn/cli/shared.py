"""What commands share: their options, requests to the running gateway, and how they print for people and for programs."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from everturn.cli import texts
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, reachable

PATIENCE_S = 10.0
WIDE = 1000
_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _found(_context: click.Context, _parameter: click.Parameter, given: Path | None) -> Home:
    return Home.find(given, os.environ)


PATH = click.Path(path_type=Path)
home_option = click.option(
    "--home",
    metavar="DIR",
    type=PATH,
    callback=_found,
    help="The gateway's home directory [default: $EVERTURN_HOME or ~/.everturn].",
)
config_option = click.option(
    "--config", "config_file", metavar="FILE", type=PATH, help="The settings file [default: everturn.toml in the home]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def say(text: str) -> None:
    """Print a line of this program to standard error."""
    print(f"everturn: {text}", file=sys.stderr, flush=True)


def print_json(found: object) -> None:
    """Print for programs."""
    print(json.dumps(found, ensure_ascii=False, indent=2))


def show_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column heads. A program gets every cell whole, without colours, one row per line."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
        return texts.NOTHING
    if isinstance(value, bool):
        return texts.YES if value else texts.NO
    return printable(str(value))


def printable(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return _STEERS.sub("", text)


def moment(at: object, *, exact: bool = False) -> str:
    """A stored time as local date and time, with milliseconds if `exact`."""
    if not isinstance(at, int | float):
        return texts.NOTHING
    seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{seconds}.{int(at % 1 * 1000):03}" if exact else seconds


class Unreachable(EverturnError):
    """The gateway does not answer, or is not available now."""


def base_url(gateway: Holder) -> str:
    """The gateway's URL for requests from this machine, also when it listens on every address."""
    return reachable(gateway.url)


def ask(home: Home, gateway: Holder, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one request to the control API. Raises Unreachable, or EverturnError with the gateway's error."""
    status, answer = _request(gateway, method, path, {"Authorization": f"Bearer {home.api_token()}"}, body)
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise EverturnError(texts.token_refused(gateway.url, home.token_file))
    if status >= http.HTTPStatus.BAD_REQUEST:
        kind = Unreachable if status == http.HTTPStatus.SERVICE_UNAVAILABLE else EverturnError
        raise kind(texts.gateway_error(gateway.url, error_text(answer)))
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
        raise Unreachable(texts.no_answer(gateway, error)) from error
    finally:
        connection.close()


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"error": data.decode(errors="replace")[:200]}
    return answer if isinstance(answer, dict) else {"answer": answer}
