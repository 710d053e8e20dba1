"""Commands about what was said: hide the last turns, run the last message again. Nothing is deleted."""

from __future__ import annotations

from msgspec.structs import replace

from everturn.decide import command_words
from everturn.decide.commands import number_in
from everturn.ids import oldest_id
from everturn.model import Attachment, SessionEntry
from everturn.store.interface import Op, sql
from everturn.store.operations.attachments import attachments_of, write_attachments
from everturn.store.operations.boundaries import end_open_turn, release
from everturn.store.operations.command_values import Asked
from everturn.store.operations.entries import write_source
from everturn.store.operations.taking_over import take_back

MOST_UNDONE = 100
A_MOMENT_S = 1.0  # between the time of a message and that of its number
ADD_AGAIN = (
    "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, accepted_at, attachments)"
    " VALUES ($1, $2, $3, $4, $5, 'message', $6, $7, 'waiting', 0, $8, $9)"
)
# By their number: what has ended is in no other index, and no message is older than its words.
NOT_FETCHED = (
    "SELECT attachments FROM inbox WHERE id>=$1 AND key=$2 AND turn=$3 AND attachments IS NOT NULL AND fetched IS NULL"
    " ORDER BY place, id"
)
AGAIN = "retry "  # what the id of a message begins with that is run again


def undo(asked: Asked) -> Op[str]:
    """Hide the last turns: the agent no longer sees them."""
    many = number_in(asked.command.argument.strip() or "1")
    if many is None or not 0 < many <= MOST_UNDONE:
        return command_words.undo_how_many()
    session_id = asked.entry.session_id or ""
    turns = yield from last_turns(session_id, many)
    if not turns:
        return command_words.nothing_to_undo()
    said = []
    for turn in turns:
        said.append((yield from words_of(session_id, turn))[0])  # noqa: PERF401  a comprehension cannot yield
    effects = yield from take_back(asked.entry, turns[::-1])
    yield from _forget_interruption(asked.entry)
    return command_words.undone(said, effects)


def retry(asked: Asked) -> Op[str]:
    """Hide the last turn, ended or not, and put its words in front of the queue."""
    entry, session_id = asked.entry, asked.entry.session_id or ""
    if (yield from _waits_again(entry.key)):
        return command_words.retry_waits()
    turns = yield from last_turns(session_id, 1)
    if not turns:
        return command_words.nothing_to_retry()
    text, author = yield from words_of(session_id, turns[0])
    if not text:
        return command_words.nothing_to_retry()
    files = yield from _not_fetched(entry.key, session_id, turns[0])
    if entry.turn is not None:
        yield from end_open_turn(entry, "stopped", "withdrawn", "/retry", asked.at, by=asked.number)
        yield from release(entry)
    effects = yield from take_back(entry, turns)
    yield from _forget_interruption(entry)
    yield from _queue_again(asked, text, author, files)
    return command_words.retrying(text, effects)


def _waits_again(key: str) -> Op[bool]:
    rows = yield sql(
        "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND ext_id LIKE $2 LIMIT 1",
        key,
        f"{AGAIN}%",
    )
    return bool(rows)


def _not_fetched(key: str, session_id: str, turn: int) -> Op[list[Attachment]]:
    """The files of a turn that its words do not name yet."""
    said = yield sql("SELECT min(at) FROM message WHERE session_id=$1 AND turn=$2 AND role='user'", session_id, turn)
    rows = yield sql(NOT_FETCHED, oldest_id(said[0][0] - A_MOMENT_S), key, turn)
    return [each for row in rows for each in attachments_of(row[0])]


def _queue_again(asked: Asked, text: str, author: str | None, files: list[Attachment]) -> Op[None]:
    """A message of its own, since its sender asked again: whoever asked answers for it, the words stay their author's."""
    source = replace(asked.source, user_name=author) if author else asked.source
    yield sql(
        ADD_AGAIN, asked.terms.message, f"{AGAIN}{asked.number}", source.platform, source.account, asked.key,
        write_source(source).decode(), text, asked.at, write_attachments(files),
    )  # fmt: skip
    yield sql("UPDATE entry SET waiting=waiting+1 WHERE key=$1", asked.key)


def last_turns(session_id: str, count: int) -> Op[list[int]]:
    """The newest turns of which the agent sees something, newest first."""
    rows = yield sql(
        "SELECT turn, max(seq) FROM message WHERE session_id=$1 AND hidden=0 AND turn IS NOT NULL"
        " GROUP BY turn ORDER BY 2 DESC LIMIT $2",
        session_id,
        count,
    )
    return [row[0] for row in rows]


def words_of(session_id: str, turn: int) -> Op[tuple[str, str | None]]:
    """What its user said in a turn, and who that was first."""
    rows = yield sql(
        "SELECT content, author FROM message WHERE session_id=$1 AND turn=$2 AND role='user' AND hidden=0 ORDER BY seq",
        session_id,
        turn,
    )
    return "\n".join(row[0] for row in rows), rows[0][1] if rows else None


def _forget_interruption(entry: SessionEntry) -> Op[None]:
    """What was cut off is hidden now: nothing is left to go on with, and the tail is another one."""
    yield sql(
        "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, tail=1 WHERE key=$1 AND state<>'suspended'",
        entry.key,
    )
