"""Commands that show what a home holds: its status, sessions, chats, timelines, dead letters, recoveries and settings.

The chats' aliases and what becomes of a dead letter are changed here, too: beside the list that shows them.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from everturn import __version__
from everturn.cli import texts
from everturn.cli.shared import config_option, home_option, json_option, moment, print_json, printable, say, show_table
from everturn.cli.view import View, look, look_into
from everturn.errors import EverturnError
from everturn.home.folder import Home
from everturn.operator.rules.operator_texts import session_text
from everturn.operator.rules.timeline import timeline
from everturn.platform.rules import Reach, reach_text
from everturn.settings.config import Loaded, read_config
from everturn.settings.config import shown as shown_setting

TEXT_CHARS = 60

Json = dict[str, Any]


@click.command
@home_option
@config_option
@json_option
def status(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Show whether the gateway runs, how its previous process ended, and how much work is open."""
    found = look(home, config_file, lambda view: view.status())
    if as_json:
        print_json(found)
        return
    running = found.pop("running")
    print(texts.gateway_runs(home.path, found.pop("pid"), found.pop("url")) if running else texts.no_gateway(home.path))
    print()
    found.pop("home")
    platforms = found.pop("platforms", [])
    show_table(("", ""), [*_lines(found), *_platforms(platforms)])


def _platforms(platforms: list[Json]) -> Iterator[tuple[str, object]]:
    """The state of each platform that the gateway reads, and since when it is not read."""
    for each in platforms:
        if each["state"] != Reach.OPEN:
            since = moment(each["since"]) if each["since"] is not None else ""
            yield f"{each['name']} {each['account']}".strip(), reach_text(each["state"], each["trouble"], since)


def _lines(found: Json, above: str = "") -> Iterator[tuple[str, object]]:
    """Nested values as lines: `open turns running`, 3; `previous exit`, unclean."""
    for name, value in found.items():
        text = f"{above} {name}".strip().replace("_", " ").removesuffix(" ended")
        if isinstance(value, dict):
            yield from _lines(value, text) if value else [(text, texts.NONE_OPEN)]
        else:
            shown = texts.CRASH_LOOP if name == "crash_loop" and value else value
            yield text, moment(value) if name.endswith("_at") else shown


