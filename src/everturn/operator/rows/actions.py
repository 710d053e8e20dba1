"""Operator actions on sessions, replies and messages: each commits whole, under the entry's lock, with its client's id.
Repeated with that id, in any process, it changes nothing and answers the same.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from everturn.commands.rows.sessions import continue_turn, reset_session, resume_session
from everturn.lifecycle.rows.upkeep import BODIES_KEPT_S, FORGOTTEN
from everturn.model import Event, ResumePending, SessionEntry, Suspended
from everturn.operator.rows.suspended import why_turn_was_suspended
from everturn.operator.rules import operator_texts
from everturn.outbox.rows.notices import Fact, events_of, fact, queue_notice, report
from everturn.outbox.rows.outbox import MARK_SENT, SCRUBBED, SEND_AGAIN
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.boundaries import acknowledge_tail, end_open_turn, release
from everturn.sessions.rows.entries import lock_entry
from everturn.sessions.rules.keys import origin_of
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.recovery import suspend_session
from everturn.turns.rows.turn_values import Streamed

OPERATOR = "operator"
DONE_BEFORE = "SELECT action, target, key, said, stopped FROM action WHERE id=$1"
KEEP = (
    "INSERT INTO action (id, action, target, actor, key, said, stopped, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
    " ON CONFLICT (id) DO NOTHING"
)
# A reply of unknown delivery may have arrived: if somebody sends it again after all, it is marked.
DROP_REPLY = (
    f"UPDATE outbox SET state='dead', ended_at=coalesce(ended_at, $2), dead_at=NULL, instance=NULL, {SCRUBBED},"
    " error=coalesce(error, 'dropped by an operator'), marked=CASE state WHEN 'unknown' THEN 1 ELSE marked END WHERE id=$1"
)
DROP_MESSAGE = "UPDATE inbox SET dead_at=NULL WHERE id=$1"
FORGET_BODY = f"UPDATE inbox SET {FORGOTTEN} WHERE id=$1 AND ended_at<$2"
# With its files, which are fetched anew, but without a program's request extras: nobody waits for its functions.
RUN_AGAIN = (
    "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, attachments, album, state, place, accepted_at,"
    " busy) SELECT $1, $2, platform, account, key, kind, source, body, attachments, album, 'queued', $3, $4, 'queue'"
    " FROM inbox WHERE id=$5"
)


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An action and its target; `number` and `session_id` are made by the caller, for rows that it may need."""

    id: str
    action: str
    target: str
    actor: str
    at: float
    number: int
    session_id: str = ""
    by_event: frozenset[str] = frozenset()  # the platforms whose deliveries are events
    streamed: Streamed | None = None  # what the turn that runs here has streamed


