"""`everturn pair`: who may speak to the agent on chat platforms."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from everturn.cli.options import config_option, home_option, json_option
from everturn.cli.printable import printable
from everturn.cli.view import look_into
from everturn.decide import admission_words
from everturn.home import Home


@click.group
def pair() -> None:
    """Let people speak to the agent on chat platforms, and turn them out."""


@pair.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List who asks to be let in, and who was let in or turned out."""
    found = asyncio.run(_list(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    from everturn.cli.tables import moment, show_table

    asking = [
        (each["request"], _person(each, "person"), each["name"], moment(each["expires_at"]))
        for each in found["requests"]
    ]
    show_table(("request", "who asks", "name", "until"), asking)
    print()
    people = [
        (_person(each, "id"), each["name"], "owner" if each["owner"] else each["state"], moment(each["at"]))
        for each in found["people"]
    ]
    show_table(("person", "name", "is", "since"), people)


@pair.command
@click.argument("code", required=False)
@click.option("--request", "request", help="The number that `everturn pair list` shows, instead of the code.")
@click.option("--platform", help="The platform on which the code was given; any, if it is not named.")
@click.option("--owner", is_flag=True, help="Make them an owner of this gateway, who may use every command.")
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
    """Let in who was given CODE."""
    if (code is None) == (request is None):
        raise click.UsageError("give the CODE that the person was shown, or --request NUMBER")
    wanted = {"code": code, "request": request, "platform": platform, "owner": owner}
    done = asyncio.run(_approve(home, config_file, wanted))
    name = f" ({done['name']})" if done.get("name") else ""
    print(f"{printable(done['let_in'] + name)} is let in{' as an owner' if owner else ''}.")


@pair.command
@click.argument("person", metavar="PLATFORM:USER")
@click.option("--owner", is_flag=True, help="Make them an owner of this gateway, who may use every command.")
@home_option
@config_option
def allow(person: str, owner: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """Let PLATFORM:USER in without a code, also after they were turned out."""
    done = asyncio.run(_allow(home, config_file, person, owner=owner))
    print(f"{person} is let in{' as an owner' if owner else ''}.")
    _doubt_platform(done, person)


@pair.command
@click.argument("person", metavar="PLATFORM:USER")
@home_option
@config_option
def revoke(person: str, home: Home, config_file: Path | None) -> None:
    """Turn PLATFORM:USER out at once: running tasks stop, what waits is not answered, and no list lets them in again."""
    done = asyncio.run(_revoke(home, config_file, person))
    stopped = done["stopped_turns"]
    print(f"{person} may no longer speak; {stopped} running {'task was' if stopped == 1 else 'tasks were'} stopped.")
    _doubt_platform(done, person)


def _doubt_platform(done: dict[str, Any], person: str) -> None:
    """It is done as it was said, and may have been said wrongly."""
    if not done["platform_known"]:
        print(admission_words.no_such_platform(person.partition(":")[0]))


def _person(each: dict[str, Any], name: str) -> str:
    return f"{each['platform']}:{each[name]}"


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
