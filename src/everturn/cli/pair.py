"""`everturn pair`: approve people on chat platforms, or revoke them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.asking import printable
from everturn.cli.looking.view import look_into
from everturn.cli.options import config_option, home_option, json_option
from everturn.home.folder import Home
from everturn.people.rules import people_texts


@click.group
def pair() -> None:
    """Approve people who may speak to the agent on chat platforms, or revoke them."""


@pair.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the access requests, and the people who were approved or revoked."""
    found = asyncio.run(_list(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    from everturn.cli.looking.asking import moment, show_table

    requests = [
        (each["request"], _person(each, "person"), each["name"], moment(each["expires_at"]))
        for each in found["requests"]
    ]
    show_table(("request", "person", "name", "expires"), requests)
    print()
    people = [(_person(each, "id"), each["name"], _state(each), moment(each["at"])) for each in found["people"]]
    show_table(("person", "name", "state", "since"), people)


@pair.command
@click.argument("code", required=False)
@click.option("--request", "request", help="The request's number in `everturn pair list`, instead of the code.")
@click.option("--platform", help="The platform on which the person got the code [default: any].")
@click.option("--owner", is_flag=True, help="Make the person an owner of this gateway, who may use every command.")
@home_option
@config_option
def approve(
    code: str | None,
    request: str | None,
    platform: str | None,
    owner: bool,  # noqa: FBT001  click's
    home: Home,
    config_file: Path | None,
) -> None:
    """Approve the person who was given CODE."""
    if (code is None) == (request is None):
        raise click.UsageError("give the CODE that the person was shown, or --request NUMBER")
    wanted = {"code": code, "request": request, "platform": platform, "owner": owner}
    done = asyncio.run(_approve(home, config_file, wanted))
    name = f" ({done['name']})" if done.get("name") else ""
    print(f"{printable(done['approved'] + name)} is approved{' as an owner' if owner else ''}.")


@pair.command
@click.argument("person", metavar="PLATFORM:USER")
@click.option("--owner", is_flag=True, help="Make the person an owner of this gateway, who may use every command.")
@home_option
@config_option
def allow(person: str, owner: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """Approve PLATFORM:USER without a code, also after they were revoked."""
    done = asyncio.run(_allow(home, config_file, person, owner=owner))
    print(f"{person} is approved{' as an owner' if owner else ''}.")
    _warn_unknown_platform(done, person)


@pair.command
@click.argument("person", metavar="PLATFORM:USER")
@home_option
@config_option
def revoke(person: str, home: Home, config_file: Path | None) -> None:
    """Revoke PLATFORM:USER at once: running tasks stop, queued messages are not answered, and no list admits them."""
    done = asyncio.run(_revoke(home, config_file, person))
    stopped = done["stopped_turns"]
    print(f"{person} is revoked; {stopped} running {'task was' if stopped == 1 else 'tasks were'} stopped.")
    _warn_unknown_platform(done, person)


def _warn_unknown_platform(done: dict[str, Any], person: str) -> None:
    """Print a warning when nothing ever came from the named platform: it may be misspelt."""
    if not done["platform_known"]:
        print(people_texts.no_such_platform(person.partition(":")[0]))


def _person(each: dict[str, Any], name: str) -> str:
    return f"{each['platform']}:{each[name]}"


def _state(each: dict[str, Any]) -> str:
    return "owner" if each["owner"] else "approved" if each["state"] == "granted" else str(each["state"])


async def _list(home: Home, config_file: Path | None) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.pairings()


async def _approve(home: Home, config_file: Path | None, wanted: dict[str, Any]) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.approve_pairing(wanted)


async def _allow(home: Home, config_file: Path | None, person: str, *, owner: bool) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.allow_person(person, owner=owner)


async def _revoke(home: Home, config_file: Path | None, person: str) -> dict[str, Any]:
    async with look_into(home, config_file) as view:
        return await view.revoke_person(person)