class Acted(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is done, or was before: its answer, the turn that it ended, and the events for watchers."""

    key: str
    said: str
    stopped: int | None = None
    events: tuple[Event, ...] = ()


class Impossible(msgspec.Struct, frozen=True):
    """An action that cannot be done, with the reason; nothing was changed."""

    why: str


class _Did(NamedTuple):
    said: str
    tell: str | None = None
    ended: str | None = None  # the state in which the open turn ended


# -- conversations -----------------------------------------------------------------------------------------------------


def act_on_session(act: Act) -> Op[Acted | Impossible]:
    """Resume, suspend, reset or stop the session of a key; its chat gets a notice."""
    entry = yield from lock_entry(act.target)
    before = yield from _before(act)
    if before is not None:
        return before
    if entry is None:
        return Impossible(operator_texts.NO_CONVERSATION)
    did = yield from _SESSION[act.action](entry, act)
    if isinstance(did, Impossible):
        return did
    stopped = entry.turn if did.ended else None
    delivery = Delivery(by_event=origin_of(entry.key)[0] in act.by_event)
    facts: list[Fact] = []
    if did.tell is not None:
        facts = yield from queue_notice(act.number, entry.key, entry.origin, did.tell, OPERATOR, act.at, delivery)
    if stopped is not None and delivery.by_event:
        facts = [*facts, fact("turn", act.at, turn=str(stopped), state=did.ended, why=OPERATOR)]
    events = yield from report(entry.key, entry.event_seq, facts, act.number)
    return (yield from _record(act, entry.key, did.said, stopped, events))


def _resume(entry: SessionEntry, act: Act) -> Op[_Did | Impossible]:
    """Resume a suspended conversation, or let a turn that was cut off continue, however long ago that was."""
    if isinstance(entry.state, Suspended):
        cut_off = yield from resume_session(entry.key, entry.session_id or "", act.at)
        return _Did(operator_texts.RESUMED, operator_texts.TELL_CUT_OFF if cut_off else operator_texts.TELL_RESUMED)
    if entry.holder is not None:
        return Impossible(operator_texts.RUNS_ALREADY)
    if not (yield from continue_turn(entry, act.at)):
        pending = isinstance(entry.state, ResumePending)
        return Impossible(operator_texts.GOES_ON_WITH_MESSAGE if pending else operator_texts.NOTHING_TO_RESUME)
    return _Did(operator_texts.GOES_ON)


def _suspend(entry: SessionEntry, act: Act) -> Op[_Did | Impossible]:
    if isinstance(entry.state, Suspended):
        return Impossible(operator_texts.SUSPENDED_ALREADY)
    if not (yield from suspend_session(entry.key, act.at, OPERATOR)):
        return Impossible(operator_texts.NO_CONVERSATION)
    return _Did(
        operator_texts.SUSPENDED_NOW, operator_texts.TELL_SUSPENDED, "suspended" if entry.turn is not None else None
    )


def _reset(entry: SessionEntry, act: Act) -> Op[_Did | Impossible]:
    """As /new: queued messages are withdrawn."""
    if entry.session_id is None:
        return Impossible(operator_texts.NOTHING_TO_RESET)
    withdrawn = yield sql(
        "UPDATE inbox SET state='withdrawn', ended_at=$2, why=$3"
        " WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message' RETURNING id",
        entry.key,
        act.at,
        OPERATOR,
    )
    yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", entry.key, len(withdrawn))
    yield from reset_session(entry, act.session_id, act.at, OPERATOR, act.streamed)
    told = operator_texts.tell_reset(len(withdrawn))
    return _Did(operator_texts.reset_done(len(withdrawn)), told, "stopped" if entry.turn is not None else None)


def _stop(entry: SessionEntry, act: Act) -> Op[_Did | Impossible]:
    """As /stop: the conversation and its queued messages are kept."""
    if entry.turn is None:
        return Impossible(operator_texts.NOTHING_RUNS)
    yield from end_open_turn(entry, "stopped", "withdrawn", OPERATOR, act.at, streamed=act.streamed)
    yield from release(entry)
    yield from acknowledge_tail(entry, act.at)
    return _Did(operator_texts.STOPPED, operator_texts.TELL_STOPPED, "stopped")


_SESSION = {"resume": _resume, "suspend": _suspend, "reset": _reset, "stop": _stop}


# -- replies -----------------------------------------------------------------------------------------------------------


def act_on_reply(act: Act) -> Op[Acted | Impossible]:
    """Send a reply again, drop it, or mark it as delivered because somebody saw it arrive."""
    number = int(act.target)
    rows = yield sql("SELECT key FROM outbox WHERE id=$1", number)
    key = rows[0][0] if rows else ""
    yield from lock_entry(key)
    before = yield from _before(act)
    if before is not None:
        return before
    rows = yield sql("SELECT state FROM outbox WHERE id=$1/*lock*/", number)
    if not rows:
        return Impossible(operator_texts.NO_REPLY)
    did = yield from _reply(act, number, rows[0][0])
    return did if isinstance(did, Impossible) else (yield from _record(act, key, did))


def _reply(act: Act, number: int, state: str) -> Op[str | Impossible]:
    if state not in {"dead", "unknown", "pending"}:
        return Impossible(operator_texts.DELIVERED if state == "sent" else operator_texts.BEING_SENT)
    if act.action == "send":
        yield sql(SEND_AGAIN, number, act.at)
        return operator_texts.SENT_MARKED if state == "unknown" else operator_texts.SENT_AGAIN
    if act.action == "drop":
        yield sql(DROP_REPLY, number, act.at)
        return operator_texts.REPLY_DROPPED
    if state != "unknown":
        return Impossible(operator_texts.ONLY_UNKNOWN)
    yield sql(MARK_SENT, number, act.at)
    return operator_texts.MARKED_SENT


# -- messages ----------------------------------------------------------------------------------------------------------


def act_on_message(act: Act) -> Op[Acted | Impossible]:
    """Run a dead letter again as a new message, or drop it."""
    number = int(act.target)
    rows = yield sql("SELECT key FROM inbox WHERE id=$1", number)
    key = rows[0][0] if rows else ""
    entry = yield from lock_entry(key)
    before = yield from _before(act)
    if before is not None:
        return before
    rows = yield sql(
        "SELECT ext_id, body, kind, turn, why FROM inbox WHERE id=$1 AND dead_at IS NOT NULL/*lock*/", number
    )
    if not rows or entry is None:
        return Impossible(operator_texts.NO_MESSAGE)
    said = operator_texts.MESSAGE_DROPPED
    if act.action == "run":
        why = _why_not(entry, rows[0])
        if why is not None:
            return Impossible(why)
        yield from _run_again(act, key, number, rows[0][0])
        said = operator_texts.message_again((yield from _warning(rows[0])))
    yield sql(DROP_MESSAGE, number)
    yield sql(FORGET_BODY, number, act.at - BODIES_KEPT_S)
    return (yield from _record(act, key, said))


def _why_not(entry: SessionEntry, row: Row) -> str | None:
    if isinstance(entry.state, Suspended):
        return operator_texts.SUSPENDED
    _, body, kind, _, _ = row
    if kind != "message":
        return operator_texts.A_COMMAND
    return None if body else operator_texts.NO_TEXT


def _warning(row: Row) -> Op[str | None]:
    _, body, _, turn, why = row
    return (yield from why_turn_was_suspended(turn, body))[1] if turn and why == "suspended" else None


def _run_again(act: Act, key: str, number: int, ext_id: str) -> Op[None]:
    """Queue a copy as a new message; its id begins with that of the first, so that `explain` finds both."""
    placed = yield sql("UPDATE entry SET waiting=waiting+1, arrivals=arrivals+1 WHERE key=$1 RETURNING arrivals", key)
    yield sql(RUN_AGAIN, act.number, f"{ext_id}@again-{act.number}", placed[0][0], act.at, number)


# -- once --------------------------------------------------------------------------------------------------------------


def _before(act: Act) -> Op[Acted | Impossible | None]:
    """The result of this id's earlier use; None when it is new."""
    rows = yield sql(DONE_BEFORE, act.id)
    if not rows:
        return None
    action, target, key, said, stopped = rows[0]
    if (action, target) != (act.action, act.target):
        return Impossible(operator_texts.CONFLICT)
    return Acted(key=key, said=said, stopped=stopped, events=(yield from events_of(key, act.number)))


def _record(act: Act, key: str, said: str, stopped: int | None = None, events: tuple[Event, ...] = ()) -> Op[Acted]:
    yield sql(KEEP, act.id, act.action, act.target, act.actor, key, said, stopped, act.at)
    return Acted(key=key, said=said, stopped=stopped, events=events)
