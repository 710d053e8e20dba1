"""`everturn explain`: the life of one message."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from everturn.cli.options import config_option, home_option, json_option
from everturn.cli.printable import printable
from everturn.cli.view import look_into
from everturn.home import Home


@click.command
@click.argument("message_id", metavar="MESSAGE-ID")
@home_option
@config_option
@json_option
def explain(message_id: str, home: Home, config_file: Path | None, as_json: bool) -> int:  # noqa: FBT001
    """Tell the life of one message, with times and reasons.

    MESSAGE-ID is the id its sender or platform gave it. Several chats may have used the same one: all are told.
    """
    lives = asyncio.run(_lives(home, config_file, message_id))
    if as_json:
        print(json.dumps(lives, ensure_ascii=False, indent=2))
    for number, life in enumerate([] if as_json else lives):
        _tell(life, first=number == 0)
    if not lives:
        print(f"everturn: no message with the id {message_id!r} is known in {home.path}", file=sys.stderr)
    return 0 if lives else 1


async def _lives(home: Home, config_file: Path | None, message_id: str) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.explain(message_id)


def _tell(life: dict[str, Any], *, first: bool) -> None:
    from everturn.cli.tables import moment, show_table
    from everturn.decide.timeline import timeline

    print("" if first else "\n", f"{printable(life['id'])} in {life['key']}", sep="")
    show_table(("", ""), [("now" if at is None else moment(at, exact=True), words) for at, words in timeline(life)])
