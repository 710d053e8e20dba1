"""`everturn sessions`: list the current sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from everturn.cli.looking.options import config_option, home_option, json_option
from everturn.cli.looking.view import look_into
from everturn.home.folder import Home
from everturn.operator.rules.operator_texts import session_text

HEAD = ("key", "session", "state", "messages", "running", "unclean ends", "last active")


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
    from everturn.cli.looking.tables import show_table

    async with look_into(home, config_file) as view:
        rows = [_row(session) async for page in view.sessions() for session in page]
    if rows:
        show_table(HEAD, rows)
    else:
        print(f"There are no sessions in {home.path}.")


def _row(session: dict[str, Any]) -> tuple[object, ...]:
    from everturn.cli.looking.tables import moment

    ends = session["unclean_ends"]
    stands = session_text(session["state"], session["reason"], ends, has_turn=session["turn"] is not None)
    return (
        session["key"], session["session_id"], stands, session["messages"], session["running"], ends,
        moment(session["active_at"]),
    )  # fmt: skip
