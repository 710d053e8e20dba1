"""/undo and /retry: hide the last turns, run the last message again. Nothing is deleted."""

from __future__ import annotations

from msgspec.structs import replace

from everturn.commands.rows.values import CommandCall
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import number_in
from everturn.ids import oldest_id
from everturn.inbox.rows.attachments import attachments_of, write_attachments
from everturn.inbox.rows.taking_over import take_back
from everturn.model import Attachment, SessionEntry
from everturn.sessions.rows.boundaries import end_open_turn, release
from everturn.sessions.rows.entries import write_source
from everturn.store.interface import Op, sql

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
