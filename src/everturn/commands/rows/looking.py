"""Commands that only read. None of them opens a session or changes a time."""

from __future__ import annotations

import msgspec

from everturn import __version__
from everturn.commands.rows.sessions import queued_messages
from everturn.commands.rows.values import CommandCall
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import BY_NAME, canonical, nearest
from everturn.model import Usage
from everturn.people.rules.rights import menu
from everturn.sessions.rows.entries import state_columns
from everturn.sessions.rows.freezing import frozen
from everturn.sessions.rules import notices
from everturn.store.interface import Op, sql
from everturn.turns.rows.approval_requests import request_of
from everturn.turns.rows.spending import last_turn, usage_of_session, usage_of_turn

CHARS_PER_TOKEN = 4


def status(call: CommandCall) -> Op[str]:
    """/status: the key's session, its state, its queue and its open approval request."""
    waiting, request = (yield from queued_messages(call.key)), (yield from request_of(call.entry.turn))
    state, reason, _ = state_columns(call.entry.state)
    text = notices.status(call.entry.session_id, state, reason, call.entry.holder is not None, waiting)
    return text + (command_texts.open_request(request.tool) if request is not None and request.id else "")


def usage(call: CommandCall) -> Op[str]:
    """/usage: what the last turn and the session used, from rows alone: the same before and after a restart."""
    session_id = call.entry.session_id
    if session_id is None:
        return command_texts.no_session()
    turn = yield from last_turn(session_id)
    last = (yield from usage_of_turn(turn)) if turn is not None else Usage()
    return command_texts.usage(last, (yield from usage_of_session(session_id)))


def context(call: CommandCall) -> Op[str]:
    """/context: how many messages and tokens the model would be given now."""
    session_id = call.entry.session_id
    if session_id is None:
        return command_texts.no_session()
    rows = yield sql(
        "SELECT role, count(*), coalesce(sum(length(content)+coalesce(length(calls), 0)), 0) FROM message"
        " WHERE session_id=$1 AND hidden=0 GROUP BY role ORDER BY role",
        session_id,
    )
    text = (yield from frozen(session_id)) or ""
    tokens = -(-sum(int(row[2]) for row in rows) // CHARS_PER_TOKEN)
    counts = {str(row[0]): int(row[1]) for row in rows}
    prompt = -(-len(text) // CHARS_PER_TOKEN)
    return command_texts.context(counts, tokens, prompt, tools_in(text), call.terms.context_tokens)


def tools_in(text: str) -> int | None:
    """How many tools a frozen text names, where it is JSON that says so."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    tools = found.get("tools") if isinstance(found, dict) else None
    return len(tools) if isinstance(tools, list) else None


def help_(call: CommandCall) -> Op[str]:
    """/help: the commands that the sender may use, or more about one command."""
    yield from ()
    name = canonical(call.command.argument.strip())
    if not name:
        return command_texts.help_text(menu(call.terms.rights, call.source))
    if name in BY_NAME:
        return command_texts.help_about(BY_NAME[name])
    return notices.unknown_command(name, nearest(name))


def whoami(call: CommandCall) -> Op[str]:
    """/whoami: how the gateway knows the sender."""
    yield from ()
    return command_texts.whoami(call.terms.rights, call.source)


def version(call: CommandCall) -> Op[str]:  # noqa: ARG001  one shape for all
    """/version: the version of Everturn."""
    yield from ()
    return command_texts.version(__version__)
