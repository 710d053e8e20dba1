"""`everturn keys`: access keys for programs, each with a name, scopes, and an end."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from everturn.cli.options import config_option, home_option, json_option
from everturn.cli.view import look_into
from everturn.decide.access import GRANTABLE, MEANINGS
from everturn.home import Home

_SCOPES = "; ".join(f"{scope}: {MEANINGS[scope]}" for scope in GRANTABLE)


@click.group
def keys() -> None:
    """Access keys for programs that talk to the gateway over HTTP."""


@keys.command
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in GRANTABLE]),
    default=("chat",),
    show_default=True,
    help=f"What the key is for; may be given several times. {_SCOPES}.",
)
@home_option
@config_option
def create(name: str, scopes: tuple[str, ...], home: Home, config_file: Path | None) -> None:
    """Make a key called NAME and print it. It is shown this once: only its hash is kept."""
    secret = asyncio.run(_create(home, config_file, name, tuple(dict.fromkeys(scopes))))
    print(f"The key {name!r} ({', '.join(scopes)}); it is not shown again:", file=sys.stderr)
    print(secret)


@keys.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the keys: name, how each begins, scopes, when it was last used."""
    found = asyncio.run(_list(home, config_file))
    if as_json:
        print(json.dumps({"keys": found}, ensure_ascii=False, indent=2))
        return
    from everturn.cli.tables import moment, show_table

    head = ("name", "begins with", "scopes", "made", "last used", "revoked", "made by")
    show_table(
        head,
        (
            (each["name"], each["prefix"], " ".join(each["scopes"]), *(moment(each[at]) for at in TIMES), _maker(each))
            for each in found
        ),
    )


TIMES = ("made_at", "used_at", "revoked_at")


def _maker(key: dict[str, Any]) -> str:
    """Who made a key; nobody knows of those that are older than that is kept."""
    return f"{key['made_by'] or '-'}{' (revoked)' if key['maker_revoked'] else ''}"


@keys.command
@click.argument("name")
@click.option("--with-made", is_flag=True, help="Revoke the keys that were made with it, too, and with those.")
@home_option
@config_option
def revoke(name: str, with_made: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """End the key called NAME at once. The keys that an admin key made stay in force, and are named."""
    done = asyncio.run(_revoke(home, config_file, name, with_made=with_made))
    print(f"The key {name!r} is revoked.")
    if done["also"]:
        print(f"So are the keys that were made with it: {', '.join(done['also'])}.")
    if done["left"]:
        print(f"Still valid, and made with it: {', '.join(done['left'])}. To end one: everturn keys revoke NAME.")


async def _create(home: Home, config_file: Path | None, name: str, scopes: tuple[str, ...]) -> str:
    async with look_into(home, config_file) as view:
        return await view.make_key(name, scopes)


async def _list(home: Home, config_file: Path | None) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.keys()


async def _revoke(home: Home, config_file: Path | None, name: str, *, with_made: bool) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.revoke_key(name, with_made=with_made)
