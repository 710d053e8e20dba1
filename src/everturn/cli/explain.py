"""`everturn explain`: show the timeline of one message."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.options import config_option, home_option, json_option
from everturn.cli.looking.printable import printable
from everturn.cli.looking.view import look_into
from everturn.home.folder import Home


@click.command
@click.argument("message_id", metavar="MESSAGE-ID")
@home_option
@config_option
@json_option
def explain(message_id: str, home: Home, config_file: Path | None, as_json: bool) -> int:  # noqa: FBT001
    """Show the timeline of one message, with times and reasons.

    MESSAGE-ID is the id that its sender or platform gave it. If several chats used the same id, all timelines are shown.
    """
    timelines = asyncio.run(_timelines(home, config_file, message_id))
    if as_json:
        print(json.dumps(timelines, ensure_ascii=False, indent=2))
    for number, message in enumerate([] if as_json else timelines):
        _print_timeline(message, first=number == 0)
    if not timelines:
        print(f"everturn: no message with the id {message_id!r} is known in {home.path}", file=sys.stderr)
    return 0 if timelines else 1


async def _timelines(home: Home, config_file: Path | None, message_id: str) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.explain(message_id)


def _print_timeline(message: dict[str, Any], *, first: bool) -> None:
    from everturn.cli.looking.tables import moment, show_table
    from everturn.operator.rules.timeline import timeline

    print("" if first else "\n", f"{printable(message['id'])} in {message['key']}", sep="")
    show_table(("", ""), [("now" if at is None else moment(at, exact=True), text) for at, text in timeline(message)])
