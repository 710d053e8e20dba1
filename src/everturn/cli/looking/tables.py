"""Prints tables for people. Output to a program has every cell whole, without colours, one row per line."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everturn.cli.looking.printable import printable

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
