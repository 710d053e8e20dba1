"""Rows of the overview: what is open, where, since when, and how it changes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from everturn.ids import made_at, made_by, oldest_id
from everturn.inbox.rows.attachments import file_of
from everturn.lifecycle.rows import record_end
from everturn.model import Json, SessionSource
from everturn.operator.rows.actions import sent_again, why_session_is_suspended, why_turn_was_suspended
from everturn.operator.rules.operator_texts import step_text
from everturn.outbox.rows.outbox import ATTEMPTS_COUNTED, READABLE
from everturn.sessions.rows.entries import source_of
from everturn.sessions.rules.keys import account_of
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.spending import USED

COUNTED = 10_000  # conversations are counted this far
SHOWN_INSTANCES = 10
RECOVERIES = 20
INSTANCE = (
    "SELECT number, host, pid, started_at, heartbeat_at, ended_at, ended, drain_kind, drain_reason FROM instance WHERE "
)
INSTANCE_NAMES = (
    "number", "host", "pid", "started_at", "heartbeat_at", "ended_at", "ended", "drain_kind", "drain_reason",
)  # fmt: skip
RECOVERY_NAMES = (
    "instance", "previous_exit", "died_at", "by", "at", "ready_at", "continued", "suspended", "returned",
)  # fmt: skip


def counts(now: float) -> Op[Json]:
    """Count open work by kind, with the oldest of it; how many access requests are open."""
    turns: dict[str, int] = dict((yield sql("SELECT state, count(*) FROM turn WHERE ended_at IS NULL GROUP BY state")))
    waiting = yield sql(
        "SELECT count(*), min(accepted_at) FROM inbox WHERE ended_at IS NULL AND state='queued' AND kind='message'"
    )
    replies = yield sql(
        "SELECT CASE state WHEN 'unknown' THEN 'unknown' ELSE 'pending' END, count(*), min(created_at)"
        " FROM outbox WHERE ended_at IS NULL GROUP BY 1"
    )
    out = {row[0]: (row[1], row[2]) for row in replies}
    # What only keeps a note for its next message has nothing to resume: it is as good as active.
    marked: dict[str, int] = dict(
        (
            yield sql(
                "SELECT state, count(*) FROM entry WHERE state<>'active' AND (state<>'resume_pending' OR turn IS NOT NULL)"
                " GROUP BY state"
            )
        )
    )
    return {
        "running": turns.get("running", 0),
        "awaiting_approval": turns.get("awaiting_approval", 0),
        "interrupted": turns.get("interrupted", 0),
        "inbox_queued": waiting[0][0],
        "inbox_oldest_at": waiting[0][1],
        "outbox_pending": out.get("pending", (0, None))[0],
        "outbox_oldest_at": out.get("pending", (0, None))[1],
        "outbox_unknown": out.get("unknown", (0, None))[0],
        "dead_replies": (yield sql("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL"))[0][0],
        "dead_messages": (yield sql("SELECT count(*) FROM inbox WHERE dead_at IS NOT NULL"))[0][0],
        "suspended": marked.get("suspended", 0),
        "resume_pending": marked.get("resume_pending", 0),
        "access_requests": (yield sql("SELECT count(*) FROM pairing WHERE ended_at IS NULL AND expires_at>$1", now))[0][
            0
        ],
        "sessions": (yield from _conversations()),
    }


def _conversations() -> Op[int]:
    rows = yield sql(
        "SELECT count(*) FROM (SELECT session_id FROM entry ORDER BY id LIMIT $1) AS e WHERE e.session_id IS NOT NULL",
        COUNTED,
    )
    return int(rows[0][0])


def instances() -> Op[list[Json]]:
    """The instances that have not ended, and the last ones whatever became of them, newest first."""
    rows = yield sql(INSTANCE + "ended_at IS NULL AND locked=1 ORDER BY number")
    rows += yield sql(INSTANCE + "locked=1 ORDER BY number DESC LIMIT $1", SHOWN_INSTANCES)
    by_number = {row[0]: dict(zip(INSTANCE_NAMES, row, strict=True)) for row in rows}
    return [by_number[number] for number in sorted(by_number, reverse=True)]


# -- accounts of platforms ---------------------------------------------------------------------------------------------


def note_contact(platform: str, account: str, received_at: float | None, sent_at: float | None) -> Op[None]:
    """Record when an account last received or sent something: proof that it works."""
    yield sql(
        "INSERT INTO contact (platform, account, received_at, sent_at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (platform, account) DO UPDATE SET received_at=coalesce(excluded.received_at, contact.received_at),"
        " sent_at=coalesce(excluded.sent_at, contact.sent_at)",
        platform,
        account,
        received_at,
        sent_at,
    )


def knows_platform(platform: str) -> Op[bool]:
    """Whether something ever came from there, or went there, or somebody there is on the list."""
    rows = yield sql(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM contact WHERE platform=$1) OR EXISTS (SELECT 1 FROM person WHERE platform=$1)",
        platform,
    )
    return bool(rows)


def accounts() -> Op[dict[tuple[str, str], Json]]:
    """What the rows know of each account: when it was proven to work, and what is open there."""
    found: dict[tuple[str, str], Json] = {}
    for platform, account, received_at, sent_at in (
        yield sql("SELECT platform, account, received_at, sent_at FROM contact")
    ):
        _account(found, platform, account).update(received_at=received_at, sent_at=sent_at)
    for platform, account, number in (
        yield sql(
            "SELECT platform, account, count(*) FROM inbox WHERE ended_at IS NULL AND state='queued'"
            " AND kind='message' GROUP BY platform, account"
        )
    ):
        _account(found, platform, account)["queued"] = number
    for row in (yield sql("SELECT key, platform, count(*) FROM outbox WHERE ended_at IS NULL GROUP BY key, platform")):
        _count_reply(found, row)
    return found


def _account(found: dict[tuple[str, str], Json], platform: str, account: str) -> Json:
    blank: Json = {"received_at": None, "sent_at": None, "queued": 0, "pending": 0}
    return found.setdefault((platform, account), blank)


def _count_reply(found: dict[tuple[str, str], Json], row: Row) -> None:
    key, platform, number = row
    about = _account(found, platform, account_of(key))
    about["pending"] = int(str(about["pending"])) + number


# -- recoveries --------------------------------------------------------------------------------------------------------


def close_dead(instance: int, found_by: int, at: float) -> Op[None]:
    """Record the unclean end of a dead instance, and with the same commit what became of its turns."""
    died_at = min(at, (yield from _last_sign(instance)))
    yield from record_end(instance, "unclean", at)
    yield from _note_recovery(instance, "unclean", died_at, found_by, at)


def note_planned(found_by: int, at: float) -> Op[bool]:
    """Record a start after a planned end, if that end cut turns off. Returns whether it did."""
    rows = yield sql(
        "SELECT number, ended, ended_at FROM instance WHERE number<$1 AND ended_at IS NOT NULL"
        " ORDER BY number DESC LIMIT 1",
        found_by,
    )
    if not rows or rows[0][1] == "unclean":
        return False
    number, ended, ended_at = rows[0]
    return (yield from _note_recovery(number, ended, ended_at, found_by, at))


def _last_sign(instance: int) -> Op[float]:
    """When a process last did anything we know of: its heartbeat, or the newest id if it made that."""
    rows = yield sql(
        "SELECT heartbeat_at, (SELECT max(id) FROM inbox), (SELECT max(id) FROM turn), (SELECT max(id) FROM outbox)"
        " FROM instance WHERE number=$1",
        instance,
    )
    beat, *newest = rows[0]
    return float(max([beat, *(made_at(number) for number in newest if number and made_by(number, instance))]))


def _note_recovery(instance: int, ended: str, died_at: float, found_by: int, found_at: float) -> Op[bool]:
    """Record what became of the turns of an instance, counted from their rows: a recovery that itself died and was repeated
    is recorded whole.
    """
    rows = yield sql(
        "SELECT count(*), count(CASE WHEN t.state='suspended' THEN 1 END),"
        " count(CASE WHEN t.state='interrupted' AND t.reason IS NULL THEN 1 END)"
        " FROM attempt a JOIN turn t ON t.id=a.turn"
        " WHERE a.instance=$1 AND a.why IN ('the gateway ended','restart_timeout','shutdown_timeout')",
        instance,
    )
    cut_off, suspended, returned = rows[0]
    if not cut_off and ended != "unclean":
        return False
    yield sql(
        "INSERT INTO recovery (instance, ended, died_at, found_by, found_at, continued, suspended, returned)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (instance) DO NOTHING",
        instance, ended, died_at, found_by, found_at, cut_off - suspended - returned, suspended, returned,
    )  # fmt: skip
    return True


def note_ready(found_by: int, at: float) -> Op[None]:
    """Record when a recovering instance takes turns again."""
    yield sql("UPDATE recovery SET ready_at=$2 WHERE found_by=$1 AND ready_at IS NULL", found_by, at)


def recoveries(limit: int = RECOVERIES) -> Op[list[Json]]:
    """The recoveries of instances that ended, newest first."""
    rows = yield sql(
        "SELECT instance, ended, died_at, found_by, found_at, ready_at, continued, suspended, returned FROM recovery"
        " ORDER BY instance DESC LIMIT $1",
        limit,
    )
    return [_recovery(row) for row in rows]


def _recovery(row: Row) -> Json:
    told: Json = dict(zip(RECOVERY_NAMES, row, strict=True))
    died_at, ready_at = row[2], row[5]
    return {**told, "back_after_s": None if ready_at is None else max(0.0, ready_at - died_at)}


# Lists for an operator: turns, conversations, messages and replies, a bounded page at a time. Nothing here changes a
# row.
# A page ends with the place of its last row, from which the next one goes on.


LOOKED_AT = 10_000  # of the conversations, the newest so many are put in order of their use, or searched
SEARCHED = 5_000  # of the messages, so many are searched
MESSAGE_CHARS = 200
REPLY_CHARS = 300
BEYOND = 2**63 - 1
TURN = (
    "SELECT t.id, t.key, t.session_id, t.state, t.attempt, t.started_at, t.attempt_at, t.ended_at, t.why, t.reason,"
    " t.first_seq, s.title, s.first_text, e.origin, o.source, "
    + ", ".join(f"t.{name}" for name in USED.split(", "))
    + " FROM turn t LEFT JOIN session s ON s.session_id=t.session_id LEFT JOIN entry e ON e.key=t.key"
    " LEFT JOIN outbox o ON o.id=t.id "
)
ENTRY = (
    "SELECT e.id, e.key, e.session_id, e.state, e.reason, e.marked_at, e.unclean_ends, e.origin, e.active_at,"
    " e.created_at, e.turns, e.waiting, e.turn, e.holder, s.title, s.first_text,"
    " (SELECT t.state FROM turn t WHERE t.id=e.turn)"
)
SESSION_OF_ENTRY = " LEFT JOIN session s ON s.session_id=e.session_id"
NEWEST = f" FROM (SELECT * FROM entry ORDER BY id DESC LIMIT {LOOKED_AT}) AS e"
AFTER = (
    " AND (coalesce({0}, 0)<$1 OR (coalesce({0}, 0)=$1 AND e.id<$2)) ORDER BY coalesce({0}, 0) DESC, e.id DESC LIMIT $3"
)
HOLDS = (
    " AND (lower(e.key) LIKE $4 ESCAPE '\\' OR lower(coalesce(s.title, '')) LIKE $4 ESCAPE '\\'"
    " OR lower(coalesce(s.first_text, '')) LIKE $4 ESCAPE '\\' OR lower(coalesce(e.origin, '')) LIKE $4 ESCAPE '\\')"
)
INBOX = (
    "SELECT id, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn FROM inbox WHERE "
)
OUTBOX = (
    f"SELECT id, key, platform, source, kind, {READABLE}, state, attempts, due_at, valid_until, error, created_at, ended_at,"
    f" parts, turn, file, {ATTEMPTS_COUNTED} FROM outbox WHERE "
)
WHICH_INBOX = {"queued": "ended_at IS NULL AND state='queued'", "dead": "dead_at IS NOT NULL"}
# A conversation that only keeps a note for its next message is active: there is nothing to resume.
WHICH_ENTRY = {
    "active": "(e.state='active' OR (e.state='resume_pending' AND e.turn IS NULL))",
    "resume_pending": "e.state='resume_pending' AND e.state<>'active' AND e.turn IS NOT NULL",
    "suspended": "e.state='suspended' AND e.state<>'active'",  # written out: the index of what is marked is found by it
    "all": "true",
}
WHICH_OUTBOX = {
    "pending": "ended_at IS NULL AND state IN ('pending','sending','open')",
    "unknown": "ended_at IS NULL AND state='unknown'",
    "dead": "dead_at IS NOT NULL",
}
_parts = msgspec.json.Decoder(list[str]).decode


class ConversationCursor(NamedTuple):
    """Where a page of conversations begins: behind this time and number."""

    at: float = 1e18
    number: int = BEYOND


# -- turns -------------------------------------------------------------------------------------------------------------


def open_turns(after: int, limit: int) -> Op[list[Json]]:
    """The turns that are running, awaiting approval or cut off, the oldest first."""
    rows = yield sql(TURN + "WHERE t.ended_at IS NULL AND t.id>$1 ORDER BY +t.id LIMIT $2", after, limit)
    return (yield from _turns(rows))


def recent_turns(before: int, limit: int) -> Op[list[Json]]:
    """The turns that have ended, the last begun first."""
    rows = yield sql(
        TURN + "WHERE t.id<$1 AND t.ended_at IS NOT NULL ORDER BY t.id DESC LIMIT $2", before or BEYOND, limit
    )
    return (yield from _turns(rows))


def _turns(rows: list[Row]) -> Op[list[Json]]:
    turns = []
    for row in rows:
        turns.append((yield from _turn(row)))  # noqa: PERF401  a comprehension cannot yield
    return turns


def _turn(row: Row) -> Op[Json]:
    number, key, session_id, state, attempt, started_at, attempt_at, ended_at, why, reason, first_seq = row[:11]
    title, first_text, origin, target, *used = row[11:]
    steps, step, step_at = yield from _steps(session_id, number, first_seq, state, attempt_at)
    return {
        "turn": str(number), "key": key, "title": title or first_text or "", **_where(target or origin),
        "session_id": session_id, "state": state, "attempt": attempt, "started_at": started_at,
        "attempt_at": attempt_at, "ended_at": ended_at, "why": why or reason, "steps": steps, "step": step,
        "step_at": step_at, **dict(zip(USED.split(", "), used, strict=True)),
    }  # fmt: skip


def _steps(session_id: str, turn: int, first_seq: int, state: str, attempt_at: float) -> Op[tuple[int, str, float]]:
    """How many responses a turn has, what it does now as text, and since when."""
    counted = yield sql(
        "SELECT count(*) FROM message WHERE session_id=$1 AND seq>=$2 AND turn=$3 AND role='assistant'",
        session_id,
        first_seq,
        turn,
    )
    effects = yield sql(
        "SELECT name, state, begun_at, done_at FROM effect WHERE turn=$1 ORDER BY begun_at DESC, call_id LIMIT 1", turn
    )
    name, effect, begun_at, done_at = effects[0] if effects else (None, None, None, None)
    last = yield sql(
        "SELECT at FROM message WHERE session_id=$1 AND seq>=$2 AND turn=$3 ORDER BY seq DESC LIMIT 1",
        session_id,
        first_seq,
        turn,
    )
    at = max([attempt_at, *(row[0] for row in last), *(each for each in (begun_at, done_at) if each is not None)])
    return counted[0][0], step_text(state, name, effect), at


# -- conversations -----------------------------------------------------------------------------------------------------


def conversations(
    state: str, query: str, place: ConversationCursor, limit: int
) -> Op[list[tuple[ConversationCursor, Json]]]:
    """Conversations of a state (or `all`) that match the query, the last marked or last used first; each with its cursor."""
    pattern = "%" + query.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    marked = state in {"suspended", "resume_pending"}
    order = AFTER.format("e.marked_at" if marked else "e.active_at")
    rows = yield sql(
        ENTRY + (" FROM entry AS e" if marked else NEWEST) + SESSION_OF_ENTRY
        + f" WHERE {WHICH_ENTRY[state]} AND e.session_id IS NOT NULL" + (HOLDS if query else "") + order,
        *place,
        limit,
        *([pattern] if query else []),
    )  # fmt: skip
    found = []
    for row in rows:
        place = ConversationCursor((row[5] if marked else row[8]) or 0.0, row[0])
        found.append((place, (yield from _conversation(row))))
    return found


def _conversation(row: Row) -> Op[Json]:
    _, key, session_id, state, reason, marked_at, unclean_ends, origin, active_at, created_at, turns, waiting = row[:12]
    turn, holder, title, first_text, doing = row[12:]
    note_waits = state == "resume_pending" and turn is None
    why = None
    if state == "suspended":
        why = yield from why_session_is_suspended(session_id, reason, unclean_ends)
    return {
        "key": key, "session_id": session_id, "title": title or first_text or "",
        "state": "active" if note_waits else state, "note_waits": note_waits, "reason": reason, "why": why,
        "resumable": holder is None and doing == "interrupted",
        "marked_at": marked_at, "unclean_ends": unclean_ends, **_where(origin), "active_at": active_at,
        "created_at": created_at, "turns": turns, "queued": waiting, "turn": str(turn) if turn else None,
        "running": str(turn) if turn and holder is not None else None,
    }  # fmt: skip


# -- messages and replies ----------------------------------------------------------------------------------------------


def messages(state: str, after: int, limit: int, query: str = "") -> Op[list[Json]]:
    """Queued messages, or dead letters that nobody dropped, the oldest first; or all, the newest first. With a query: those
    whose person, chat, id or first characters contain it, among the first `SEARCHED` of the list.
    """
    if state == "all":
        text, place = INBOX + "id<$1 ORDER BY id DESC LIMIT $2", after or BEYOND
    else:
        text, place = f"{INBOX}{WHICH_INBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after
    rows = yield sql(text, place, SEARCHED if query else limit)
    found = []
    for row in [row for row in rows if not query or _holds(row, query.casefold())][:limit]:
        found.append((yield from _message(row)))  # noqa: PERF401  a comprehension cannot yield
    return found


def _holds(row: Row, query: str) -> bool:
    where = _where(row[4])
    return any(
        query in str(text or "").casefold() for text in (where["sender"], where["chat"], row[1], row[6][:MESSAGE_CHARS])
    )


def _message(row: Row) -> Op[Json]:
    number, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn = row
    warning = None
    if turn and why == "suspended":
        why, warning = yield from why_turn_was_suspended(turn, body)
    return {
        "id": str(number), "ext_id": ext_id, "key": key, **_where(source), "platform": platform, "message": ext_id,
        "kind": kind, "text": body[:MESSAGE_CHARS], "state": state, "why": why, "warning": warning,
        "accepted_at": accepted_at, "ended_at": ended_at, "turn": str(turn) if turn else None,
    }  # fmt: skip


def replies(state: str, after: int, limit: int) -> Op[list[Json]]:
    """Replies that are pending, of unknown delivery, or dead letters that nobody dropped; the oldest first."""
    rows = yield sql(f"{OUTBOX}{WHICH_OUTBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after, limit)
    again = (yield from sent_again(min(row[11] for row in rows))) if rows else {}
    return [_reply(row, again.get(str(row[0]), (None, None))) for row in rows]


def _reply(row: Row, again: tuple[float | None, str | None]) -> Json:
    number, key, platform, source, kind, text, state, attempts, due_at, valid_until, error = row[:11]
    created_at, ended_at, parts, turn, file, tries, tried_at, dead_tries = row[11:]
    sent = file_of(file)
    text = f"[{sent.name}] {text}".strip() if sent else text
    return {
        "reply": str(number), "key": key, **_where(source), "platform": platform, "kind": kind,
        "text": text[:REPLY_CHARS], "state": state, "attempts": attempts, "due_at": due_at, "valid_until": valid_until,
        "error": error, "created_at": created_at, "ended_at": ended_at, "parts_out": _count(parts),
        "tries": max(attempts, tries + (state == "sending")), "tried_at": tried_at, "dead_tries": dead_tries,
        "sent_again_at": again[0], "sent_again_by": again[1], "turn": str(turn) if turn else None,
    }  # fmt: skip


def _count(parts: str) -> int:
    """How many parts are out; a damaged list is shown as none, and does not hide the others."""
    try:
        return len(_parts(parts))
    except msgspec.MsgspecError:
        return 0


def _where(stored: object) -> Json:
    """The platform, chat and author of a source as a person would name them, and the message id for `explain`."""
    source = source_of(stored) or SessionSource(platform="")
    return {
        "platform": source.platform, "chat": source.chat_name or source.chat_id,
        "sender": source.user_name or source.user_id, "message": source.message_id,
    }  # fmt: skip


# Metrics over time, from stored rows: what a chart shows is the same after a restart.
# Rows are found by their id, which grows with time: no table needs another index for this, except for turns that took
# so long that their id does not say when they ended.


STEPS_S = {24: 900, 168: 3_600, 720: 21_600}  # hours that are shown, and how long a step of the chart is
LONG_S = 3_600.0  # of the index turn_long
DAY_S = 86_400.0
# An exact quotient of whole milliseconds: the two engines round a cast differently.
_STEP = "(CAST({0}*1000 AS BIGINT)-$1)/$2"
_ENDED = (
    "SELECT " + _STEP.format("ended_at") + " AS step, state, ended_at-started_at AS took, input_tokens+output_tokens AS tokens,"
    " cost FROM turn WHERE ended_at>=$3 AND "
)  # fmt: skip
_TURNS = f"({_ENDED}id>=$4 UNION ALL {_ENDED}ended_at-started_at>3600 AND id<$4) AS ended"
TURNS = (
    "SELECT step, count(CASE WHEN state='answered' THEN 1 END), count(CASE WHEN state IN ('failed','suspended') THEN 1 END),"
    " count(CASE WHEN state IN ('stopped','rolled_back') THEN 1 END), CAST(coalesce(sum(tokens), 0) AS BIGINT), sum(cost)"
    f" FROM {_TURNS} GROUP BY step"
)
TOOK = (
    "SELECT step, max(CASE WHEN place=(number+1)/2 THEN took END), max(CASE WHEN place=(number*95+99)/100 THEN took END)"
    " FROM (SELECT step, took, row_number() OVER (PARTITION BY step ORDER BY took) AS place,"
    f" count(*) OVER (PARTITION BY step) AS number FROM {_TURNS} WHERE state='answered') AS placed GROUP BY step"
)
CUT_OFF = (
    f"SELECT {_STEP.format('ended_at')}, count(*) FROM attempt WHERE ended_at>=$3"
    " AND why IN ('the gateway ended','restart_timeout','shutdown_timeout') GROUP BY 1"
)
MESSAGES = f"SELECT {_STEP.format('accepted_at')}, count(*) FROM inbox WHERE id>=$3 AND accepted_at>=$4 AND kind='message' GROUP BY 1"
# A reply has the id of its turn. One whose turn began more than a day before the first step is not among these.
REPLIES = (
    f"SELECT {_STEP.format('ended_at')}, count(CASE WHEN state='sent' THEN 1 END), count(CASE WHEN state='dead' THEN 1 END)"
    " FROM outbox WHERE id>=$3 AND ended_at>=$4 GROUP BY 1"
)
NOTHING: Json = {
    "answered": 0, "failed": 0, "stopped": 0, "interrupted": 0, "messages": 0, "p50_s": None, "p95_s": None,
    "tokens": 0, "cost": None, "delivered": 0, "dead": 0,
}  # fmt: skip


def trends(hours: int, now: float) -> Op[Json]:
    """The last hours in steps; the last step is not over yet."""
    step_s = STEPS_S[hours]
    first = (int(now) // step_s + 1) * step_s - hours * 3_600
    buckets = [{"at": float(first + place * step_s), **NOTHING} for place in range(hours * 3_600 // step_s)]
    grid, start = (first * 1_000, step_s * 1_000), float(first)
    recent = oldest_id(start - LONG_S)
    _fill(buckets, (yield sql(TURNS, *grid, start, recent)), "answered", "failed", "stopped", "tokens", "cost")
    _fill(buckets, (yield sql(TOOK, *grid, start, recent)), "p50_s", "p95_s")
    _fill(buckets, (yield sql(CUT_OFF, *grid, start)), "interrupted")
    _fill(buckets, (yield sql(MESSAGES, *grid, oldest_id(start), start)), "messages")
    _fill(buckets, (yield sql(REPLIES, *grid, oldest_id(start - DAY_S), start)), "delivered", "dead")
    return {"now": now, "step_s": step_s, "from": start, "buckets": buckets}


def _fill(buckets: list[Json], rows: list[Row], *names: str) -> None:
    for place, *values in rows:
        if 0 <= place < len(buckets):  # a clock that was set back may have made rows of the future
            buckets[place].update(zip(names, values, strict=True))
