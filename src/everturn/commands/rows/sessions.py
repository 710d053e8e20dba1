"""Rows of commands that change a session: a new one, a branch, undo, retry and compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from everturn.commands.rows.values import CommandCall
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import number_in
from everturn.ids import oldest_id
from everturn.inbox.rows.attachments import attachments_of, write_attachments
from everturn.inbox.rows.backlog import take_back
from everturn.model import Attachment, ResumePending, SessionEntry, Suspended
from everturn.sessions.rows.boundaries import (
    acknowledge_tail,
    end_open_turn,
    end_session,
    keep_mark,
    open_session,
    point_at,
    release,
)
from everturn.sessions.rows.conversations import clean_title, set_title, title_of
from everturn.sessions.rows.entries import state_columns, write_source
from everturn.sessions.rules import notices
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import Streamed

LISTED = 10
SEARCHED = 500
NOTICE_TOO_OLD = "SELECT 1 FROM turn WHERE id=$1 AND state='interrupted' AND notice_at IS NOT NULL"
COPY = (
    "INSERT INTO message (session_id, seq, role, content, calls, call_id, unknown, extra, author, turn, attempt, at, outcome)"
    " SELECT $2, row_number() OVER (ORDER BY seq), role, content, calls, call_id, unknown, extra, author, turn, attempt, at,"
    " outcome FROM message WHERE session_id=$1 AND hidden=0"
)
INHERIT = (
    "UPDATE session SET title=$3, frozen=(SELECT p.frozen FROM session p WHERE p.session_id=$2),"
    " model=(SELECT p.model FROM session p WHERE p.session_id=$2),"
    " first_text=(SELECT p.first_text FROM session p WHERE p.session_id=$2) WHERE session_id=$1"
)


@dataclass(frozen=True, slots=True)
class EarlierSession:
    """A session that /resume can return to."""

    session_id: str
    started_at: float
    end_reason: str | None
    first_text: str
    title: str | None = None


# -- /new, /stop -------------------------------------------------------------------------------------------------------


def new(call: CommandCall) -> Op[str]:
    """/new: withdraw the messages queued before it, stop the open turn, point the key at a fresh session."""
    withdrawn = yield sql(
        "UPDATE inbox SET state='withdrawn', ended_at=$3, why='/new'"
        " WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message'"
        " AND place<(SELECT place FROM inbox WHERE id=$2) RETURNING id",
        call.key,
        call.number,
        call.at,
    )
    yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", call.key, len(withdrawn))
    yield from reset_session(call.entry, call.session_id, call.at, streamed=call.terms.streamed, by=call.number)
    title = clean_title(call.command.argument)
    if title:
        session_id = yield from session_to_set(call, fresh=True)
        yield sql("UPDATE session SET title=$2 WHERE session_id=$1", session_id, title)
    return notices.fresh(len(withdrawn)) + command_texts.titled(title)


def reset_session(
    entry: SessionEntry,
    session_id: str,
    at: float,
    why: str = "/new",
    streamed: Streamed | None = None,
    by: int | None = None,
) -> Op[bool]:
    """Point the key at a fresh session on request. False when it has no session yet."""
    if entry.session_id is None:
        return False
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", why, at, streamed=streamed, by=by)
    length = yield from release(entry)
    yield from end_session(entry.session_id, "new", length, at)
    yield from open_session(session_id, entry.key, entry.session_id, "", at)
    yield from point_at(entry.key, session_id, entry.session_id, None, had_activity=False)
    return True


def session_to_set(call: CommandCall, *, fresh: bool = False) -> Op[str]:
    """The session to store a choice in, opened if there is none. `fresh`: the one that this command just opened."""
    entry = call.entry
    if entry.session_id is not None:
        return call.session_id if fresh else entry.session_id
    yield from open_session(call.session_id, entry.key, None, "", call.at)
    yield sql("UPDATE entry SET session_id=$2 WHERE key=$1", entry.key, call.session_id)
    return call.session_id


def stop(call: CommandCall) -> Op[str]:
    """/stop: end the open turn; the conversation and its queued messages are kept."""
    entry = call.entry
    if entry.turn is None:
        return notices.nothing_to_stop()
    yield from end_open_turn(
        entry, "stopped", "withdrawn", "/stop", call.at, streamed=call.terms.streamed, by=call.number
    )
    yield from release(entry)
    yield from acknowledge_tail(entry, call.at)
    return notices.stopped((yield from queued_messages(entry.key)))


def queued_messages(key: str) -> Op[int]:
    """How many messages are queued, commands not counted."""
    rows = yield sql(
        "SELECT count(*) FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message'", key
    )
    return int(rows[0][0])


# -- /resume, /sessions ------------------------------------------------------------------------------------------------


def resume(call: CommandCall) -> Op[str]:
    """/resume: resume the suspended session or the turn that was cut off, or switch to an earlier session."""
    entry, argument, at = call.entry, call.command.argument.strip(), call.at
    if isinstance(entry.state, Suspended) and not argument:
        cut_off = yield from resume_session(entry.key, entry.session_id or "", at)
        return notices.resumed(entry.session_id or "", cut_off)
    if not argument and (yield sql(NOTICE_TOO_OLD, entry.turn)) and (yield from continue_turn(entry, at)):
        return notices.continued()
    earlier = yield from earlier_sessions(entry.key, _in_use(entry), SEARCHED if argument else LISTED)
    if not argument:
        return notices.earlier(_numbered(earlier, at))
    target = pick(earlier, argument)
    if target is None:
        return notices.nothing_to_resume()
    if entry.holder is not None:
        return notices.busy_resume()
    was_cut_off = yield from switch_session(entry, target.session_id, at, call.number)
    return notices.resumed(target.session_id, bool(was_cut_off)) + command_texts.titled(target.title)


def sessions(call: CommandCall) -> Op[str]:
    """/sessions: the session in use, and those that can be resumed."""
    here = _in_use(call.entry)
    earlier = yield from earlier_sessions(call.key, here)
    rows = yield from _sessions("session_id=$1", here, 1)
    return command_texts.listed(about(rows[0], call.at) if rows else None, _numbered(earlier, call.at))


def _in_use(entry: SessionEntry) -> str | None:
    """The session that the next message continues; an expired one is an earlier one already."""
    return None if entry.expired else entry.session_id


def _numbered(earlier: Sequence[EarlierSession], at: float) -> dict[str, str]:
    return {str(number): about(each, at) for number, each in enumerate(earlier[:LISTED], 1)}


def pick(earlier: Sequence[EarlierSession], argument: str) -> EarlierSession | None:
    """The session that is meant: by its place in the list, its id, its title, or the beginning of its title."""
    place = number_in(argument)
    if place is not None and 0 < place <= min(LISTED, len(earlier)):
        return earlier[place - 1]
    wanted = argument.casefold()
    exact = (each for each in earlier if each.session_id == argument or (each.title or "").casefold() == wanted)
    begins = (each for each in earlier if (each.title or "").casefold().startswith(wanted))
    return next(exact, None) or next(begins, None)


def earlier_sessions(key: str, but: str | None, limit: int = LISTED) -> Op[list[EarlierSession]]:
    """The sessions this key pointed at before, newest first."""
    # A session that was compacted goes on as another one: nobody looks for it.
    found = yield from _sessions("key=$1 AND (end_reason IS NULL OR end_reason<>'compaction')", key, limit + 1)
    return [each for each in found if each.session_id != but][:limit]


def _sessions(where: str, value: str | None, limit: int) -> Op[list[EarlierSession]]:
    rows = yield sql(
        f"SELECT session_id, started_at, end_reason, first_text, title FROM session WHERE {where} ORDER BY id DESC LIMIT $2",
        value,
        limit,
    )
    return [EarlierSession(row[0], row[1], row[2], row[3] or "", row[4]) for row in rows]


def about(each: EarlierSession, now: float) -> str:
    """One line for a list: title, first text, age, state."""
    hours = max(0, now - each.started_at) / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min"
    state = ", suspended" if each.end_reason == "suspended" else ""
    title = f"{each.title}: " if each.title else ""
    return f"{title}{each.first_text or '(nothing said yet)'} ({age} ago{state})"


def switch_session(entry: SessionEntry, session_id: str, at: float, by: int | None = None) -> Op[bool | None]:
    """Point the key at an earlier session of its own: the one left is ended as a switch, the target is reopened.

    True when its last task was cut off, None when there is no such session under this key.
    """
    rows = yield sql("SELECT key FROM session WHERE session_id=$1", session_id)
    if not rows or rows[0][0] != entry.key:
        return None
    yield from keep_mark(entry)
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", "/resume", at, by=by)
    length = yield from release(entry)
    yield from end_session(entry.session_id, "switched", length, at)
    yield sql("UPDATE session SET ended_at=NULL, end_reason=NULL WHERE session_id=$1", session_id)
    last = yield sql("SELECT max(seq) FROM message WHERE session_id=$1", session_id)
    previous = entry.previous_session_id if entry.session_id == session_id else entry.session_id
    yield from point_at(entry.key, session_id, previous, None, had_activity=False, seq=last[0][0] or 0)
    return (yield from resume_session(entry.key, session_id, at))


def continue_turn(entry: SessionEntry, at: float) -> Op[bool]:
    """Let a turn that was cut off continue, however long ago that was; False when there is none."""
    # Without a reason of its own it continues by itself whatever the settings say; the entry's mark still gives the note.
    cut = yield sql("UPDATE turn SET reason=NULL WHERE id=$1 AND state='interrupted' RETURNING 1", entry.turn)
    if cut:
        yield sql("UPDATE entry SET marked_at=$2 WHERE key=$1 AND state='resume_pending'", entry.key, at)
    return bool(cut)


def resume_session(key: str, session_id: str, at: float) -> Op[bool]:
    """Make the key's session active again; True if it was cut off: its next message gets the interruption note."""
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


