"""Files that came with messages: kept by reference with the message, made part of its words once they are fetched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from everturn.errors import FenceLost
from everturn.model import Attachment, Event, SessionSource, Settled, StoredFile
from everturn.store.interface import Op, sql
from everturn.store.operations.telling import Delivery, tell_key

if TYPE_CHECKING:
    from everturn.store.operations.turn_values import Begun

_encode = msgspec.json.Encoder().encode
_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode
_settled = msgspec.json.Decoder(Settled).decode
_file = msgspec.json.Decoder(StoredFile).decode
OWNED = "SELECT 1 FROM entry WHERE key=$1 AND fence=$2 AND turn=$3/*lock*/"
WORDS = "UPDATE message SET content=$4 WHERE session_id=$1 AND seq=$2 AND turn=$3 AND role='user'"
DESCRIBE = (
    "INSERT INTO description (platform, id, text, at) VALUES ($1, $2, $3, $4) ON CONFLICT (platform, id) DO NOTHING"
)


class Arrived(msgspec.Struct, frozen=True):
    """What became of the files of one message of a turn."""

    inbox: int
    seq: int
    settled: Settled


class Described(msgspec.Struct, frozen=True):
    """What a sticker shows."""

    platform: str
    id: str
    text: str


class Missing(msgspec.Struct, frozen=True):
    """What its sender is told about files that are not here."""

    number: int
    source: SessionSource
    text: str


def write_attachments(attachments: Sequence[Attachment]) -> str | None:
    """As they are stored."""
    return _encode(attachments).decode() if attachments else None


def attachments_of(text: str | None) -> tuple[Attachment, ...]:
    """What was stored; none when it was forgotten or is damaged."""
    try:
        return _attachments(text) if text else ()
    except msgspec.MsgspecError:
        return ()


def settled_of(text: str | None) -> Settled | None:
    """What became of them; None: they are still to be fetched."""
    try:
        return _settled(text) if text else None
    except msgspec.MsgspecError:
        return None


def file_of(text: str | None) -> StoredFile | None:
    """The file that a row sends."""
    try:
        return _file(text) if text else None
    except msgspec.MsgspecError:
        return None


def settle_attachments(
    begun: Begun,
    arrived: Sequence[Arrived],
    described: Sequence[Described],
    missing: Missing | None,
    at: float,
    delivery: Delivery,
) -> Op[tuple[Event, ...]]:
    """The files of a turn's messages become part of their words, before any model saw those; who misses one is told, once."""
    if not (yield sql(OWNED, begun.key, begun.fence, begun.turn)):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    for each in arrived:
        yield sql(WORDS, begun.session_id, each.seq, begun.turn, each.settled.text)
        yield sql("UPDATE inbox SET fetched=$2 WHERE id=$1", each.inbox, _encode(each.settled).decode())
    for one in described:
        yield sql(DESCRIBE, one.platform, one.id, one.text, at)
    if missing is None:
        return ()
    return (yield from tell_key(begun.key, missing.number, missing.source, missing.text, "attachment", at, delivery))


def descriptions(platform: str, ids: Collection[str]) -> Op[dict[str, str]]:
    """What is known of these stickers."""
    found: dict[str, str] = {}
    for each in ids:
        rows = yield sql("SELECT text FROM description WHERE platform=$1 AND id=$2", platform, each)
        found |= {each: rows[0][0]} if rows else {}
    return found


def needed_files() -> Op[frozenset[str]]:
    """The ids of files that a turn which has not ended, or a reply that is not out, still needs."""
    turns = yield sql("SELECT fetched FROM inbox WHERE ended_at IS NULL AND fetched IS NOT NULL")
    replies = yield sql("SELECT file FROM outbox WHERE ended_at IS NULL AND file IS NOT NULL")
    settled = [settled_of(row[0]) for row in turns]
    files = [file for each in settled if each for file in each.files] + [file_of(row[0]) for row in replies]
    return frozenset(file.id for file in files if file)
