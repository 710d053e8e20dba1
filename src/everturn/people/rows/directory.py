"""Rows of the chat directory: chats that are known, and chats that moved to another number."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.ids import oldest_id
from everturn.inbox.rows.inbox import move_cursor
from everturn.model import SessionSource
from everturn.people.rows.access import standing
from everturn.people.rules.access import Standing
from everturn.people.rules.directory import KnownChat, newer
from everturn.sessions.rows.entries import source_of
from everturn.store.interface import Op, Row, sql

MOST = 20_000  # so many are listed, the last seen first
KEPT_S = 365 * 86_400.0
FRESH_S = 3_600.0  # that it was seen again is written once an hour
COLUMNS = "platform, account, chat_id, thread_id, chat_type, name, parent, person, seen_at"
NAMES = tuple(COLUMNS.split(", "))
PUT = (
    f"INSERT INTO channel ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (platform, account, chat_id, thread_id) DO UPDATE SET chat_type=excluded.chat_type, name=excluded.name,"
    " parent=excluded.parent, person=excluded.person, seen_at=excluded.seen_at WHERE channel.seen_at<=excluded.seen_at"
)
ONE = f"SELECT {COLUMNS} FROM channel WHERE platform=$1 AND account=$2 AND chat_id=$3 AND thread_id=$4"
ORIGINS = "e.id<$1 AND e.active_at>=$2 AND e.origin IS NOT NULL ORDER BY e.id DESC LIMIT $3"
EVERY = f"SELECT e.id, e.origin, e.active_at FROM entry e WHERE {ORIGINS}"
# A cross join: SQLite then begins on its left side.
RECENT = (
    "SELECT e.id, e.origin, e.active_at FROM (SELECT DISTINCT key FROM turn WHERE id>=$4) t CROSS JOIN entry e"
    f" WHERE e.key=t.key AND {ORIGINS}"
)


class Origin(msgspec.Struct, frozen=True):
    """Where a conversation was last held."""

    id: int
    source: SessionSource
    at: float


class Directory(msgspec.Struct, frozen=True):
    """All known chats, and the aliases: from a name to an address."""

    channels: tuple[KnownChat, ...]
    aliases: dict[str, str]


def claim_look(what: str, at: float, every_s: float) -> Op[float | None]:
    """Claim the periodic look for all replicas. Returns when the last one was; None when none is due."""
    rows = yield sql("SELECT at, before FROM look WHERE what=$1/*lock*/", what)
    last, before = rows[0] if rows else (0.0, 0.0)
    if rows and last == at:
        return float(before)  # it ran before
    if rows and 0 < at - last < every_s:
        return None
    since = last if last < at else 0.0  # a clock that was set back makes nobody wait
    yield sql(
        "INSERT INTO look (what, at, before) VALUES ($1, $2, $3)"
        " ON CONFLICT (what) DO UPDATE SET at=excluded.at, before=excluded.before",
        what, at, since,
    )  # fmt: skip
    return float(since)


def origins(before: int, since: float, limit: int) -> Op[list[Origin]]:
    """Where conversations were held since a time, the newest conversation first; on a reader, page by page. All of them are
    walked through once; afterwards it begins with the turns since then, so that it costs what happened, not what there is.
    """
    if since > 0:
        rows = yield sql(RECENT, before, since, limit, oldest_id(since))
    else:
        rows = yield sql(EVERY, before, since, limit)
    found = ((row[0], source_of(row[1]), row[2]) for row in rows)
    return [Origin(number, source, at) for number, source, at in found if source is not None]


def keep_channels(seen: Sequence[KnownChat]) -> Op[None]:
    """Store chats that are new or changed; what is known is not written again."""
    for each in seen:
        rows = yield sql(ONE, each.platform, each.account, each.chat_id, each.thread_id)
        news = newer(_known(rows[0]) if rows else None, each, FRESH_S)
        if news is not None:
            yield sql(PUT, *(getattr(news, name) for name in NAMES))


def forget_channels(at: float) -> Op[None]:
    """Delete chats that nobody has seen for a year."""
    yield sql("DELETE FROM channel WHERE seen_at<$1", at - KEPT_S)


def directory() -> Op[Directory]:
    """The whole chat directory, the last seen chat first."""
    rows = yield sql(f"SELECT {COLUMNS} FROM channel ORDER BY seen_at DESC LIMIT {MOST}")
    named = yield sql("SELECT name, platform, chat_id, thread_id FROM alias ORDER BY name")
    aliases = {row[0]: ":".join(row[1:] if row[3] else row[1:3]) for row in named}
    return Directory(tuple(_known(row) for row in rows), aliases)


def put_alias(name: str, place: KnownChat, at: float) -> Op[None]:
    """Store an alias of a chat; the same alias again leads to the new chat."""
    yield sql(
        "INSERT INTO alias (name, platform, chat_id, thread_id, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name)"
        " DO UPDATE SET platform=excluded.platform, chat_id=excluded.chat_id, thread_id=excluded.thread_id, at=excluded.at",
        name, place.platform, place.chat_id, place.thread_id, at,
    )  # fmt: skip


def drop_alias(name: str) -> Op[None]:
    """Delete an alias."""
    yield sql("DELETE FROM alias WHERE name=$1", name)


def authors_of_turn(key: str, turn: int) -> Op[list[tuple[SessionSource, Standing]]]:
    """The authors of a turn's messages, with their stored standing now."""
    rows = yield sql("SELECT DISTINCT source FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2", key, turn)
    found: list[tuple[SessionSource, Standing]] = []
    for row in rows:
        source = source_of(row[0])
        if source is not None:
            found.append((source, (yield from standing(source))))
    return found


def _known(row: Row) -> KnownChat:
    return KnownChat(**dict(zip(NAMES, row, strict=True)))


# Moved chats: their platform gave them another id. The first id stays in every key, so that the conversation goes on:
# no row of it is touched, and a turn that runs meanwhile does not notice.


FIRST = "SELECT was FROM moved_chat WHERE platform=$1 AND account=$2 AND chat_id=$3"
MOVE = (
    "INSERT INTO moved_chat (platform, account, chat_id, was, at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (platform, account, chat_id) DO NOTHING"
)


def move_chat(platform: str, account: str, chat_id: str, was: str, at: float, cursor: str | None = None) -> Op[None]:
    """Record that the chat `was` has another id now; recording it again changes nothing. The platform's read position
    (`cursor`) moves with it.
    """
    first = (yield from first_number(platform, account, was)) or was
    if first != chat_id:
        yield sql(MOVE, platform, account, chat_id, first, at)
    if cursor is not None:
        yield from move_cursor(platform, account, cursor, at)


def first_number(platform: str, account: str, chat_id: str) -> Op[str | None]:
    """The first id of a chat; None for one that never moved."""
    rows = yield sql(FIRST, platform, account, chat_id)
    return str(rows[0][0]) if rows else None
