"""`everturn dead`: letters that were given up, and what to do with them; `everturn recoveries`: what was taken up from
lives that ended.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from everturn.cli.options import config_option, home_option, json_option
from everturn.cli.view import View, look_into
from everturn.errors import EverturnError
from everturn.home import Home

HEAD = ("id", "what", "since", "platform", "chat", "who", "why", "words")
WORDS = 60
RECOVERED = ("died", "how", "back after", "continued", "suspended", "returned", "by life")


@click.group
def dead() -> None:
    """Dead letters: replies that could not be delivered, and messages that got no answer.

    A letter stays in the list until somebody sends or runs it again, or drops it.
    """


@dead.command(name="list")
@home_option
@config_option
@json_option
def list_all(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List them, the oldest first."""
    found = asyncio.run(_found(home, config_file))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    from everturn.cli.tables import show_table

    rows = [_reply(each) for each in found["replies"]] + [_message(each) for each in found["messages"]]
    if rows:
        show_table(HEAD, sorted(rows, key=lambda row: str(row[2])))
    else:
        print(f"There are no dead letters in {home.path}.")


@dead.command
@click.argument("letter", metavar="ID")
@home_option
@config_option
def send(letter: str, home: Home, config_file: Path | None) -> None:
    """Send the reply ID again."""
    print(asyncio.run(_act(home, config_file, "reply", "send", letter)))


@dead.command
@click.argument("letter", metavar="ID")
@home_option
@config_option
def run(letter: str, home: Home, config_file: Path | None) -> None:
    """Run the message ID again: it is answered as if it came now."""
    print(asyncio.run(_act(home, config_file, "message", "run", letter)))


@dead.command
@click.argument("letter", metavar="ID")
@home_option
@config_option
def drop(letter: str, home: Home, config_file: Path | None) -> None:
    """Put the reply or the message ID away."""
    print(asyncio.run(_drop(home, config_file, letter)))


@click.command
@home_option
@config_option
@json_option
def recoveries(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the last lives whose work another one took up: when they died, how soon the next was ready, what became of it."""
    found = asyncio.run(_recoveries(home, config_file))
    if as_json:
        print(json.dumps({"recoveries": found}, ensure_ascii=False, indent=2))
        return
    from everturn.cli.tables import show_table

    if found:
        show_table(RECOVERED, [_recovery(each) for each in found])
    else:
        print(f"Nothing was recovered in {home.path} so far.")


async def _found(home: Home, config_file: Path | None) -> dict[str, list[dict[str, Any]]]:
    async with look_into(home, config_file) as view:
        return await _letters(view)


async def _letters(view: View) -> dict[str, list[dict[str, Any]]]:
    return {"replies": await view.dead("replies"), "messages": await view.dead("messages")}


async def _act(home: Home, config_file: Path | None, what: str, action: str, letter: str) -> str:
    async with look_into(home, config_file) as view:
        return await view.act(what, action, _number(letter), uuid4().hex)


async def _drop(home: Home, config_file: Path | None, letter: str) -> str:
    """A notice about a message has the message's number: both go."""
    number = _number(letter)
    async with look_into(home, config_file) as view:
        found = await _letters(view)
        kinds = [("reply", "replies", "reply"), ("message", "messages", "id")]
        here = [what for what, name, key in kinds if any(each[key] == number for each in found[name])]
        if not here:
            raise EverturnError(f"there is no dead letter {number}; `everturn dead list` shows those there are")
        said = [await view.act(what, "drop", number, uuid4().hex) for what in here]
        return "\n".join(dict.fromkeys(said))


async def _recoveries(home: Home, config_file: Path | None) -> list[dict[str, Any]]:
    async with look_into(home, config_file) as view:
        return await view.recoveries()


def _number(letter: str) -> str:
    if not (letter.isascii() and letter.isdecimal() and len(letter) <= 19):
        raise EverturnError(f"{letter[:40]!r} is no id of a letter; `everturn dead list` shows them")
    return letter


def _reply(each: dict[str, Any]) -> tuple[object, ...]:
    return _row(each["reply"], each["kind"], each["ended_at"], each, each["error"])


def _message(each: dict[str, Any]) -> tuple[object, ...]:
    return _row(each["id"], "message", each["ended_at"], each, each["why"])


def _row(number: str, what: str, since: object, each: dict[str, Any], why: object) -> tuple[object, ...]:
    from everturn.cli.tables import moment

    words = " ".join(each["text"].split())[:WORDS]
    return number, what, moment(since), each["platform"], each["chat"], each["who"], why, words


def _recovery(each: dict[str, Any]) -> tuple[object, ...]:
    from everturn.cli.tables import moment

    after = each["back_after_s"]
    most = "at most " if each["last_life"] == "unclean" else ""  # from the last thing it wrote: it died then or later
    back = "-" if after is None else f"{most}{after:.1f} s"
    return (
        moment(each["died_at"]), each["last_life"], back, each["continued"], each["suspended"], each["returned"],
        each["by"],
    )  # fmt: skip
