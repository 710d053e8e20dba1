"""`everturn dead`: list, send, run and drop dead letters; `everturn recoveries`: list recoveries from ended processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from everturn.cli.looking.view import View, look_into
from everturn.cli.options import config_option, home_option, json_option
from everturn.errors import EverturnError
from everturn.home.folder import Home

HEAD = ("id", "kind", "since", "platform", "chat", "sender", "error", "text")
TEXT_CHARS = 60
RECOVERIES_HEAD = ("ended at", "exit", "ready after", "continued", "suspended", "returned", "by instance")


@click.group
def dead() -> None:
    """Dead letters: replies that could not be delivered, and messages that got no answer.

    A dead letter stays in the list until somebody sends it or runs it again, or drops it.
    """


@dead.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the dead letters, the oldest first."""
    found = asyncio.run(_found(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    from everturn.cli.looking.asking import show_table

    rows = [_reply(each) for each in found["replies"]] + [_message(each) for each in found["messages"]]
    if rows:
        show_table(HEAD, sorted(rows, key=lambda row: str(row[2])))
    else:
        print(f"There are no dead letters in {home.path}.")


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def send(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Send the reply ID again."""
    print(asyncio.run(_act(home, config_file, "reply", "send", dead_id)))


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def run(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Run the message ID again: the agent answers it as if it arrived now."""
    print(asyncio.run(_act(home, config_file, "message", "run", dead_id)))


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def drop(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Drop the reply or the message ID: it is not sent or run again."""
    print(asyncio.run(_drop(home, config_file, dead_id)))


@click.command
@home_option
@config_option
@json_option
def recoveries(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the last recoveries: when a process ended, how soon the next was ready, and what became of its work."""
    found = asyncio.run(_recoveries(home, config_file))
    if as_json:
        print(json.dumps({"recoveries": found}, ensure_ascii=False, indent=2))
        return
    from everturn.cli.looking.asking import show_table

    if found:
        show_table(RECOVERIES_HEAD, [_recovery(each) for each in found])
    else:
        print(f"There are no recoveries in {home.path}.")


async def _found(home: Home, config_file: Path | None) -> dict[str, list[dict[str, Any]]]:
    async with look_into(home, config_file) as view:
        return await _dead_letters(view)


async def _dead_letters(view: View) -> dict[str, list[dict[str, Any]]]:
    return {"replies": await view.dead("replies"), "messages": await view.dead("messages")}


async def _act(home: Home, config_file: Path | None, what: str, action: str, dead_id: str) -> str:
    async with look_into(home, config_file) as view:
        return await view.act(what, action, _number(dead_id), uuid4().hex)


async def _drop(home: Home, config_file: Path | None, dead_id: str) -> str:
    """Drop a dead letter. A notice about a message has the message's id: both are dropped."""
    number = _number(dead_id)
    async with look_into(home, config_file) as view:
        found = await _dead_letters(view)
        kinds = [("reply", "replies", "reply"), ("message", "messages", "id")]
        here = [what for what, name, key in kinds if any(each[key] == number for each in found[name])]
        if not here:
            raise EverturnError(f"there is no dead letter {number}; `everturn dead list` lists them")
        said = [await view.act(what, "drop", number, uuid4().hex) for what in here]
        return "\n".join(dict.fromkeys(said))


async def _recoveries(home: Home, config_file: Path | None) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.recoveries()


def _number(dead_id: str) -> str:
    if not (dead_id.isascii() and dead_id.isdecimal() and len(dead_id) <= 19):
        raise EverturnError(f"{dead_id[:40]!r} is not the id of a dead letter; `everturn dead list` lists them")
    return dead_id


def _reply(each: dict[str, Any]) -> tuple[object, ...]:
    return _row(each["reply"], each["kind"], each["ended_at"], each, each["error"])


def _message(each: dict[str, Any]) -> tuple[object, ...]:
    return _row(each["id"], "message", each["ended_at"], each, each["why"])


def _row(number: str, what: str, since: object, each: dict[str, Any], why: object) -> tuple[object, ...]:
    from everturn.cli.looking.asking import moment

    text = " ".join(each["text"].split())[:TEXT_CHARS]
    return number, what, moment(since), each["platform"], each["chat"], each["sender"], why, text


def _recovery(each: dict[str, Any]) -> tuple[object, ...]:
    from everturn.cli.looking.asking import moment

    after = each["back_after_s"]
    # An unclean end is counted from the last heartbeat: the process died then or later.
    most = "at most " if each["previous_exit"] == "unclean" else ""
    back = "-" if after is None else f"{most}{after:.1f} s"
    return (
        moment(each["died_at"]), each["previous_exit"], back, each["continued"], each["suspended"], each["returned"],
        each["by"],
    )  # fmt: skip
