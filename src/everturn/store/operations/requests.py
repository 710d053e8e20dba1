"""Looking at a program's request: where its message and its turn are, and what came of it. Nothing here changes a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from everturn.decide.client_answer import Seen
from everturn.model import Brought, SessionSource, TurnState, Usage
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.bringing import brought_of
from everturn.store.operations.entries import find_entry, source_of
from everturn.store.operations.transcripts import calls_of, last_messages

_REQUEST = (
    "SELECT i.id, i.key, i.state, i.why, i.accepted_at, i.source, i.brought, i.turn, t.state, t.why, t.told_at, t.session_id,"
    " t.ended_at, t.requests, t.input_tokens, t.output_tokens, t.cached_tokens, t.cost"
    " FROM inbox i LEFT JOIN turn t ON t.id=i.turn WHERE i.platform=$2 AND "
)
RECENT = 500
SET_ASIDE = "held"  # why a message waits in a session that is suspended
BY_ID = _REQUEST + "i.id=$1"
BY_EXT_ID = _REQUEST + "i.ext_id=$1 AND i.account=''"
ANSWER = (
    "SELECT content, calls FROM message WHERE session_id=$1 AND turn=$2 AND role='assistant' ORDER BY seq DESC LIMIT 1"
)
QUESTION = "SELECT question FROM approval WHERE turn=$1 AND answered_at IS NULL ORDER BY id LIMIT 1"
IN_FRONT = "SELECT e.state, t.id, t.state FROM entry e LEFT JOIN turn t ON t.id=e.turn WHERE e.key=$1"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request: what it is, and how it stands."""

    id: int
    key: str
    at: float
    source: SessionSource
    brought: Brought
    turn: int | None
    ended_at: float | None
    seen: Seen


def request_by_id(number: int, platform: str) -> Op[Request | None]:
    """By the number of its message."""
    rows = yield sql(BY_ID, number, platform)
    return (yield from _request(rows[0], platform)) if rows else None


def request_by_name(ext_id: str, platform: str) -> Op[Request | None]:
    """By the id under which its sender may repeat it."""
    rows = yield sql(BY_EXT_ID, ext_id, platform)
    return (yield from _request(rows[0], platform)) if rows else None


def calls_asked(key: str) -> Op[frozenset[str]]:
    """The calls that the newest part of the key's session asks for, answered or not: a repeat is judged as the first was."""
    entry = yield from find_entry(key)
    rows = (yield from last_messages(entry.session_id, RECENT)) if entry is not None and entry.session_id else []
    return frozenset(call.id for row in rows for call in row.calls)


def first_start() -> Op[float]:
    """When a gateway first ran on this database."""
    rows = yield sql("SELECT min(started_at) FROM instance")
    return float(rows[0][0] or 0)


def _request(row: Row, platform: str) -> Op[Request]:
    number, key, state, held, at, source, brought, turn, turn_state, why, told_at, session_id, ended_at, *used = row
    seen = Seen(inbox=state, turn=turn_state, why=why, too_old=turn_state == "interrupted" and told_at is not None)
    if turn_state == TurnState.ANSWERED:
        seen = yield from _answer(seen, session_id, turn, used)
    elif ended_at is not None:
        rows = yield sql("SELECT text FROM outbox WHERE id=$1", turn)
        seen = replace(seen, text=rows[0][0] if rows else "")
    elif turn_state != TurnState.RUNNING:
        seen = yield from _held_up(seen, key, held == SET_ASIDE)
    return Request(
        id=number, key=key, at=at, source=source_of(source) or SessionSource(platform=platform),
        brought=brought_of(brought), turn=turn, ended_at=ended_at, seen=seen,
    )  # fmt: skip


def _answer(seen: Seen, session_id: str, turn: int, used: list[Any]) -> Op[Seen]:
    rows = yield sql(ANSWER, session_id, turn)
    content, calls = rows[0] if rows else ("", None)
    return replace(seen, text=content, calls=calls_of(calls) if calls else (), usage=Usage(*used))


def _held_up(seen: Seen, key: str, held: bool) -> Op[Seen]:  # noqa: FBT001  as its row says
    """What stands in its way: a question of its own turn or of the one in front, or a session that is set aside."""
    rows = yield sql(IN_FRONT, key)
    state, front, front_state = rows[0] if rows else ("active", None, None)
    if front_state == TurnState.WAITING:
        asked = yield sql(QUESTION, front)
        return replace(seen, asks=asked[0][0]) if asked else seen
    return replace(seen, suspended=held and state == "suspended")
