"""Rows of commands: which operation each command is, and those that show or choose something."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

import msgspec
from msgspec.structs import replace

from everturn import __version__
from everturn.agent.rules import provider_of
from everturn.commands.rows import sessions
from everturn.commands.rows.sessions import queued_messages, session_to_set
from everturn.commands.rows.values import Applied, CommandCall, CommandResult, Terms
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import BY_NAME, Busy, Command, canonical, nearest, number_in, parse_command
from everturn.inbox.rows import backlog
from everturn.inbox.rows.backlog import ended_by
from everturn.inbox.rows.steering import busy_chosen, choose_busy
from everturn.inbox.rules import BusyMode
from everturn.model import INBOX_MOVES, Event, SessionSource, Suspended, Usage, has_not_ended
from everturn.outbox.rows.outbox import DELIVERY_REQUEST, MARK_SENT, SEND_AGAIN
from everturn.outbox.rows.replies import events_of, fact, queue_notice, queue_reply, report, stored_source
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.access import REVOKED, standing
from everturn.people.rules.access import AccessVerdict, Standing, verdict
from everturn.people.rules.rights import may, menu, with_owner
from everturn.sessions.rows.compaction import frozen, thaw, want_compaction
from everturn.sessions.rows.entries import lock_entry, lock_or_make_entry, source_of, state_columns
from everturn.sessions.rules import notices
from everturn.store.interface import Op, sql
from everturn.turns.rows.approval_requests import request_of
from everturn.turns.rows.approvals import ApprovalAnswer, answer_request
from everturn.turns.rows.spending import last_turn, usage_of_session, usage_of_turn
from everturn.turns.rules.approvals import ApprovalScope, approver_of

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


# Commands that only read. None of them opens a session or changes a time.


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


# /approve and /deny: commands that answer an approval request.


ANSWERS = frozenset({"approve", "deny"})


def approve(call: CommandCall) -> Op[CommandResult]:
    """Approve a tool call: once, for the session, or always."""
    number, rest = split_answer(call.command.argument)
    scope = rest.strip().lower() or ApprovalScope.ONCE
    if scope not in set(ApprovalScope):
        return CommandResult(command_texts.approve_how())
    return (yield from _answer(call, number, allow=True, scope=ApprovalScope(scope)))


def deny(call: CommandCall) -> Op[CommandResult]:
    """Deny a tool call, with a reason."""
    number, rest = split_answer(call.command.argument)
    return (yield from _answer(call, number, allow=False, text=rest))


def _answer(
    call: CommandCall, number: int | None, *, allow: bool, scope: ApprovalScope = ApprovalScope.ONCE, text: str = ""
) -> Op[CommandResult]:
    answer = ApprovalAnswer(
        allow=allow, at=call.at, by=approver_of(call.source), id=number, scope=scope, text=text,
        approvers=call.terms.approvers,
    )  # fmt: skip
    answered, facts = yield from answer_request(call.entry, answer)
    return CommandResult(answered.text, tuple(facts))


def split_answer(argument: str) -> tuple[int | None, str]:
    """The number of the approval request, if one is named, and the rest."""
    first, _, rest = argument.strip().partition(" ")
    number = number_in(first)
    return (None, argument.strip()) if number is None else (number, rest)


def key_of_request(command: Command) -> Op[str | None]:
    """The key whose turn goes on after an answer from another chat."""
    number, _ = split_answer(command.argument) if command.name in ANSWERS else (None, "")
    if number is None:
        return None
    rows = yield sql("SELECT key FROM approval WHERE id=$1", number)
    return str(rows[0][0]) if rows else None


# Replies with unknown delivery, where the policy is to ask: their chat gets one delivery request, and answers it.


UNKNOWN = "SELECT id, platform, source, asked_at FROM outbox WHERE key=$1 AND ended_at IS NULL AND state='unknown' ORDER BY id/*lock*/"
# A request counts as left unanswered only if it was sent that long ago.
LEFT = (
    "SELECT id FROM outbox WHERE ended_at IS NULL AND state='unknown' AND asked_at<$1 AND EXISTS (SELECT 1 FROM outbox q"
    " WHERE q.turn=outbox.id AND q.kind='delivery_request' AND q.state='sent' AND q.created_at>=outbox.asked_at AND q.ended_at<$1)"
    " ORDER BY id LIMIT 500/*lock*/"
)


def ask_about_delivery(key: str, number: int, at: float) -> Op[bool]:
    """Queue a delivery request for the chat's oldest unknown reply without one; False when there is none."""
    if (yield sql("SELECT 1 FROM outbox WHERE id=$1", number)):
        return True  # this operation ran before
    rows = [row for row in (yield sql(UNKNOWN, key)) if row[3] is None]
    if not rows:
        return False
    reply, platform, source, _ = rows[0]
    yield sql("UPDATE outbox SET asked_at=$2 WHERE id=$1", reply, at)
    to, text = stored_source(source, platform), outbox_texts.request(reply)
    yield from queue_reply(number, key, reply, DELIVERY_REQUEST, to, text, at, Delivery(by_event=False), 0)
    return True


def expire_unknown_deliveries(before: float, at: float) -> Op[int]:
    """Mark as sent the replies whose delivery request was left unanswered: the request says so. Returns how many."""
    rows = yield sql(LEFT, before)
    for (reply,) in rows:
        yield sql(MARK_SENT, reply, at)
    return len(rows)


def resend(asked: CommandCall) -> Op[str]:
    """/resend: send a reply of this chat again that may not have arrived, or leave it."""
    named, arrived = outbox_texts.answer_of(asked.command.argument)
    rows = [row[0] for row in (yield sql(UNKNOWN, asked.key)) if named in {None, row[0]}]
    if not rows:
        return outbox_texts.NOT_OPEN if named else outbox_texts.NOTHING
    yield sql(MARK_SENT if arrived else SEND_AGAIN, rows[0], asked.at)
    return outbox_texts.LEFT if arrived else outbox_texts.SENT_AGAIN


# Commands people type. A command's effect and its end commit together, so it is applied once wherever the process
# dies.


DOES: Mapping[str, Callable[[CommandCall], Op[str] | Op[CommandResult]]] = {
    "new": sessions.new,
    "resume": sessions.resume,
    "sessions": sessions.sessions,
    "title": sessions.title,
    "branch": sessions.branch,
    "stop": sessions.stop,
    "retry": sessions.retry,
    "undo": sessions.undo,
    "approve": approve,
    "deny": deny,
    "answer": backlog.answer,
    "skip": backlog.skip,
    "resend": resend,
    "steer": text_wanted,
    "queue": text_wanted,
    "busy": busy,
    "model": model,
    "reload": reload,
    "compress": compress,
    "restart": restart,
    "usage": usage,
    "status": status,
    "context": context,
    "whoami": whoami,
    "help": help_,
    "version": version,
}
IN_A_SESSION = frozenset(
    {"retry", "undo", "branch", "compress"}
)  # what they change must be what the next message continues
NO_TERMS = Terms()
FAILED = "failed"  # why it ended
END_DONE = f"UPDATE inbox SET state='done', ended_at=$2, ended_by=$3 WHERE id=$1 AND {has_not_ended(INBOX_MOVES)}"
END_DEAD = (
    "UPDATE inbox SET state='dead', ended_at=$2, dead_at=$2, why=$3, ended_by=$4"
    f" WHERE id=$1 AND {has_not_ended(INBOX_MOVES)}"
)


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
    yield sql(END_DONE, number, at, session_id)
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
    restart = yield from asks_for_restart(command, number)
    wakes = yield from key_of_request(command)
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
