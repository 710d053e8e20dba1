"""Commands that set an option of a conversation (/model, /busy, /reload, /compress) or restart the gateway."""

from __future__ import annotations

import re
from difflib import get_close_matches

from everturn.agent.rules.providers import provider_of
from everturn.commands.rows.sessions import session_to_set
from everturn.commands.rows.values import CommandCall
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import Command
from everturn.inbox.rows.joining import busy_chosen, choose_busy
from everturn.inbox.rules.busy import BusyMode
from everturn.model import Event
from everturn.outbox.rows.notices import events_of, queue_notice, report
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.compaction import want_compaction
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.sessions.rows.freezing import thaw
from everturn.sessions.rules import notices
from everturn.store.interface import Op, sql

MODEL = re.compile(r"[\w.:/@+-]{1,120}")
OF_A_PROVIDER = re.compile(r"[^:]+:.+")


def model(call: CommandCall) -> Op[str]:
    """Show or change the session's model."""
    name, known, providers = call.command.argument.strip(), call.terms.models, call.terms.providers
    if not name:
        return command_texts.model_is(call.entry.model, known)
    chosen = None if name.lower() == "default" else name
    if chosen is not None and not (chosen in known if known else MODEL.fullmatch(chosen)):
        return command_texts.no_such_model(chosen, known, next(iter(get_close_matches(chosen, known, n=1)), None))
    if (
        chosen is not None
        and not known
        and providers
        and not (OF_A_PROVIDER.fullmatch(chosen) and provider_of(chosen) in providers)
    ):
        return command_texts.no_such_provider(chosen, providers)
    session_id = yield from session_to_set(call)
    yield sql("UPDATE session SET model=$2 WHERE session_id=$1", session_id, chosen)
    yield sql("UPDATE entry SET model=$2 WHERE key=$1", call.key, chosen)
    return command_texts.model_chosen(chosen, known=chosen is None or chosen in known)


def busy(call: CommandCall) -> Op[str]:
    """Show or change what a message does that arrives while a turn runs."""
    mode, configured = call.command.argument.strip().lower(), call.terms.busy
    if not mode:
        return command_texts.busy_is((yield from busy_chosen(call.key)), configured)
    if mode != "default" and mode not in set(BusyMode):
        return command_texts.no_such_mode(mode)
    yield from choose_busy(call.key, None if mode == "default" else mode)
    return command_texts.busy_chosen(configured if mode == "default" else mode)


def text_wanted(call: CommandCall) -> Op[str]:
    """/steer and /queue without a text; with a text they are messages."""
    yield from ()
    return command_texts.text_wanted(call.command.name)


def reload(call: CommandCall) -> Op[str]:
    """Let the next turn freeze the instructions and tools anew."""
    if call.entry.session_id is None:
        return command_texts.no_session()
    yield from thaw(call.entry.session_id)
    return command_texts.reloaded()


def compress(call: CommandCall) -> Op[str]:
    """Request a compaction before the next model call."""
    if call.entry.session_id is None or not (yield from want_compaction(call.entry.session_id)):
        return command_texts.no_session()
    return command_texts.compressing(call.entry.holder is not None)


def restart(call: CommandCall) -> Op[str]:
    """Store the restart request: its chat gets one notice when it is done. A process started after it is that restart."""
    rows = yield sql("SELECT started_at FROM instance WHERE number=$1", call.terms.instance)
    if rows and rows[0][0] > call.accepted_at:
        return notices.back()
    yield sql(
        "INSERT INTO restart (id, instance, key, source, asked_at) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (id) DO NOTHING",
        call.number,
        call.terms.instance,
        call.key,
        call.raw_source,
        call.at,
    )
    return command_texts.restarting()


def asks_for_restart(command: Command, number: int) -> Op[bool]:
    """Whether this command asked its instance to restart: it may have been denied, or come too late."""
    return command.name == "restart" and bool((yield sql("SELECT 1 FROM restart WHERE id=$1", number)))


def restarts_to_notify(but: int) -> Op[list[tuple[int, str]]]:
    """Restart requests to an instance that has ended since, without a notice yet: the request's id and its key."""
    rows = yield sql(
        "SELECT r.id, r.key FROM restart r JOIN instance i ON i.number=r.instance"
        " WHERE r.notice_at IS NULL AND i.ended_at IS NOT NULL AND r.instance<>$1 ORDER BY r.id",
        but,
    )
    return [(row[0], row[1]) for row in rows]


def notify_restarted(number: int, key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Queue the notice that a restart is done, once."""
    entry = yield from lock_entry(key)
    told = yield sql("UPDATE restart SET notice_at=$2 WHERE id=$1 AND notice_at IS NULL RETURNING source", number, at)
    if entry is None or not told:
        return (yield from events_of(key, notice))  # what this operation told when it ran before
    source = source_of(told[0][0]) or entry.origin
    facts = yield from queue_notice(notice, key, source, notices.back(), "restarted", at, delivery)
    return (yield from report(key, entry.event_seq, facts, notice))