# -- /title, /branch ---------------------------------------------------------------------------------------------------


def title(call: CommandCall) -> Op[str]:
    """Show or change the title."""
    chosen = clean_title(call.command.argument)
    if chosen is None:
        found = yield from title_of(call.entry.session_id)
        return command_texts.no_session() if found is None else command_texts.title_is(found or None)
    yield from set_title((yield from session_to_set(call)), chosen)
    return command_texts.title_is(chosen)


def branch(call: CommandCall) -> Op[str]:
    """Go on in a child with a copy of what the agent sees; the session left is kept and ended as it is."""
    entry, child = call.entry, call.session_id
    length = yield from release(entry)
    yield from end_session(entry.session_id, "branched", length, call.at)
    yield from open_session(child, entry.key, entry.session_id, "", call.at)
    chosen = clean_title(call.command.argument)
    yield sql(INHERIT, child, entry.session_id, chosen)
    yield sql(COPY, entry.session_id, child)
    rows = yield sql("SELECT count(*) FROM message WHERE session_id=$1", child)
    yield from point_at(entry.key, child, entry.session_id, None, had_activity=False, seq=rows[0][0])
    # The copy ends with the same rows: what of them was acknowledged or cut off stays so.
    state, reason, marked_at = state_columns(entry.state)
    yield sql(
        "UPDATE entry SET state=$2, reason=$3, marked_at=$4, unclean_ends=$5, tail=1, tail_key=$6, tail_at=$7 WHERE key=$1",
        entry.key, state, reason, marked_at, entry.unclean_ends, entry.tail_key, entry.tail_at,
    )  # fmt: skip
    return command_texts.branched(chosen, rows[0][0])


