"""Commands people type. A command's effect and its end commit together, so it is applied once wherever the process dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from everturn.commands.rows import approvals, choices, history, looking, sessions
from everturn.commands.rows.values import Applied, CommandCall, CommandResult, Terms
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import BY_NAME, Busy, Command, nearest, parse_command
from everturn.inbox.rows import backlog
from everturn.inbox.rows.taking_over import ended_by
from everturn.model import Event, SessionSource, Suspended
from everturn.outbox.rows import unknown
from everturn.outbox.rows.notices import events_of, fact, queue_reply, report
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.admission import REVOKED, standing
from everturn.people.rules.admission import AccessVerdict, Standing, verdict
from everturn.people.rules.rights import may, menu, with_owner
from everturn.sessions.rows.entries import lock_or_make_entry, source_of
from everturn.sessions.rules import notices
from everturn.store.interface import Op, sql

DOES: Mapping[str, Callable[[CommandCall], Op[str] | Op[CommandResult]]] = {
    "new": sessions.new,
    "resume": sessions.resume,
    "sessions": sessions.sessions,
    "title": sessions.title,
    "branch": sessions.branch,
    "stop": sessions.stop,
    "retry": history.retry,
    "undo": history.undo,
    "approve": approvals.approve,
    "deny": approvals.deny,
    "answer": backlog.answer,
    "skip": backlog.skip,
    "resend": unknown.resend,
    "steer": choices.text_wanted,
    "queue": choices.text_wanted,
    "busy": choices.busy,
    "model": choices.model,
    "reload": choices.reload,
    "compress": choices.compress,
    "restart": choices.restart,
    "usage": looking.usage,
    "status": looking.status,
    "context": looking.context,
    "whoami": looking.whoami,
    "help": looking.help_,
    "version": looking.version,
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
    allowed, terms = yield from _terms_for(source, terms)
    if not allowed:
        return (yield from _end_revoked(number, key, session_id, at))
    call = CommandCall(
        command=command, entry=entry, number=number, session_id=session_id, at=at, source=source, raw_source=raw,
        accepted_at=accepted_at, terms=terms,
    )  # fmt: skip
    done = yield from _apply(call)
    text, told = done if isinstance(done, CommandResult) else (done, ())
    yield sql("UPDATE inbox SET state='done', ended_at=$2, ended_by=$3 WHERE id=$1", number, at, session_id)
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    yield from queue_reply(number, key, None, "reply", source, text, at, Delivery(by_event=delivery.by_event), 0)
    ended = (yield sql("SELECT id FROM turn WHERE id=$1 AND state='stopped'", entry.turn)) if entry.turn else []
    stopped = entry.turn if ended else None
    facts = [fact("turn", at, turn=str(stopped), state="stopped")] if stopped else []
    facts += told
    facts.append(fact("reply", at, turn=None, id=str(number), text=text, to=source.message_id, command=command.name))
    # The events of a command's end have its number negated: the number itself is that of the event of its arrival.
    events = yield from report(key, entry.event_seq, facts if delivery.by_event else [], -number)
    return (yield from _applied(number, command, key, stopped, events))


def fail_command(number: int, run: str, at: float, delivery: Delivery) -> Op[Applied | None]:
    """End a command that could not be applied as a dead letter, with a reply to its sender; None if somebody else ended it.
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
    text = command_texts.failed(command.name)
    yield from queue_reply(number, key, None, "reply", source, text, at, Delivery(by_event=delivery.by_event), 0)
    told = fact("reply", at, turn=None, id=str(number), text=text, to=source.message_id, command=command.name)
    events = yield from report(key, entry[0][0], [told] if delivery.by_event else [], -number)
    return Applied(key=key, stopped=None, events=events)


def _terms_for(source: SessionSource, terms: Terms) -> Op[tuple[bool, Terms]]:
    """Whether the author may (still) speak, and their terms: somebody approved as an owner is one."""
    admission = terms.admission
    if admission is None or not admission.governs(source.platform):
        return True, terms
    found = yield from standing(source)
    if found is Standing.OWNER:
        terms = replace(terms, rights=with_owner(terms.rights, source))
    return verdict(admission, source, found) is AccessVerdict.ALLOWED, terms


def _end_revoked(number: int, key: str, run: str, at: float) -> Op[Applied]:
    """End a command (a button's, too) of somebody who may no longer speak: it does nothing and is not answered."""
    yield sql(END_DEAD, number, at, REVOKED, run)
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return Applied(key=key, stopped=None, events=())


def _applied(number: int, command: Command, key: str, stopped: int | None, events: tuple[Event, ...]) -> Op[Applied]:
    restart = yield from choices.asks_for_restart(command, number)
    wakes = yield from approvals.key_of_request(command)
    return Applied(key=key, stopped=stopped, events=events, restart=restart, wakes=wakes)


def _applied_before(number: int, key: str, body: str) -> Op[Applied]:
    """For an operation that runs twice: the turn its first run stopped wrote the last row of the session it left."""
    stopped = yield from ended_by(key, number)
    command = parse_command(body) or Command("help", "")
    events = yield from events_of(key, -number)
    return (yield from _applied(number, command, key, stopped, events))


def _apply(call: CommandCall) -> Op[str | CommandResult]:
    """Apply a command if the registry has it, its sender may use it and the conversation's state allows it."""
    declared, entry, rights = BY_NAME.get(call.command.name), call.entry, call.terms.rights
    if declared is None:
        return notices.unknown_command(call.command.name, nearest(call.command.name))
    if not may(rights, call.source, declared):
        return command_texts.denied(declared, rights, menu(rights, call.source))
    if declared.busy is Busy.REFUSE and entry.turn is not None:
        return command_texts.unfinished(declared.name, entry.holder is not None)
    if declared.name in IN_A_SESSION and entry.session_id is None:
        return command_texts.no_session()
    if declared.name in IN_A_SESSION and (entry.expired or isinstance(entry.state, Suspended)):
        return command_texts.gone(isinstance(entry.state, Suspended))
    return (yield from DOES[declared.name](call))
