"""Rows of /v1: what a program asked, so that a repetition gets the same answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from everturn.inbox.rows.attachments import extras_of
from everturn.inbox.rows.inbox import Accepted
from everturn.model import NO_EXTRAS, Inbound, InboxState, RequestExtras, SessionSource, TurnState, Usage
from everturn.sessions.rows.entries import calls_of, find_entry, last_messages, source_of
from everturn.store.interface import Op, Row, sql
from everturn.web.v1.rules import RequestProgress

_REQUEST = (
    "SELECT i.id, i.key, i.state, i.why, i.accepted_at, i.source, i.extras, i.turn, t.state, t.why, t.notice_at, t.session_id,"
    " t.ended_at, t.requests, t.input_tokens, t.output_tokens, t.cached_tokens, t.cost"
    " FROM inbox i LEFT JOIN turn t ON t.id=i.turn WHERE i.platform=$2 AND "
)
RECENT = 500
SUSPENDED = "suspended"  # inbox.why of a message that waits in a suspended session
BY_ID = _REQUEST + "i.id=$1"
BY_EXT_ID = _REQUEST + "i.ext_id=$1 AND i.account=''"
ANSWER = (
    "SELECT content, calls FROM message WHERE session_id=$1 AND turn=$2 AND role='assistant' ORDER BY seq DESC LIMIT 1"
)
REQUEST = "SELECT request FROM approval WHERE turn=$1 AND answered_at IS NULL ORDER BY id LIMIT 1"
IN_FRONT = "SELECT e.state, t.id, t.state FROM entry e LEFT JOIN turn t ON t.id=e.turn WHERE e.key=$1"


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its progress."""

    id: int
    key: str
    at: float
    source: SessionSource
    extras: RequestExtras
    turn: int | None
    ended_at: float | None
    seen: RequestProgress
    event: int = 0  # the newest event of its key that this row is not older than, where that is known


def begun_request(accepted: Accepted, inbound: Inbound) -> RequestRow | None:
    """The row of a request whose turn began with the commit that stored it; None for any other, which has to be read."""
    begun = accepted.begun
    if begun is None or len(begun.inbox) != 1 or begun.key != accepted.key:
        return None
    return RequestRow(
        id=begun.inbox[0], key=begun.key, at=accepted.at, source=inbound.source, extras=inbound.extras or NO_EXTRAS,
        turn=begun.turn, ended_at=None, seen=RequestProgress(inbox=InboxState.CLAIMED, turn=TurnState.RUNNING),
        event=accepted.events[-1].seq if accepted.events else 0,
    )  # fmt: skip


def request_by_id(number: int, platform: str) -> Op[RequestRow | None]:
    """Find a request by the number of its message."""
    rows = yield sql(BY_ID, number, platform)
    return (yield from _request(rows[0], platform)) if rows else None


def request_by_name(ext_id: str, platform: str) -> Op[RequestRow | None]:
    """Find a request by the id that its sender uses to repeat it."""
    rows = yield sql(BY_EXT_ID, ext_id, platform)
    return (yield from _request(rows[0], platform)) if rows else None


def calls_asked(key: str) -> Op[frozenset[str]]:
    """Return the tool calls in the newest part of the key's session, answered or not: a repeat gets the same verdict."""
    entry = yield from find_entry(key)
    rows = (yield from last_messages(entry.session_id, RECENT)) if entry is not None and entry.session_id else []
    return frozenset(call.id for row in rows for call in row.calls)


def first_start() -> Op[float]:
    """Return when a gateway first ran on this database."""
    rows = yield sql("SELECT min(started_at) FROM instance")
    return float(rows[0][0] or 0)


def _request(row: Row, platform: str) -> Op[RequestRow]:
    number, key, state, waits, at, source, extras, turn, turn_state, why, notice_at, session_id, ended_at, *used = row
    seen = RequestProgress(
        inbox=state, turn=turn_state, why=why, too_old=turn_state == "interrupted" and notice_at is not None
    )
    if turn_state == TurnState.ANSWERED:
        seen = yield from _answer(seen, session_id, turn, used)
    elif ended_at is not None:
        rows = yield sql("SELECT text FROM outbox WHERE id=$1", turn)
        seen = replace(seen, text=rows[0][0] if rows else "")
    elif turn_state != TurnState.RUNNING:
        seen = yield from _blocked(seen, key, waits == SUSPENDED)
    return RequestRow(
        id=number, key=key, at=at, source=source_of(source) or SessionSource(platform=platform),
        extras=extras_of(extras), turn=turn, ended_at=ended_at, seen=seen,
    )  # fmt: skip


def _answer(seen: RequestProgress, session_id: str, turn: int, used: list[Any]) -> Op[RequestProgress]:
    rows = yield sql(ANSWER, session_id, turn)
    content, calls = rows[0] if rows else ("", None)
    return replace(seen, text=content, calls=calls_of(calls) if calls else (), usage=Usage(*used))


def _blocked(seen: RequestProgress, key: str, suspended: bool) -> Op[RequestProgress]:  # noqa: FBT001  as its row says
    """Add what blocks the request: an approval request of its own turn or of the one before, or a suspended session."""
    rows = yield sql(IN_FRONT, key)
    state, front, front_state = rows[0] if rows else ("active", None, None)
    if front_state == TurnState.AWAITING_APPROVAL:
        asked = yield sql(REQUEST, front)
        return replace(seen, approval=asked[0][0]) if asked else seen
    return replace(seen, suspended=suspended and state == "suspended")
