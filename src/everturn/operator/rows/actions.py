"""Rows of what an operator does: release, discard, retry; each once, and kept."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from everturn.commands.rows.sessions import continue_turn, reset_session, resume_session
from everturn.lifecycle.rows import BODIES_KEPT_S, FORGOTTEN
from everturn.model import Event, Json, ResumePending, SessionEntry, Suspended
from everturn.operator.rules import operator_texts
from everturn.outbox.rows.outbox import MARK_SENT, SCRUBBED, SEND_AGAIN, UNDELIVERED
from everturn.outbox.rows.replies import Fact, events_of, fact, queue_notice, report
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
    " error=coalesce(error, 'dropped by an operator'), marked=CASE state WHEN 'unknown' THEN 1 ELSE marked END"
    f" WHERE id=$1 AND {UNDELIVERED}"
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


# Past actions of operators. An action is found by its time: the last so many since then are looked at.


LOOKED_AT = 10_000
SINCE = f"(SELECT * FROM action WHERE at>=$1 ORDER BY at DESC LIMIT {LOOKED_AT}) AS a"
NAMES = ("action", "target", "actor", "stopped", "at")


def sent_again(since: float) -> Op[dict[str, tuple[float, str]]]:
    """For each reply that somebody sent again: when, and who, the last time."""
    rows = yield sql(f"SELECT target, at, actor FROM {SINCE} WHERE action='send' ORDER BY at", since)
    return {target: (at, actor) for target, at, actor in rows}


def actions_of(number: int, key: str, since: float, turn: Json | None) -> Op[list[Json]]:
    """What was done to a message, to its reply, and to its conversation while its turn was open or suspended."""
    rows = yield sql(f"SELECT {', '.join(NAMES)} FROM {SINCE} WHERE key=$2 ORDER BY at", since, key)
    own = {str(number), str(turn["id"]) if turn else ""}
    kept = [row for row in rows if row[1] in own or (turn and row[1] == key and _in_turn(row, turn))]
    kept += _resumed(rows, key, turn)
    return [
        {"action": action, "actor": actor, "at": at} for action, _, actor, _, at in sorted(kept, key=lambda row: row[4])
    ]


def _in_turn(row: Row, turn: Json) -> bool:
    _, _, _, stopped, at = row
    began, ended = float(str(turn["started_at"])), turn["ended_at"]
    return str(stopped) == turn["id"] or (at >= began and (ended is None or at < float(str(ended))))


def _resumed(rows: list[Row], key: str, turn: Json | None) -> list[Row]:
    """The first resume of a conversation that was suspended with this turn."""
    if turn is None or turn["state"] != "suspended":
        return []
    ended = float(str(turn["ended_at"]))
    return [row for row in rows if row[0] == "resume" and row[1] == key and row[4] >= ended][:1]


# Why a conversation or a turn was suspended, as a sentence; and whether a turn was running at every unclean end.


# An entry that is still suspended knows best; afterwards the turn's own verdict and attempts are left.
OF_TURN = (
    "SELECT e.reason, e.unclean_ends, t.verdict, t.attempt, (SELECT count(*) FROM attempt a WHERE a.turn=t.id"
    " AND a.why IN ('the gateway ended','restart_timeout','shutdown_timeout'))"
    " FROM turn t LEFT JOIN entry e ON e.key=t.key AND e.session_id=t.session_id AND e.state='suspended' WHERE t.id=$1"
)
LAST_TEXT = "SELECT content FROM message WHERE session_id=$1 AND role='user' AND hidden=0 ORDER BY seq DESC LIMIT 1"


def why_turn_was_suspended(turn: int, text: str) -> Op[tuple[str, str | None]]:
    """Why a turn was suspended; and the warning before its message is run again, if it was running at every unclean end."""
    rows = yield sql(OF_TURN, turn)
    if not rows:
        return operator_texts.suspended_text(None, 0, text), None
    reason, unclean_ends, verdict, attempts, cut_off = rows[0]
    stuck = reason == "stuck" or (reason is None and verdict == "suspend")
    ends = max(unclean_ends or 0, cut_off) if stuck else 0
    return (
        operator_texts.suspended_text("stuck" if stuck else reason, ends, text),
        operator_texts.ran_at_every_end(cut_off) if stuck and cut_off == attempts > 1 else None,
    )


def why_session_is_suspended(session_id: str, reason: str | None, unclean_ends: int) -> Op[str]:
    """Why a conversation is suspended, with the last message that it worked on."""
    rows = yield sql(LAST_TEXT, session_id)
    return operator_texts.suspended_text(reason, unclean_ends if reason == "stuck" else 0, rows[0][0] if rows else "")
