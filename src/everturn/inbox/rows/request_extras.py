"""Request extras: what an API request has beside its text, stored with the message and written to the transcript."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from everturn.model import NO_EXTRAS, RequestExtras, SessionEntry
from everturn.sessions.rows.transcripts import ADD_MESSAGE, write_calls
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import QueuedMessage

_read = msgspec.json.Decoder(RequestExtras).decode
_encode = msgspec.json.Encoder().encode


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