# /undo and /retry: hide the last turns, run the last message again. Nothing is deleted.


MOST_UNDONE = 100
A_MOMENT_S = 1.0  # between the time of a message and that of its number
ADD_AGAIN = (
    "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, accepted_at, attachments)"
    " VALUES ($1, $2, $3, $4, $5, 'message', $6, $7, 'queued', 0, $8, $9)"
)
# By their number: what has ended is in no other index, and no message is older than its text.
NOT_FETCHED = (
    "SELECT attachments FROM inbox WHERE id>=$1 AND key=$2 AND turn=$3 AND attachments IS NOT NULL AND fetched IS NULL"
    " ORDER BY place, id"
)
AGAIN = "retry "  # what the id of a message begins with that is run again


def undo(call: CommandCall) -> Op[str]:
    """Hide the last turns: the agent no longer sees them."""
    many = number_in(call.command.argument.strip() or "1")
    if many is None or not 0 < many <= MOST_UNDONE:
        return command_texts.undo_how_many()
    session_id = call.entry.session_id or ""
    turns = yield from last_turns(session_id, many)
    if not turns:
        return command_texts.nothing_to_undo()
    said = []
    for turn in turns:
        said.append((yield from text_of(session_id, turn))[0])  # noqa: PERF401  a comprehension cannot yield
    effects = yield from take_back(call.entry, turns[::-1])
    yield from _forget_interruption(call.entry)
    return command_texts.undone(said, effects)


