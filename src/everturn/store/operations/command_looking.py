"""Commands that only look. None of them makes a session or moves a clock."""

from __future__ import annotations

import msgspec

from everturn import __version__
from everturn.decide import command_words, words
from everturn.decide.commands import BY_NAME, canonical, nearest
from everturn.decide.rights import menu
from everturn.model import Usage
from everturn.store.interface import Op, sql
from everturn.store.operations.command_sessions import waiting_messages
from everturn.store.operations.command_values import Asked
from everturn.store.operations.entries import state_columns
from everturn.store.operations.freezing import frozen
from everturn.store.operations.questions import question_of
from everturn.store.operations.spending import last_turn, usage_of_session, usage_of_turn

CHARS_PER_TOKEN = 4


def status(asked: Asked) -> Op[str]:
    """What the key points at, and what is going on there."""
    waiting, question = (yield from waiting_messages(asked.key)), (yield from question_of(asked.entry.turn))
    state, reason, _ = state_columns(asked.entry.state)
    text = words.status(asked.entry.session_id, state, reason, asked.entry.holder is not None, waiting)
    return text + (command_words.open_question(question.tool) if question is not None and question.id else "")


def usage(asked: Asked) -> Op[str]:
    """What the last turn and the session used, from rows alone: the same before and after a restart."""
    session_id = asked.entry.session_id
    if session_id is None:
        return command_words.no_session()
    turn = yield from last_turn(session_id)
    last = (yield from usage_of_turn(turn)) if turn is not None else Usage()
    return command_words.usage(last, (yield from usage_of_session(session_id)))


def context(asked: Asked) -> Op[str]:
    """What the model would be given now, in figures."""
    session_id = asked.entry.session_id
    if session_id is None:
        return command_words.no_session()
    rows = yield sql(
        "SELECT role, count(*), coalesce(sum(length(content)+coalesce(length(calls), 0)), 0) FROM message"
        " WHERE session_id=$1 AND hidden=0 GROUP BY role ORDER BY role",
        session_id,
    )
    text = (yield from frozen(session_id)) or ""
    tokens = -(-sum(int(row[2]) for row in rows) // CHARS_PER_TOKEN)
    counts = {str(row[0]): int(row[1]) for row in rows}
    prompt = -(-len(text) // CHARS_PER_TOKEN)
    return command_words.context(counts, tokens, prompt, tools_in(text), asked.terms.context_tokens)


def tools_in(text: str) -> int | None:
    """How many tools a frozen text names, where it is JSON that says so."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    tools = found.get("tools") if isinstance(found, dict) else None
    return len(tools) if isinstance(tools, list) else None


def help_(asked: Asked) -> Op[str]:
    """What the asker may use, or more about one command."""
    yield from ()
    name = canonical(asked.command.argument.strip())
    if not name:
        return command_words.help_text(menu(asked.terms.rights, asked.source))
    if name in BY_NAME:
        return command_words.help_about(BY_NAME[name])
    return words.unknown_command(name, nearest(name))


def whoami(asked: Asked) -> Op[str]:
    """How we know the asker."""
    yield from ()
    return command_words.whoami(asked.terms.rights, asked.source)


def version(asked: Asked) -> Op[str]:  # noqa: ARG001  one shape for all
    """Which Everturn this is."""
    yield from ()
    return command_words.version(__version__)
