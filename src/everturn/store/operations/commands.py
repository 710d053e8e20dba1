"""Commands people type. A command's effect and its end commit together, so it is applied once wherever the process dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everturn.decide import words
from everturn.decide.commands import COMMANDS, Command, nearest, parse_command
from everturn.decide.notes import tail_key
from everturn.model import Event, ResumePending, SessionEntry, SessionSource, Suspended
from everturn.store.interface import Op, sql
from everturn.store.operations.boundaries import end_open_turn, end_session, open_session, point_at, release
from everturn.store.operations.entries import lock_or_make_entry, source_of, state_columns
from everturn.store.operations.telling import Delivery, events_of, fact, owe, report
from everturn.store.operations.transcripts import open_tail

LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a command did: the turn it stopped, if any."""

    key: str
    stopped: int | None
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A session one can go back to."""

    session_id: str
    started_at: float
    end_reason: str | None
    first_words: str


def apply_command(number: int, session_id: str, at: float, delivery: Delivery) -> Op[Applied | None]:
    """Apply a stored command and answer it; None when somebody else did."""
    rows = yield sql("SELECT key, body, source, ended_at FROM inbox WHERE id=$1/*lock*/", number)
    if not rows or rows[0][3] is not None:
        return (yield from _applied_before(rows[0][0], at)) if rows and rows[0][3] == at else None
    key, body, raw, _ = rows[0]
    entry = yield from lock_or_make_entry(key, raw, at)
    command = parse_command(body) or Command("help", "")
    text = yield from _apply(command, entry, number, session_id, at)
    yield sql("UPDATE inbox SET state='done', ended_at=$2 WHERE id=$1", number, at)
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    source = source_of(raw) or entry.origin or SessionSource(platform="")
    yield from owe(number, key, None, "reply", source, text, at, Delivery(by_event=delivery.by_event), 0)
    ended = (yield sql("SELECT id FROM turn WHERE id=$1 AND state='stopped'", entry.turn)) if entry.turn else []
    stopped = entry.turn if ended else None
    facts = [fact("turn", at, turn=str(stopped), state="stopped")] if stopped else []
    facts.append(fact("reply", at, turn=None, id=str(number), text=text, to=source.message_id, command=command.name))
    events = yield from report(key, entry.event_seq, facts if delivery.by_event else [])
    return Applied(key=key, stopped=stopped, events=events)


def _applied_before(key: str, at: float) -> Op[Applied]:
    """For an operation that runs twice: the turn its first run stopped wrote the last row of the session it left."""
    stopped = yield sql(
        "SELECT t.id FROM entry e JOIN turn t ON t.state='stopped' AND t.ended_at=$2 AND t.id IN"
        " ((SELECT m.turn FROM message m WHERE m.session_id=e.session_id ORDER BY m.seq DESC LIMIT 1),"
        "  (SELECT m.turn FROM message m WHERE m.session_id=e.previous_session_id ORDER BY m.seq DESC LIMIT 1))"
        " WHERE e.key=$1",
        key,
        at,
    )
    return Applied(key=key, stopped=stopped[0][0] if stopped else None, events=(yield from events_of(key, at)))


def _apply(command: Command, entry: SessionEntry, number: int, session_id: str, at: float) -> Op[str]:
    match command.name:
        case "new" | "reset":
            return (yield from _new(entry, number, session_id, at))
        case "stop":
            return (yield from _stop(entry, at))
        case "resume":
            return (yield from _resume(entry, command.argument, at))
        case "status":
            return (yield from _status(entry))
        case "help":
            return words.help_text(COMMANDS)
        case _:
            return words.unknown_command(command.name, nearest(command.name))


def _new(entry: SessionEntry, number: int, session_id: str, at: float) -> Op[str]:
    """A boundary: what was accepted before and not begun is withdrawn, what runs loses its fence."""
    withdrawn = yield sql(
        "UPDATE inbox SET state='withdrawn', ended_at=$3, why='/new'"
        " WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'"
        " AND place<(SELECT place FROM inbox WHERE id=$2) RETURNING id",
        entry.key,
        number,
        at,
    )
    yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", entry.key, len(withdrawn))
    yield from reset_session(entry, session_id, at)
    return words.fresh(len(withdrawn))


def reset_session(entry: SessionEntry, session_id: str, at: float) -> Op[bool]:
    """Point the key at a fresh session because its user asked for it. False when there is nothing to leave."""
    if entry.session_id is None:
        return False
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", "/new", at)
    length = yield from release(entry)
    yield from end_session(entry.session_id, "new", length, at)
    yield from open_session(session_id, entry.key, entry.session_id, "", at)
    yield from point_at(entry.key, session_id, entry.session_id, None, had_activity=False)
    return True


def _stop(entry: SessionEntry, at: float) -> Op[str]:
    if entry.turn is None:
        return words.nothing_to_stop()
    yield from end_open_turn(entry, "stopped", "withdrawn", "/stop", at)
    yield from release(entry)
    tail = tail_key((yield from open_tail(entry.session_id or "")))
    yield sql(
        "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, tail_key=$2, tail_at=$3"
        " WHERE key=$1 AND state<>'suspended'",
        entry.key,
        tail,
        at,
    )
    waiting = yield sql(
        "SELECT count(*) FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'", entry.key
    )
    return words.stopped(waiting[0][0])


def _resume(entry: SessionEntry, argument: str, at: float) -> Op[str]:
    """Bring back the suspended session, or go back to an earlier one of this conversation."""
    if isinstance(entry.state, Suspended) and not argument:
        cut_off = yield from _bring_back(entry.key, entry.session_id or "", at)
        return words.resumed(entry.session_id or "", cut_off)
    earlier = yield from earlier_sessions(entry.key, entry.session_id)
    if not argument:
        return words.earlier({str(n): _about(each, at) for n, each in enumerate(earlier, 1)})
    target = _pick(earlier, argument)
    if target is None:
        return words.nothing_to_resume()
    if entry.holder is not None:
        return words.busy_resume()
    was_cut_off = yield from switch_session(entry, target.session_id, at)
    return words.resumed(target.session_id, bool(was_cut_off))


def _pick(earlier: Sequence[Earlier], argument: str) -> Earlier | None:
    if argument.isdecimal() and 0 < int(argument) <= len(earlier):
        return earlier[int(argument) - 1]
    return next((each for each in earlier if each.session_id == argument), None)


def earlier_sessions(key: str, but: str | None) -> Op[list[Earlier]]:
    """The sessions this key pointed at before, newest first."""
    rows = yield sql(
        "SELECT session_id, started_at, end_reason, first_words FROM session WHERE key=$1 ORDER BY id DESC LIMIT $2",
        key,
        LISTED + 1,
    )
    return [Earlier(row[0], row[1], row[2], row[3] or "") for row in rows if row[0] != but][:LISTED]


def _about(each: Earlier, now: float) -> str:
    hours = max(0, now - each.started_at) / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min"
    state = ", suspended" if each.end_reason == "suspended" else ""
    return f"{each.first_words or '(nothing said yet)'} ({age} ago{state})"


def switch_session(entry: SessionEntry, session_id: str, at: float) -> Op[bool | None]:
    """Point the key at an earlier session of its own: the one left is ended as a switch, the target is reopened.

    True when its last task was cut off, None when there is no such session under this key.
    """
    rows = yield sql("SELECT key FROM session WHERE session_id=$1", session_id)
    if not rows or rows[0][0] != entry.key:
        return None
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", "/resume", at)
    length = yield from release(entry)
    yield from end_session(entry.session_id, "switched", length, at)
    yield sql("UPDATE session SET ended_at=NULL, end_reason=NULL WHERE session_id=$1", session_id)
    last = yield sql("SELECT max(seq) FROM message WHERE session_id=$1", session_id)
    yield from point_at(entry.key, session_id, entry.session_id, None, had_activity=False, seq=last[0][0] or 0)
    return (yield from _bring_back(entry.key, session_id, at))


def _bring_back(key: str, session_id: str, at: float) -> Op[bool]:
    """A session that was suspended in the middle of its work gets the note of its interruption with the next message."""
    rows = yield sql("SELECT mark FROM session WHERE session_id=$1", session_id)
    reason = rows[0][0] if rows else None
    state, reason, marked_at = state_columns(ResumePending(reason, at)) if reason else ("active", None, None)
    yield sql("UPDATE session SET mark=NULL WHERE session_id=$1", session_id)
    yield sql(
        "UPDATE entry SET state=$2, reason=$3, marked_at=$4, unclean_ends=0, tail=1 WHERE key=$1",
        key,
        state,
        reason,
        marked_at,
    )
    return reason is not None


def _status(entry: SessionEntry) -> Op[str]:
    rows = yield sql(
        "SELECT count(*) FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'", entry.key
    )
    state, reason, _ = state_columns(entry.state)
    return words.status(entry.session_id, state, reason, entry.holder is not None, rows[0][0])