def retry(call: CommandCall) -> Op[str]:
    """Hide the last turn, ended or not, and put its text in front of the queue."""
    entry, session_id = call.entry, call.entry.session_id or ""
    if (yield from _waits_again(entry.key)):
        return command_texts.retry_waits()
    turns = yield from last_turns(session_id, 1)
    if not turns:
        return command_texts.nothing_to_retry()
    text, author = yield from text_of(session_id, turns[0])
    if not text:
        return command_texts.nothing_to_retry()
    files = yield from _not_fetched(entry.key, session_id, turns[0])
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", "/retry", call.at, by=call.number)
        yield from release(entry)
    effects = yield from take_back(entry, turns)
    yield from _forget_interruption(entry)
    yield from _queue_again(call, text, author, files)
    return command_texts.retrying(text, effects)


def _waits_again(key: str) -> Op[bool]:
    rows = yield sql(
        "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND ext_id LIKE $2 LIMIT 1",
        key,
        f"{AGAIN}%",
    )
    return bool(rows)


def _not_fetched(key: str, session_id: str, turn: int) -> Op[list[Attachment]]:
    """The files of a turn that its text does not name yet."""
    said = yield sql("SELECT min(at) FROM message WHERE session_id=$1 AND turn=$2 AND role='user'", session_id, turn)
    rows = yield sql(NOT_FETCHED, oldest_id(said[0][0] - A_MOMENT_S), key, turn)
    return [each for row in rows for each in attachments_of(row[0])]


def _queue_again(call: CommandCall, text: str, author: str | None, files: list[Attachment]) -> Op[None]:
    """Queue the text as a new message of the sender of /retry; the text keeps its author's name."""
    source = replace(call.source, user_name=author) if author else call.source
    yield sql(
        ADD_AGAIN, call.terms.message, f"{AGAIN}{call.number}", source.platform, source.account, call.key,
        write_source(source).decode(), text, call.at, write_attachments(files),
    )  # fmt: skip
    yield sql("UPDATE entry SET waiting=waiting+1 WHERE key=$1", call.key)


def last_turns(session_id: str, count: int) -> Op[list[int]]:
    """The newest turns of which the agent sees something, newest first."""
    rows = yield sql(
        "SELECT turn, max(seq) FROM message WHERE session_id=$1 AND hidden=0 AND turn IS NOT NULL"
        " GROUP BY turn ORDER BY 2 DESC LIMIT $2",
        session_id,
        count,
    )
    return [row[0] for row in rows]


def text_of(session_id: str, turn: int) -> Op[tuple[str, str | None]]:
    """The users' text of a turn, and its first author."""
    rows = yield sql(
        "SELECT content, author FROM message WHERE session_id=$1 AND turn=$2 AND role='user' AND hidden=0 ORDER BY seq",
        session_id,
        turn,
    )
    return "\n".join(row[0] for row in rows), rows[0][1] if rows else None


def _forget_interruption(entry: SessionEntry) -> Op[None]:
    """Clear the resume mark: what was cut off is hidden now, and the tail is another one."""
    yield sql(
        "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, tail=1 WHERE key=$1 AND state<>'suspended'",
        entry.key,
    )
