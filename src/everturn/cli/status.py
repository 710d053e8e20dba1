"""`everturn status`: show whether the gateway runs, and how much work is open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.options import config_option, home_option, json_option
from everturn.cli.looking.view import look_into
from everturn.home.folder import Home


@click.command
@home_option
@config_option
@json_option
def status(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Show whether the gateway runs, how its previous process ended, and how much work is open."""
    found = asyncio.run(_status(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        _show(found, home)


async def _status(home: Home, config_file: Path | None) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.status()


def _show(found: dict[str, Any], home: Home) -> None:
    from everturn.cli.looking.tables import show_table

    if found.pop("running"):
        print(f"The gateway runs on {home.path}: process {found.pop('pid')}, {found.pop('url')}\n")
    else:
        print(f"No gateway runs on {home.path}.\n")
    found.pop("home")
    platforms = found.pop("platforms", [])
    show_table(("", ""), [*_lines(found), *_platforms(platforms)])


def _platforms(platforms: list[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """The state of each platform that the gateway reads, and since when it is not read."""
    from everturn.cli.looking.tables import moment
    from everturn.platform.rules.contact import Reach, reach_text

    for each in platforms:
        if each["state"] != Reach.OPEN:
            since = moment(each["since"]) if each["since"] is not None else ""
            yield f"{each['name']} {each['account']}".strip(), reach_text(each["state"], each["trouble"], since)


def _lines(found: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Nested values as lines: `open turns running`, 3; `previous exit`, unclean."""
    from everturn.cli.looking.tables import moment

    for name, value in found.items():
        text = f"{above} {name}".strip().replace("_", " ").removesuffix(" ended")
        if isinstance(value, dict):
            yield from _lines(value, text) if value else [(text, "none")]
        else:
            shown = "resumes delayed" if name == "crash_loop" and value else value
            yield text, moment(value) if name.endswith("_at") else shown
