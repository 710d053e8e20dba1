"""Rows of what comes with a message: its attachments, and what a program sent along."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.model import (
    NO_EXTRAS,
    Attachment,
    Event,
    RequestExtras,
    SessionEntry,
    SessionSource,
    SettledFiles,
    StoredFile,
)
from everturn.outbox.rows.replies import notify_key
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.entries import ADD_MESSAGE, REVISED, write_calls
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import QueuedMessage

if TYPE_CHECKING:
    from everturn.turns.rows.turn_values import StartedTurn


_encode = msgspec.json.Encoder().encode
_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode
_settled = msgspec.json.Decoder(SettledFiles).decode
_file = msgspec.json.Decoder(StoredFile).decode
OWNED = "SELECT 1 FROM entry WHERE key=$1 AND fence=$2 AND turn=$3/*lock*/"
SET_TEXT = "UPDATE message SET content=$4 WHERE session_id=$1 AND seq=$2 AND turn=$3 AND role='user'"
DESCRIBE = (
    "INSERT INTO description (platform, id, text, at) VALUES ($1, $2, $3, $4) ON CONFLICT (platform, id) DO NOTHING"
)


class Arrived(msgspec.Struct, frozen=True):
    """The fetched files of one message of a turn."""

    inbox: int
    seq: int
    settled: SettledFiles


class Described(msgspec.Struct, frozen=True):
    """The description of a sticker."""

    platform: str
    id: str
    text: str


class MissingFiles(msgspec.Struct, frozen=True):
    """The notice for a sender about missing files."""

    number: int
    source: SessionSource
    text: str


def write_attachments(attachments: Sequence[Attachment]) -> str | None:
    """Attachments as stored JSON."""
    return _encode(attachments).decode() if attachments else None


def attachments_of(text: str | None) -> tuple[Attachment, ...]:
    """The stored attachments; none when they were forgotten or are damaged."""
    try:
        return _attachments(text) if text else ()
    except msgspec.MsgspecError:
        return ()


def settled_of(text: str | None) -> SettledFiles | None:
    """The settled files of a message; None: they are still to be fetched."""
    try:
        return _settled(text) if text else None
    except msgspec.MsgspecError:
        return None


def file_of(text: str | None) -> StoredFile | None:
    """The file of an outbox row."""
    try:
        return _file(text) if text else None
    except msgspec.MsgspecError:
        return None


def settle_attachments(
    begun: StartedTurn,
    arrived: Sequence[Arrived],
    described: Sequence[Described],
    missing: MissingFiles | None,
    at: float,
    delivery: Delivery,
) -> Op[tuple[Event, ...]]:
    """Put the files of a turn's messages into their text, before any model sees it; queue one notice about missing files."""
    if not (yield sql(OWNED, begun.key, begun.fence, begun.turn)):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    for each in arrived:
        yield sql(SET_TEXT, begun.session_id, each.seq, begun.turn, each.settled.text)
        yield sql("UPDATE inbox SET fetched=$2 WHERE id=$1", each.inbox, _encode(each.settled).decode())
    if begun.attempt > 1:  # the model of an earlier attempt may have been given another text
        yield sql(REVISED, begun.session_id)
    for one in described:
        yield sql(DESCRIBE, one.platform, one.id, one.text, at)
    if missing is None:
        return ()
    return (yield from notify_key(begun.key, missing.number, missing.source, missing.text, "attachment", at, delivery))


def descriptions(platform: str, ids: Collection[str]) -> Op[dict[str, str]]:
    """The stored descriptions of these stickers."""
    found: dict[str, str] = {}
    for each in ids:
        rows = yield sql("SELECT text FROM description WHERE platform=$1 AND id=$2", platform, each)
        found |= {each: rows[0][0]} if rows else {}
    return found


def needed_files() -> Op[frozenset[str]]:
    """The ids of files that a turn that has not ended, or a reply that is not sent, still needs."""
    turns = yield sql("SELECT fetched FROM inbox WHERE ended_at IS NULL AND fetched IS NOT NULL")
    replies = yield sql("SELECT file FROM outbox WHERE ended_at IS NULL AND file IS NOT NULL")
    settled = [settled_of(row[0]) for row in turns]
    files = [file for each in settled if each for file in each.files] + [file_of(row[0]) for row in replies]
    return frozenset(file.id for file in files if file)


# Request extras: what an API request has beside its text, stored with the message and written to the transcript.


_read = msgspec.json.Decoder(RequestExtras).decode


def write_extras(extras: RequestExtras) -> str:
    """Extras as stored JSON."""
    return _encode(extras).decode()


def extras_of(text: str | None) -> RequestExtras:
    """The stored extras; none when they were forgotten or are damaged."""
    try:
        return _read(text) if text else NO_EXTRAS
    except msgspec.MsgspecError:
        return NO_EXTRAS


def extras_of_messages(numbers: Sequence[int]) -> Op[RequestExtras]:
    """The extras of the last of these messages that has some."""
    for number in reversed(numbers):
        rows = yield sql("SELECT extras FROM inbox WHERE id=$1", number)
        if rows and rows[0][0]:
            return extras_of(rows[0][0])
    return NO_EXTRAS


def add_extras(entry: SessionEntry, messages: Sequence[QueuedMessage]) -> Op[SessionEntry]:
    """Write the transcript rows of the messages' extras; they belong to no turn, and stand before the message's text."""
    seq = entry.seq
    for each in messages:
        for row in each.extras:
            seq += 1
            yield sql(
                ADD_MESSAGE, entry.session_id, seq, row.role, row.content, write_calls(row.calls), row.call_id, 0, None,
                None, None, 1, each.accepted_at, None,
            )  # fmt: skip
    return replace(entry, seq=seq) if seq != entry.seq else entry
