"""Moved chats: their platform gave them another id. The first id stays in every key, so that the conversation goes on: no
row of it is touched, and a turn that runs meanwhile does not notice.
"""

from __future__ import annotations

from everturn.inbox.rows.inbox import move_cursor
from everturn.store.interface import Op, sql

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
