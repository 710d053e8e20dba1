"""`everturn status`, `sessions`, `channels` and `explain`: what the gateway knows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.asking import printable
from everturn.cli.looking.view import look_into
from everturn.cli.options import config_option, home_option, json_option
from everturn.home.folder import Home
from everturn.operator.rules.operator_texts import session_text


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
    from everturn.cli.looking.asking import show_table

    if found.pop("running"):
        print(f"The gateway runs on {home.path}: process {found.pop('pid')}, {found.pop('url')}\n")
    else:
        print(f"No gateway runs on {home.path}.\n")
    found.pop("home")
    platforms = found.pop("platforms", [])
    show_table(("", ""), [*_lines(found), *_platforms(platforms)])


def _platforms(platforms: list[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """The state of each platform that the gateway reads, and since when it is not read."""
    from everturn.cli.looking.asking import moment
    from everturn.platform.rules import Reach, reach_text

    for each in platforms:
        if each["state"] != Reach.OPEN:
            since = moment(each["since"]) if each["since"] is not None else ""
            yield f"{each['name']} {each['account']}".strip(), reach_text(each["state"], each["trouble"], since)


def _lines(found: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Nested values as lines: `open turns running`, 3; `previous exit`, unclean."""
    from everturn.cli.looking.asking import moment

    for name, value in found.items():
        text = f"{above} {name}".strip().replace("_", " ").removesuffix(" ended")
        if isinstance(value, dict):
            yield from _lines(value, text) if value else [(text, "none")]
        else:
            shown = "resumes delayed" if name == "crash_loop" and value else value
            yield text, moment(value) if name.endswith("_at") else shown


# `everturn sessions`: list the current sessions.


SESSION_COLUMNS = ("key", "session", "state", "messages", "running", "unclean ends", "last active")


@click.command
@home_option
@config_option
@json_option
def sessions(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the current sessions, ordered by key.

    A session is active, interrupted (resume_pending: its task resumes, or its next message continues it) or suspended
    (until /resume).
    """
    asyncio.run(_print_json(home, config_file) if as_json else _print_table(home, config_file))


async def _print_json(home: Home, config_file: Path | None) -> None:
    """Print one JSON array, page by page, so that a large home needs little memory."""
    separator = ""
    async with look_into(home, config_file) as view:
        print("[", end="")
        async for page in view.sessions():
            for session in page:
                print(separator, json.dumps(session, ensure_ascii=False), sep="\n", end="")
                separator = ","
    print("\n]")


async def _print_table(home: Home, config_file: Path | None) -> None:
    from everturn.cli.looking.asking import show_table

    async with look_into(home, config_file) as view:
        rows = [_row(session) async for page in view.sessions() for session in page]
    if rows:
        show_table(SESSION_COLUMNS, rows)
    else:
        print(f"There are no sessions in {home.path}.")


def _row(session: dict[str, Any]) -> tuple[object, ...]:
    from everturn.cli.looking.asking import moment

    ends = session["unclean_ends"]
    stands = session_text(session["state"], session["reason"], ends, has_turn=session["turn"] is not None)
    return (
        session["key"], session["session_id"], stands, session["messages"], session["running"], ends,
        moment(session["active_at"]),
    )  # fmt: skip


# `everturn channels`: list known chats, and give them aliases.


CHANNEL_COLUMNS = ("name", "address", "kind", "aliases", "last seen")


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
    from everturn.cli.looking.asking import moment, show_table

    rows = [
        (each["label"], each["address"], each["type"], ", ".join(each["aliases"]), moment(each["seen_at"]))
        for each in found["channels"]
    ]
    seen = {each["address"] for each in found["channels"]}
    unseen = [(name, address, "-", name, "-") for name, address in found["aliases"].items() if address not in seen]
    if rows or unseen:
        show_table(CHANNEL_COLUMNS, [*rows, *unseen])
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


# `everturn explain`: show the timeline of one message.


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
    from everturn.cli.looking.asking import moment, show_table
    from everturn.operator.rules.timeline import timeline

    print("" if first else "\n", f"{printable(message['id'])} in {message['key']}", sep="")
    show_table(("", ""), [("now" if at is None else moment(at, exact=True), text) for at, text in timeline(message)])
