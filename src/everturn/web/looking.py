"""Operations that answer a request by looking; they only compose those of the store."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.model import Json, Message
from everturn.store.interface import Op, sql
from everturn.store.operations.earlier import parent_of
from everturn.store.operations.entries import find_entry
from everturn.store.operations.reading import explain, transcript

SESSION_OF_KEY = "SELECT 1 FROM session WHERE session_id=$1 AND key=$2"


@dataclass(frozen=True, slots=True)
class Said:
    """A session of a chat and what was said in it; no session before the first message."""

    session_id: str | None
    messages: list[Message]
    parent: str | None = None  # the session that was summed up into this one


def said(key: str, session_id: str | None, after: int, limit: int) -> Op[Said | None]:
    """The transcript of the key's session, or of another session of the same key; None when that is not one."""
    if session_id is not None:
        if not (yield sql(SESSION_OF_KEY, session_id, key)):
            return None
    else:
        entry = yield from find_entry(key)
        session_id = entry.session_id if entry else None
    if session_id is None:
        return Said(None, [])
    return Said(session_id, (yield from transcript(session_id, after, limit)), (yield from parent_of(session_id)))


def lives(names: list[str]) -> Op[list[Json]]:
    """The lives of the messages under any of these ids."""
    found: dict[object, Json] = {}
    for name in names:
        for life in (yield from explain(name)):
            found.setdefault((life["platform"], life["account"], life["id"]), life)
    return list(found.values())
