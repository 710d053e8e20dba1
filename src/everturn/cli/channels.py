"""`everturn channels`: list known chats, and give them aliases."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.options import config_option, home_option, json_option
from everturn.cli.looking.view import look_into
from everturn.home.folder import Home

HEAD = ("name", "address", "kind", "aliases", "last seen")


@click.group
def channels() -> None:
    """List the chats that the gateway knows, and give them aliases."""


@channels.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the chats that the gateway knows from platforms and conversations, the last seen first."""
    found = asyncio.run(_list(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    from everturn.cli.looking.tables import moment, show_table

    rows = [
        (each["label"], each["address"], each["type"], ", ".join(each["aliases"]), moment(each["seen_at"]))
        for each in found["channels"]
    ]
    seen = {each["address"] for each in found["channels"]}
    unseen = [(name, address, "-", name, "-") for name, address in found["aliases"].items() if address not in seen]
    if rows or unseen:
        show_table(HEAD, [*rows, *unseen])
    else:
        print("No chat is known yet. The gateway learns them from platforms and conversations.")


@channels.command
@click.argument("name")
@click.argument("address", metavar="PLATFORM:CHAT[:THREAD]")
@home_option
@config_option
@json_option
def alias(name: str, address: str, home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Give a chat the alias NAME, also a chat that was never seen. An alias that exists is moved to the new chat."""
    done = asyncio.run(_alias(home, config_file, name, address))
    print(json.dumps(done, ensure_ascii=False) if as_json else f"{done['alias']} is {done['address']}.")


@channels.command
@click.argument("name")
@home_option
@config_option
@json_option
def unalias(name: str, home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Remove the alias NAME."""
    done = asyncio.run(_unalias(home, config_file, name))
    print(json.dumps(done, ensure_ascii=False) if as_json else f"{done['unaliased']} is no longer an alias.")


async def _list(home: Home, config_file: Path | None) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.channels()


async def _alias(home: Home, config_file: Path | None, name: str, address: str) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.alias(name, address)


async def _unalias(home: Home, config_file: Path | None, name: str) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.unalias(name)