@click.command
@home_option
@config_option
@json_option
def sessions(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the current sessions, ordered by key.

    A session is active, interrupted (resume_pending: its task resumes, or its next message continues it) or suspended
    (until /resume).
    """
    asyncio.run(_print_sessions(home, config_file) if as_json else _show_sessions(home, config_file))


async def _print_sessions(home: Home, config_file: Path | None) -> None:
    """Print one JSON array, page by page, so that a large home needs little memory."""
    separator = ""
    async with look_into(home, config_file) as view:
        print("[", end="")
        async for page in view.sessions():
            for session in page:
                print(separator, json.dumps(session, ensure_ascii=False), sep="\n", end="")
                separator = ","
    print("\n]")


async def _show_sessions(home: Home, config_file: Path | None) -> None:
    async with look_into(home, config_file) as view:
        rows = [_session(each) async for page in view.sessions() for each in page]
    if rows:
        show_table(texts.SESSION_COLUMNS, rows)
    else:
        print(texts.no_sessions(home.path))


def _session(each: Json) -> tuple[object, ...]:
    ends = each["unclean_ends"]
    stands = session_text(each["state"], each["reason"], ends, has_turn=each["turn"] is not None)
    return (
        each["key"], each["session_id"], stands, each["messages"], each["running"], ends, moment(each["active_at"]),
    )  # fmt: skip


@click.group
def channels() -> None:
    """List the chats that the gateway knows, and give them aliases."""


@channels.command(name="list")
@home_option
@config_option
@json_option
def list_channels(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the chats that the gateway knows from platforms and conversations, the last seen first."""
    found = look(home, config_file, lambda view: view.channels())
    if as_json:
        print_json(found)
        return
    rows = [
        (each["label"], each["address"], each["type"], ", ".join(each["aliases"]), moment(each["seen_at"]))
        for each in found["channels"]
    ]
    seen = {each["address"] for each in found["channels"]}
    rows += [
        (name, address, texts.NOTHING, name, texts.NOTHING)
        for name, address in found["aliases"].items()
        if address not in seen
    ]
    if rows:
        show_table(texts.CHANNEL_COLUMNS, rows)
    else:
        print(texts.NO_CHANNELS)


@channels.command
@click.argument("name")
@click.argument("address", metavar="PLATFORM:CHAT[:THREAD]")
@home_option
@config_option
@json_option
def alias(name: str, address: str, home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Give a chat the alias NAME, also a chat that was never seen. An alias that exists is moved to the new chat."""
    done = look(home, config_file, lambda view: view.alias(name, address))
    print(json.dumps(done, ensure_ascii=False) if as_json else texts.is_alias(done["alias"], done["address"]))


@channels.command
@click.argument("name")
@home_option
@config_option
@json_option
def unalias(name: str, home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Remove the alias NAME."""
    done = look(home, config_file, lambda view: view.unalias(name))
    print(json.dumps(done, ensure_ascii=False) if as_json else texts.no_longer_alias(done["unaliased"]))


@click.command
@click.argument("message_id", metavar="MESSAGE-ID")
@home_option
@config_option
@json_option
def explain(message_id: str, home: Home, config_file: Path | None, as_json: bool) -> int:  # noqa: FBT001
    """Show the timeline of one message, with times and reasons.

    MESSAGE-ID is the id that its sender or platform gave it. If several chats used the same id, all timelines are shown.
    """
    timelines = look(home, config_file, lambda view: view.explain(message_id))
    if as_json:
        print_json(timelines)
    for number, message in enumerate([] if as_json else timelines):
        print("" if number == 0 else "\n", texts.timeline_head(printable(message["id"]), message["key"]), sep="")
        rows = [(texts.NOW if at is None else moment(at, exact=True), text) for at, text in timeline(message)]
        show_table(("", ""), rows)
    if not timelines:
        say(texts.no_such_message(message_id, home.path))
    return 0 if timelines else 1


@click.group
def dead() -> None:
    """Dead letters: replies that could not be delivered, and messages that got no answer.

    A dead letter stays in the list until somebody sends it or runs it again, or drops it.
    """


@dead.command(name="list")
@home_option
@config_option
@json_option
def list_dead(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the dead letters, the oldest first."""
    found = look(home, config_file, _dead_letters)
    if as_json:
        print_json(found)
        return
    rows = [_dead_letter(each, each["reply"], each["kind"], each["error"]) for each in found["replies"]]
    rows += [_dead_letter(each, each["id"], texts.DEAD_MESSAGE, each["why"]) for each in found["messages"]]
    if rows:
        show_table(texts.DEAD_COLUMNS, sorted(rows, key=lambda row: str(row[2])))
    else:
        print(texts.no_dead_letters(home.path))


def _dead_letter(each: Json, number: str, kind: str, why: object) -> tuple[object, ...]:
    text = " ".join(each["text"].split())[:TEXT_CHARS]
    return number, kind, moment(each["ended_at"]), each["platform"], each["chat"], each["sender"], why, text


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def send(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Send the reply ID again."""
    number = _number(dead_id)
    print(look(home, config_file, lambda view: view.act("reply", "send", number, uuid4().hex)))


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def run(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Run the message ID again: the agent answers it as if it arrived now."""
    number = _number(dead_id)
    print(look(home, config_file, lambda view: view.act("message", "run", number, uuid4().hex)))


@dead.command
@click.argument("dead_id", metavar="ID")
@home_option
@config_option
def drop(dead_id: str, home: Home, config_file: Path | None) -> None:
    """Drop the reply or the message ID: it is not sent or run again."""
    number = _number(dead_id)
    print(look(home, config_file, lambda view: _drop(view, number)))


async def _drop(view: View, number: str) -> str:
    """Drop a dead letter. A notice about a message has the message's id: both are dropped."""
    found = await _dead_letters(view)
    kinds = [("reply", "replies", "reply"), ("message", "messages", "id")]
    here = [what for what, name, key in kinds if any(each[key] == number for each in found[name])]
    if not here:
        raise EverturnError(texts.no_dead_letter(number))
    said = [await view.act(what, "drop", number, uuid4().hex) for what in here]
    return "\n".join(dict.fromkeys(said))


async def _dead_letters(view: View) -> dict[str, list[Json]]:
    return {"replies": await view.dead("replies"), "messages": await view.dead("messages")}


def _number(dead_id: str) -> str:
    if not (dead_id.isascii() and dead_id.isdecimal() and len(dead_id) <= 19):
        raise EverturnError(texts.not_a_dead_id(dead_id[:40]))
    return dead_id


@click.command
@home_option
@config_option
@json_option
def recoveries(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the last recoveries: when a process ended, how soon the next was ready, and what became of its work."""
    found = look(home, config_file, lambda view: view.recoveries())
    if as_json:
        print_json({"recoveries": found})
    elif found:
        show_table(texts.RECOVERY_COLUMNS, [_recovery(each) for each in found])
    else:
        print(texts.no_recoveries(home.path))


def _recovery(each: Json) -> tuple[object, ...]:
    ready = texts.ready_after(each["back_after_s"], each["previous_exit"])
    return (
        moment(each["died_at"]), each["previous_exit"], ready, each["continued"], each["suspended"], each["returned"],
        each["by"],
    )  # fmt: skip


@click.group
def config() -> None:
    """Show the settings."""


@config.command
@home_option
@config_option
@json_option
@click.option("--platform", metavar="NAME", help="Show only how answers look there, and which table sets it.")
@click.option("--chat", metavar="ID", help="The same for one chat of that platform.")
def show(home: Home, config_file: Path | None, as_json: bool, platform: str | None, chat: str | None) -> None:  # noqa: FBT001
    """Print every setting in force and where it came from; passwords are hidden.

    The environment overrides the file, the file overrides the default. Options of `everturn run` override all of them. With
    --platform, show how answers look there: the chat's table overrides the platform's, which overrides the general one.
    """
    loaded = read_config(home.path, config_file, os.environ, {})
    if chat is not None and platform is None:
        raise click.UsageError(texts.CHAT_NEEDS_PLATFORM)
    known = loaded.config.platforms.by_name()
    if platform is not None and platform not in known:
        raise click.UsageError(texts.unknown_platform(platform, list(known)))
    for warning in loaded.warnings:
        say(warning)
    entries = list(loaded.entries_in(platform, chat) if platform else loaded.entries())
    if as_json:
        print_json(_settings(entries, loaded, home))
        return
    print(texts.settings_head(home.path, loaded.file))
    show_table(texts.SETTING_COLUMNS, [(key, shown_setting(value), origin) for key, value, origin in entries])


def _settings(entries: Sequence[tuple[str, object, str]], loaded: Loaded, home: Home) -> Json:
    """The settings for programs: each with its value, and where that came from."""
    settings = {key: {"value": value, "origin": origin} for key, value, origin in entries}
    return {"home": str(home.path), "file": str(loaded.file) if loaded.file else None, "settings": settings}


@click.command
@home_option
def version(home: Home) -> None:  # noqa: ARG001  every command takes it
    """Print the version of this program."""
    print(f"everturn {__version__}")
