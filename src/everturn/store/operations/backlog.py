"""Messages that were written while nobody read: held until all are there, then answered, left or asked about."""

from __future__ import annotations

import msgspec

from everturn.decide import admission_words
from everturn.decide.backlog import QUESTION, QUESTION_OF_ONE, QUIET_S, before_newest, count, settle
from everturn.decide.busy import BusyMode
from everturn.model import SessionSource
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.command_values import Asked
from everturn.store.operations.entries import lock_entry, source_of
from everturn.store.operations.telling import Delivery, owe, tell

HELD = "backlog"  # it waits until all that piled up is there
ASKED = "asked"  # its sender was asked
NEWEST = "newest"  # the argument of /answer
EXPIRED = "away"  # why it ended
TOO_OLD = "too_old"
ROWS = (
    "SELECT id, source, accepted_at, album FROM inbox WHERE key=$1 AND held=$2 AND ended_at IS NULL AND state='waiting'"
    " ORDER BY place"
)
END = "UPDATE inbox SET state=$2, ended_at=$3, why=$4, held=NULL WHERE id=$1 AND state='waiting' RETURNING id"


class Backlogged(msgspec.Struct, frozen=True):
    """What became of the messages that were held: when to look again, and whether something is owed."""

    later: float | None = None
    spoke: bool = False


def tell_once(key: str, absence: int, notice: int, source: SessionSource, text: str, at: float) -> Op[bool]:
    """Say once after each absence that not everything here is answered. The entry is locked."""
    first = yield sql(
        "UPDATE entry SET backlog_told=$2 WHERE key=$1 AND (backlog_told IS NULL OR backlog_told<>$2) RETURNING key",
        key, absence,
    )  # fmt: skip
    if first:
        yield from tell(notice, key, source, text, EXPIRED, at, Delivery(by_event=False))
    return bool(first)


def settle_backlog(key: str, policy: str, instance: int, absence: int, notice: int, at: float) -> Op[Backlogged]:
    """Nothing came for a moment: what was held goes on, is left, or its sender is asked."""
    entry = yield from lock_entry(key)
    rows = yield sql(ROWS, key, HELD)
    if entry is None or not rows:
        return Backlogged(spoke=bool((yield sql("SELECT 1 FROM outbox WHERE id=$1", notice))))  # it ran before
    quiet = rows[-1][2] + QUIET_S
    if at < quiet <= at + QUIET_S:  # a clock that was set back makes nobody wait longer
        return Backlogged(later=quiet)
    source = source_of(rows[-1][1]) or entry.origin or SessionSource(platform="")
    came = count(albums := [row[3] for row in rows])
    settled, spoke = settle(policy, came), False
    if settled.ask:
        yield sql("UPDATE inbox SET held=$2 WHERE key=$1 AND held=$3 AND ended_at IS NULL", key, ASKED, HELD)
        kind, text = (QUESTION if came > 1 else QUESTION_OF_ONE), admission_words.answer_them(came)
        yield from owe(notice, key, None, kind, source, text, at, Delivery(by_event=False), instance)
        return Backlogged(spoke=True)
    if settled.newest:
        yield from end_held(key, rows[: before_newest(albums)], "expired", EXPIRED, at)
        spoke = yield from tell_once(key, absence, notice, source, admission_words.only_newest(), at)
    busy = BusyMode.COLLECT.value if settled.together else None
    yield sql(
        "UPDATE inbox SET held=NULL, busy=coalesce($2, busy) WHERE key=$1 AND held=$3 AND ended_at IS NULL",
        key,
        busy,
        HELD,
    )
    return Backlogged(spoke=spoke)


def end_held(key: str, rows: list[Row], state: str, why: str, at: float) -> Op[int]:
    """These end unanswered, visibly. The entry is locked."""
    ended = 0
    for row in rows:
        ended += len((yield sql(END, row[0], state, at, why)))
    if ended:
        yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", key, ended)
    return ended


def held_keys() -> Op[list[str]]:
    """Where messages are held that nobody was asked about."""
    rows = yield sql("SELECT DISTINCT key FROM inbox WHERE held='backlog' AND ended_at IS NULL")
    return [row[0] for row in rows]


def asked_before(time: float) -> Op[list[str]]:
    """Where messages are held whose sender was asked, and that came before a time."""
    rows = yield sql(
        "SELECT DISTINCT key FROM inbox WHERE held IS NOT NULL AND held='asked' AND ended_at IS NULL AND accepted_at<$1",
        time,
    )
    return [row[0] for row in rows]


def expire_asked(key: str, before: float, notice: int, at: float) -> Op[int]:
    """Nobody said whether they are answered: they are not, and who wrote them is told."""
    yield from lock_entry(key)
    rows = [row for row in (yield sql(ROWS, key, ASKED)) if row[2] < before]
    source = source_of(rows[-1][1]) if rows else None
    if source is not None:
        text = admission_words.not_asked_for(count([row[3] for row in rows]))
        yield from tell(notice, key, source, text, EXPIRED, at, Delivery(by_event=False))
    return (yield from end_held(key, rows, "expired", EXPIRED, at))


def answer(asked: Asked) -> Op[str]:
    """/answer: those that were asked about go on, one by one; or only the newest, and the others are withdrawn."""
    word = asked.command.argument.strip().casefold()
    if word not in {"", NEWEST}:
        return admission_words.newest_only()
    rows = yield sql(ROWS, asked.key, ASKED)
    if word == NEWEST:
        left = before_newest([row[3] for row in rows])
        yield from end_held(asked.key, rows[:left], "withdrawn", f"/answer {NEWEST}", asked.at)
        rows = rows[left:]
    yield sql("UPDATE inbox SET held=NULL WHERE key=$1 AND held=$2 AND ended_at IS NULL", asked.key, ASKED)
    return admission_words.answering(count([row[3] for row in rows]))


def skip(asked: Asked) -> Op[str]:
    """/skip: those that were asked about are withdrawn by their sender."""
    rows = yield sql(ROWS, asked.key, ASKED)
    yield from end_held(asked.key, rows, "withdrawn", "/skip", asked.at)
    return admission_words.skipped(count([row[3] for row in rows]))
