"""Commands people type. A command's effect and its end commit together, so it is applied once wherever the process dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from everturn.decide import command_words, words
from everturn.decide.admission import Standing, Verdict, verdict
from everturn.decide.commands import BY_NAME, Busy, Command, nearest, parse_command
from everturn.decide.rights import may, menu, with_owner
from everturn.model import Event, SessionSource, Suspended
from everturn.store.interface import Op, sql
from everturn.store.operations import (
    backlog,
    command_answers,
    command_choices,
    command_history,
    command_looking,
    command_sessions,
    doubts,
)
from everturn.store.operations.admission import REVOKED, standing
from everturn.store.operations.command_values import Applied, Asked, Done, Terms
from everturn.store.operations.entries import lock_or_make_entry, source_of
from everturn.store.operations.taking_over import ended_by
from everturn.store.operations.telling import Delivery, events_of, fact, owe, report

DOES: Mapping[str, Callable[[Asked], Op[str] | Op[Done]]] = {
    "new": command_sessions.new,
    "resume": command_sessions.resume,
    "sessions": command_sessions.sessions,
    "title": command_sessions.title,
    "branch": command_sessions.branch,
    "stop": command_sessions.stop,
    "retry": command_history.retry,
    "undo": command_history.undo,
    "approve": command_answers.approve,
    "deny": command_answers.deny,
    "answer": backlog.answer,
    "skip": backlog.skip,
    "resend": doubts.resend,
    "steer": command_choices.words_wanted,
    "queue": command_choices.words_wanted,
    "busy": command_choices.busy,
    "model": command_choices.model,
    "reload": command_choices.reload,
    "compress": command_choices.compress,
    "restart": command_choices.restart,
    "usage": command_looking.usage,
    "status": command_looking.status,
    "context": command_looking.context,
    "whoami": command_looking.whoami,
    "help": command_looking.help_,
    "version": command_looking.version,
}
IN_A_SESSION = frozenset(
    {"retry", "undo", "branch", "compress"}
)  # what they change must be what the next message continues
NO_TERMS = Terms()
FAILED = "failed"  # why it ended
END_DEAD = "UPDATE inbox SET state='dead', ended_at=$2, dead_at=$2, why=$3, ended_by=$4 WHERE id=$1"


def apply_command(
    number: int, session_id: str, at: float, delivery: Delivery, terms: Terms = NO_TERMS
) -> Op[Applied | None]:
    """Apply a stored command and answer it; None when somebody else did. `session_id` is made for this run alone."""
    rows = yield sql("SELECT key, body, source, accepted_at, ended_at, ended_by FROM inbox WHERE id=$1/*lock*/", number)
    if not rows or rows[0][4] is not None:
        ours = bool(rows) and rows[0][5] == session_id
        return (yield from _applied_before(number, rows[0][0], rows[0][1])) if ours else None
    key, body, raw, accepted_at, _, _ = rows[0]
    entry = yield from lock_or_make_entry(key, raw, at)
    command = parse_command(body) or Command("help", "")
    source = source_of(raw) or entry.origin or SessionSource(platform="")
    welcome, terms = yield from _terms_for(source, terms)
    if not welcome:
        return (yield from _turned_out(number, key, session_id, at))
    asked = Asked(
        command=command, entry=entry, number=number, session_id=session_id, at=at, source=source, raw_source=raw,
        accepted_at=accepted_at, terms=terms,
    )  # fmt: skip
    done = yield from _apply(asked)
    text, told = done if isinstance(done, Done) else (done, ())
    yield sql("UPDATE inbox SET state='done', ended_at=$2, ended_by=$3 WHERE id=$1", number, at, session_id)
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    yield from owe(number, key, None, "reply", source, text, at, Delivery(by_event=delivery.by_event), 0)
    ended = (yield sql("SELECT id FROM turn WHERE id=$1 AND state='stopped'", entry.turn)) if entry.turn else []
    stopped = entry.turn if ended else None
    facts = [fact("turn", at, turn=str(stopped), state="stopped")] if stopped else []
    facts += told
    facts.append(fact("reply", at, turn=None, id=str(number), text=text, to=source.message_id, command=command.name))
    # The events of a command's end have its number negated: the number itself is that of the event of its arrival.
    events = yield from report(key, entry.event_seq, facts if delivery.by_event else [], -number)
    return (yield from _applied(number, command, key, stopped, events))


def give_up_command(number: int, run: str, at: float, delivery: Delivery) -> Op[Applied | None]:
    """A command that could not be applied becomes a dead letter, and who gave it is told; None when somebody else ended it.
    `run` is made for this run alone.
    """
    rows = yield sql("SELECT key, body, source, ended_at, ended_by FROM inbox WHERE id=$1/*lock*/", number)
    if not rows or rows[0][3] is not None:
        ours = bool(rows) and rows[0][4] == run
        return (
            Applied(key=rows[0][0], stopped=None, events=(yield from events_of(rows[0][0], -number))) if ours else None
        )
    key, body, raw, _, _ = rows[0]
    yield sql(END_DEAD, number, at, FAILED, run)
    entry = yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1 RETURNING event_seq", key)
    source, command = source_of(raw), parse_command(body) or Command("help", "")
    if source is None or not entry:
        return Applied(key=key, stopped=None, events=())
    text = command_words.failed(command.name)
    yield from owe(number, key, None, "reply", source, text, at, Delivery(by_event=delivery.by_event), 0)
    told = fact("reply", at, turn=None, id=str(number), text=text, to=source.message_id, command=command.name)
    events = yield from report(key, entry[0][0], [told] if delivery.by_event else [], -number)
    return Applied(key=key, stopped=None, events=events)


def _terms_for(source: SessionSource, terms: Terms) -> Op[tuple[bool, Terms]]:
    """Whether the author may (still) speak, and their terms: who was let in as an owner is one."""
    admission = terms.admission
    if admission is None or not admission.governs(source.platform):
        return True, terms
    found = yield from standing(source)
    if found is Standing.OWNER:
        terms = replace(terms, rights=with_owner(terms.rights, source))
    return verdict(admission, source, found) is Verdict.ALLOWED, terms


def _turned_out(number: int, key: str, run: str, at: float) -> Op[Applied]:
    """A command (a button's, too) of somebody who may no longer speak does nothing and is not answered."""
    yield sql(END_DEAD, number, at, REVOKED, run)
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return Applied(key=key, stopped=None, events=())


def _applied(number: int, command: Command, key: str, stopped: int | None, events: tuple[Event, ...]) -> Op[Applied]:
    restart = yield from command_choices.asks_for_restart(command, number)
    wakes = yield from command_answers.key_of_question(command)
    return Applied(key=key, stopped=stopped, events=events, restart=restart, wakes=wakes)


def _applied_before(number: int, key: str, body: str) -> Op[Applied]:
    """For an operation that runs twice: the turn its first run stopped wrote the last row of the session it left."""
    stopped = yield from ended_by(key, number)
    command = parse_command(body) or Command("help", "")
    events = yield from events_of(key, -number)
    return (yield from _applied(number, command, key, stopped, events))


def _apply(asked: Asked) -> Op[str | Done]:
    """What the registry says of it comes first: does it exist, may they, can it now?"""
    declared, entry, rights = BY_NAME.get(asked.command.name), asked.entry, asked.terms.rights
    if declared is None:
        return words.unknown_command(asked.command.name, nearest(asked.command.name))
    if not may(rights, asked.source, declared):
        return command_words.denied(declared, rights, menu(rights, asked.source))
    if declared.busy is Busy.REFUSE and entry.turn is not None:
        return command_words.unfinished(declared.name, entry.holder is not None)
    if declared.name in IN_A_SESSION and entry.session_id is None:
        return command_words.no_session()
    if declared.name in IN_A_SESSION and (entry.expired or isinstance(entry.state, Suspended)):
        return command_words.gone(isinstance(entry.state, Suspended))
    return (yield from DOES[declared.name](asked))
