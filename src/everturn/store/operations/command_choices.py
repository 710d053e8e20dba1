"""Commands that choose something for a conversation, or ask something of the gateway itself."""

from __future__ import annotations

import re
from difflib import get_close_matches

from everturn.decide import command_words, words
from everturn.decide.busy import BusyMode
from everturn.decide.commands import Command
from everturn.decide.providers import provider_of
from everturn.model import Event
from everturn.store.interface import Op, sql
from everturn.store.operations.command_sessions import session_to_set
from everturn.store.operations.command_values import Asked
from everturn.store.operations.compaction import want_compaction
from everturn.store.operations.entries import lock_entry, source_of
from everturn.store.operations.freezing import thaw
from everturn.store.operations.joining import busy_chosen, choose_busy
from everturn.store.operations.telling import Delivery, events_of, report, tell

MODEL = re.compile(r"[\w.:/@+-]{1,120}")
OF_A_PROVIDER = re.compile(r"[^:]+:.+")


def model(asked: Asked) -> Op[str]:
    """Show or change the session's model."""
    name, known, providers = asked.command.argument.strip(), asked.terms.models, asked.terms.providers
    if not name:
        return command_words.model_is(asked.entry.model, known)
    chosen = None if name.lower() == "default" else name
    if chosen is not None and not (chosen in known if known else MODEL.fullmatch(chosen)):
        return command_words.no_such_model(chosen, known, next(iter(get_close_matches(chosen, known, n=1)), None))
    if (
        chosen is not None
        and not known
        and providers
        and not (OF_A_PROVIDER.fullmatch(chosen) and provider_of(chosen) in providers)
    ):
        return command_words.no_such_provider(chosen, providers)
    session_id = yield from session_to_set(asked)
    yield sql("UPDATE session SET model=$2 WHERE session_id=$1", session_id, chosen)
    yield sql("UPDATE entry SET model=$2 WHERE key=$1", asked.key, chosen)
    return command_words.model_chosen(chosen, known=chosen is None or chosen in known)


def busy(asked: Asked) -> Op[str]:
    """Show or change what a message does that arrives while a turn runs."""
    mode, configured = asked.command.argument.strip().lower(), asked.terms.busy
    if not mode:
        return command_words.busy_is((yield from busy_chosen(asked.key)), configured)
    if mode != "default" and mode not in set(BusyMode):
        return command_words.no_such_mode(mode)
    yield from choose_busy(asked.key, None if mode == "default" else mode)
    return command_words.busy_chosen(configured if mode == "default" else mode)


def words_wanted(asked: Asked) -> Op[str]:
    """/steer and /queue without words; with words they are messages."""
    yield from ()
    return command_words.words_wanted(asked.command.name)


def reload(asked: Asked) -> Op[str]:
    """Let the next turn freeze the instructions and tools anew."""
    if asked.entry.session_id is None:
        return command_words.no_session()
    yield from thaw(asked.entry.session_id)
    return command_words.reloaded()


def compress(asked: Asked) -> Op[str]:
    """Let the next model call be preceded by a summary."""
    if asked.entry.session_id is None or not (yield from want_compaction(asked.entry.session_id)):
        return command_words.no_session()
    return command_words.compressing(asked.entry.holder is not None)


def restart(asked: Asked) -> Op[str]:
    """Keep who asked, so that they are told once when we are back. A life that began after the question is the answer."""
    rows = yield sql("SELECT started_at FROM instance WHERE number=$1", asked.terms.instance)
    if rows and rows[0][0] > asked.accepted_at:
        return words.back()
    yield sql(
        "INSERT INTO restart (id, instance, key, source, asked_at) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (id) DO NOTHING",
        asked.number,
        asked.terms.instance,
        asked.key,
        asked.raw_source,
        asked.at,
    )
    return command_words.restarting()


def asks_for_restart(command: Command, number: int) -> Op[bool]:
    """Whether this command asked its instance to restart: it may have been denied, or come too late."""
    return command.name == "restart" and bool((yield sql("SELECT 1 FROM restart WHERE id=$1", number)))


def restarts_to_tell(but: int) -> Op[list[tuple[int, str]]]:
    """Who asked a life for a restart that has ended since, and was not told: the question's id and its key."""
    rows = yield sql(
        "SELECT r.id, r.key FROM restart r JOIN instance i ON i.number=r.instance"
        " WHERE r.told_at IS NULL AND i.ended_at IS NOT NULL AND r.instance<>$1 ORDER BY r.id",
        but,
    )
    return [(row[0], row[1]) for row in rows]


def tell_back(number: int, key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Say once that we are back."""
    entry = yield from lock_entry(key)
    told = yield sql("UPDATE restart SET told_at=$2 WHERE id=$1 AND told_at IS NULL RETURNING source", number, at)
    if entry is None or not told:
        return (yield from events_of(key, notice))  # what this operation told when it ran before
    source = source_of(told[0][0]) or entry.origin
    facts = yield from tell(notice, key, source, words.back(), "restarted", at, delivery)
    return (yield from report(key, entry.event_seq, facts, notice))
