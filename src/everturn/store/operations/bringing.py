"""What a program's message brings beside its words: how it is kept with the message, and how it enters the transcript."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from everturn.model import NOTHING_BROUGHT, Brought, SessionEntry
from everturn.store.interface import Op, sql
from everturn.store.operations.transcripts import ADD_MESSAGE, write_calls
from everturn.store.operations.turn_values import Waiting

_read = msgspec.json.Decoder(Brought).decode
_encode = msgspec.json.Encoder().encode


def write_brought(brought: Brought) -> str:
    """As it is stored."""
    return _encode(brought).decode()


def brought_of(text: str | None) -> Brought:
    """What was stored; nothing when it was forgotten or is damaged."""
    try:
        return _read(text) if text else NOTHING_BROUGHT
    except msgspec.MsgspecError:
        return NOTHING_BROUGHT


def brought_by(numbers: Sequence[int]) -> Op[Brought]:
    """What the last of these messages brought."""
    for number in reversed(numbers):
        rows = yield sql("SELECT brought FROM inbox WHERE id=$1", number)
        if rows and rows[0][0]:
            return brought_of(rows[0][0])
    return NOTHING_BROUGHT


def bring(entry: SessionEntry, messages: Sequence[Waiting]) -> Op[SessionEntry]:
    """Write the rows that messages bring; they belong to no turn, and stand before the words of theirs."""
    seq = entry.seq
    for each in messages:
        for row in each.brought:
            seq += 1
            yield sql(
                ADD_MESSAGE, entry.session_id, seq, row.role, row.content, write_calls(row.calls), row.call_id, 0, None,
                None, None, 1, each.accepted_at, None,
            )  # fmt: skip
    return replace(entry, seq=seq) if seq != entry.seq else entry
