"""`everturn keys`, `login` and `logout`: programs that may speak, and the login link of the page."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.asking import ask, base_url
from everturn.cli.looking.view import look_into
from everturn.cli.options import config_option, home_option, json_option
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, holder
from everturn.people.rules.access import GRANTABLE, MEANINGS

_SCOPES = "; ".join(f"{scope}: {MEANINGS[scope]}" for scope in GRANTABLE)


@click.group
def keys() -> None:
    """Create, list and revoke access keys for programs that use the gateway over HTTP."""


@keys.command
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in GRANTABLE]),
    default=("chat",),
    show_default=True,
    help=f"What the key may do; can be given several times. {_SCOPES}.",
)
@home_option
@config_option
def create(name: str, scopes: tuple[str, ...], home: Home, config_file: Path | None) -> None:
    """Create the key NAME and print it. It is shown only this once: the gateway keeps only its hash."""
    secret = asyncio.run(_create(home, config_file, name, tuple(dict.fromkeys(scopes))))
    print(f"The key {name!r} ({', '.join(scopes)}); it is not shown again:", file=sys.stderr)
    print(secret)


@keys.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the keys: name, first characters, scopes, last use."""
    found = asyncio.run(_list(home, config_file))
    if as_json:
        print(json.dumps({"keys": found}, ensure_ascii=False, indent=2))
        return
    from everturn.cli.looking.asking import moment, show_table

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
    """The maker of a key; `-` for keys from before makers were recorded."""
    return f"{key['made_by'] or '-'}{' (revoked)' if key['maker_revoked'] else ''}"


@keys.command
@click.argument("name")
@click.option("--with-made", is_flag=True, help="Also revoke the keys that were made with it, and with those.")
@home_option
@config_option
def revoke(name: str, with_made: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """Revoke the key NAME at once. Keys that were made with it stay valid, and are listed."""
    done = asyncio.run(_revoke(home, config_file, name, with_made=with_made))
    print(f"The key {name!r} is revoked.")
    if done["also"]:
        print(f"So are the keys that were made with it: {', '.join(done['also'])}.")
    if done["left"]:
        print(f"Still valid, and made with it: {', '.join(done['left'])}. To revoke one: everturn keys revoke NAME.")


async def _create(home: Home, config_file: Path | None, name: str, scopes: tuple[str, ...]) -> str:
    async with look_into(home, config_file) as view:
        return await view.make_key(name, scopes)


async def _list(home: Home, config_file: Path | None) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.keys()


async def _revoke(home: Home, config_file: Path | None, name: str, *, with_made: bool) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.revoke_key(name, with_made=with_made)


# `everturn login` and `everturn logout`: log a browser in to the page, or log all browsers out.


@click.command
@home_option
def login(home: Home) -> None:
    """Print a login link for the page. It works once, and soon expires.

    The browser that opens it acts for the owner of this gateway, for 30 days or until it is logged out.
    """
    gateway = _running(home)
    made = ask(home, gateway, "POST", "/control/login", {})
    minutes = max(1, round((made["expires_at"] - time.time()) / 60))
    base = str(made.get("public_url") or base_url(gateway)).rstrip("/")
    click.echo(f"This link works once, within {minutes} minutes:", err=True)
    print(f"{base}/login#{made['code']}")


@click.command
@home_option
def logout(home: Home) -> None:
    """Log every browser out of the page at once."""
    ended = ask(home, _running(home), "POST", "/control/logout", {})["ended"]
    print(f"Logged out: {ended} {'browser' if ended == 1 else 'browsers'}.")


def _running(home: Home) -> Holder:
    gateway = holder(home)
    if gateway is None or not gateway.url:
        raise EverturnError(f"no gateway runs on {home.path}; start it with `everturn run`")
    return gateway
