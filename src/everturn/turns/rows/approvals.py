"""Approvals in the database: store a request and release the turn, store the answer and what it allows for later."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.errors import FenceLost
from everturn.model import Event, SessionEntry, SessionSource, ToolCall
from everturn.outbox.rows.replies import Fact, events_of, fact, queue_notice, queue_reply, report
from everturn.outbox.rows.streaming import detach_bubble, is_being_sent
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.boundaries import release
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.sessions.rules.keys import agent_of, origin_of, same_chat
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import begin_effect
from everturn.turns.rules import turn_texts
from everturn.turns.rules.approvals import ApprovalScope, approver_of, may_answer, remembered, scope_of, shown

COLUMNS = "id, key, session_id, turn, tool, person, state, expires_at, answered_at"
ADD = (
    "INSERT INTO approval (id, key, session_id, turn, call_id, tool, request, person, state, asked_at, expires_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9, $10) ON CONFLICT (turn, call_id) DO NOTHING"
)
ALLOW = (
    "INSERT INTO allowance (agent, tool, scope, granted_by, at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (agent, tool, scope) DO NOTHING"
)

FIND_REQUEST = (
    "SELECT a.tool, a.request, a.state, a.why, e.state FROM approval a"
    " LEFT JOIN effect e ON e.turn=a.turn AND e.call_id=a.call_id WHERE a.turn=$1 AND a.call_id=$2"
)
AUTHORS = "SELECT source FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 ORDER BY place, id"


class ApprovalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The values an approval request may need; `id` is also that of the message that shows it."""

    id: int
    at: float
    expires_s: float
    delivery: Delivery
    approvers: bool = False  # only named approvers may approve
    said: str = ""  # what the turn's streaming message shows
    bubble: int = 0  # the streaming message's id from now on; smaller than `id`, so that its final text is sent first


class May(StrEnum):
    """What becomes of a call that needs an approval."""

    ALLOWED = "allowed"  # it is begun
    REFUSED = "refused"  # it never runs; the model gets the reason
    REQUESTED = "requested"  # the request is stored, the turn is no longer ours
    LATER = "later"  # nothing happened: the streaming message is just being sent or edited


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a call may run, and the events of its approval request."""

    may: May
    why: str = ""  # for the model
    events: tuple[Event, ...] = ()


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer; without an id it answers the newest approval request of the conversation."""

    allow: bool
    at: float
    by: str | None  # the person, as turns/rules/approvals.approver_of names people
    id: int | None = None
    scope: ApprovalScope = ApprovalScope.ONCE
    text: str = ""  # why not, for the model
    approvers: tuple[str, ...] = ()


class ApprovalOutcome(StrEnum):
    """The outcome of an answer to an approval request."""

    APPROVED = "approved"
    DENIED = "denied"
    NOTHING_ASKED = "nothing_asked"
    NO_LONGER_OPEN = "no_longer_open"
    NOT_YOURS = "not_yours"


class AnswerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an answer, and the text for the person."""

    outcome: ApprovalOutcome
    text: str


class _Approval(msgspec.Struct, frozen=True):
    id: int
    key: str
    session_id: str
    turn: int
    tool: str
    person: str | None
    state: str
    expires_at: float
    answered_at: float | None


def begin_approved(begun: StartedTurn, call: ToolCall, terms: ApprovalTerms) -> Op[Permission]:
    """Begin a call that is approved; else store an approval request and release the key until it is answered. An answer
    holds for the call that was shown, and for one run of it.
    """
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.fence != begun.fence or entry.turn != begun.turn:
        return (yield from _requested_before(begun, terms))
    asked = (call.name, shown(call.ask or ""))
    rows = yield sql(FIND_REQUEST, begun.turn, call.id)
    *known, state, why, effect = rows[0] if rows else (*asked, None, None, None)
    if tuple(known) != asked:
        return Permission(may=May.REFUSED, why=turn_texts.another_call(call.id))
    if state in {"denied", "expired", "closed"}:
        return Permission(may=May.REFUSED, why=turn_texts.refused(state, why))
    if (state == "approved" and effect != "done") or (yield from _is_allowed(begun, call.name)):
        yield from begin_effect(begun, call, terms.at)
        return Permission(may=May.ALLOWED)
    if state == "approved":
        return Permission(may=May.REFUSED, why=turn_texts.ran_before(call.id))
    if (yield from is_being_sent(begun.turn)):
        return Permission(may=May.LATER)
    return (yield from _request(entry, begun, call, terms))


def _requested_before(begun: StartedTurn, terms: ApprovalTerms) -> Op[Permission]:
    """For an operation that runs twice: its first run stored the request and released the key."""
    if not (yield sql("SELECT 1 FROM approval WHERE id=$1", terms.id)):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    return Permission(may=May.REQUESTED, events=(yield from events_of(begun.key, terms.id)))


def _is_allowed(begun: StartedTurn, tool: str) -> Op[bool]:
    """Whether every author of the turn has a remembered approval for the tool: nobody acts with another's."""
    for person in (yield from _authors(begun)):
        if not (yield from _has_allowance(begun, tool, person)):
            return False
    return True


def _has_allowance(begun: StartedTurn, tool: str, person: str | None) -> Op[bool]:
    for scope in remembered(begun.session_id, begun.key, person):
        found = yield sql(
            "SELECT 1 FROM allowance WHERE agent=$1 AND tool=$2 AND scope=$3", agent_of(begun.key), tool, scope
        )
        if found:
            return True
    return False


def _authors(begun: StartedTurn) -> Op[list[str | None]]:
    """The authors of the turn's messages; who began it comes first."""
    rows = yield sql(AUTHORS, begun.key, begun.turn)
    sources = [source_of(row[0]) or begun.source for row in rows] or [begun.source]
    return list(dict.fromkeys(approver_of(source) for source in sources))


def _request(entry: SessionEntry, begun: StartedTurn, call: ToolCall, terms: ApprovalTerms) -> Op[Permission]:
    """Store the approval request, its pending message and the turn's state in one transaction, and release the key."""
    expires_at = terms.at + terms.expires_s
    ask = shown(call.ask or "")
    text = turn_texts.request(call.name, ask, terms.id, terms.expires_s, approvers=terms.approvers)
    yield sql(
        ADD, terms.id, begun.key, begun.session_id, begun.turn, call.id, call.name, ask,
        (yield from _authors(begun))[0], terms.at, expires_at,
    )  # fmt: skip
    yield from _await_approval(entry, begun, terms.at)
    by_event = terms.delivery.by_event
    if not by_event:
        yield from detach_bubble(begun, terms.bubble, terms.said, terms.at)
    yield from queue_reply(
        terms.id,
        begun.key,
        begun.turn,
        "approval_request",
        begun.source,
        text,
        terms.at,
        Delivery(by_event=by_event),
        0,
    )
    turn = str(begun.turn)
    facts = [
        fact("approval", terms.at, id=str(terms.id), turn=turn, tool=call.name, state="open", request=ask,
             text=text, expires_at=expires_at),
        fact("turn", terms.at, turn=turn, state="awaiting_approval", attempt=begun.attempt),
    ]  # fmt: skip
    events = yield from report(begun.key, entry.event_seq, facts if by_event else [], terms.id)
    return Permission(may=May.REQUESTED, events=events)


def _await_approval(entry: SessionEntry, begun: StartedTurn, at: float) -> Op[None]:
    yield sql(
        "INSERT INTO attempt (turn, attempt, instance, note, started_at, ended_at, why)"
        " SELECT id, attempt, instance, note, attempt_at, $2, 'waits for an approval' FROM turn WHERE id=$1"
        " ON CONFLICT (turn, attempt) DO NOTHING",
        begun.turn,
        at,
    )
    yield sql("UPDATE turn SET state='awaiting_approval', instance=NULL WHERE id=$1 AND state='running'", begun.turn)
    yield from release(entry, keep_turn=True)


def answer_request(entry: SessionEntry, answer: ApprovalAnswer) -> Op[tuple[AnswerResult, list[Fact]]]:
    """Store an answer, within an operation that has locked the entry and stores its facts. The request may be of another key."""
    approval = yield from _find(entry.key, answer.id)
    if approval is not None and approval.key != entry.key:
        yield from lock_entry(approval.key)
        approval = yield from _find(approval.key, approval.id)
    if approval is None:
        return AnswerResult(outcome=ApprovalOutcome.NOTHING_ASKED, text=turn_texts.nothing_asked()), []
    refusal = _refusal(approval, answer, there=same_chat(entry.key, approval.key))
    if refusal is not None:
        return refusal, []
    said = _result(approval, answer)
    yield from _write(approval, answer, said.outcome)
    told = fact(
        "approval", answer.at, id=str(approval.id), turn=str(approval.turn), tool=approval.tool, state=said.outcome
    )
    return said, [told] if approval.key == entry.key else []


def _find(key: str, number: int | None) -> Op[_Approval | None]:
    """The approval request with this number, else the key's newest: a turn has one at a time."""
    if number is not None:
        rows = yield sql(f"SELECT {COLUMNS} FROM approval WHERE id=$1", number)
    else:
        rows = yield sql(f"SELECT {COLUMNS} FROM approval WHERE key=$1 ORDER BY id DESC LIMIT 1", key)
    return _Approval(*rows[0]) if rows else None


def _refusal(approval: _Approval, answer: ApprovalAnswer, *, there: bool) -> AnswerResult | None:
    # Rows of an earlier version name nobody for the token.
    asked_for = approval.person or approver_of(SessionSource(platform=origin_of(approval.key)[0]))
    if not may_answer(asked_for, answer.by, allow=answer.allow, approvers=answer.approvers, there=there):
        text = turn_texts.not_yours(approvers=bool(answer.approvers))
        return AnswerResult(outcome=ApprovalOutcome.NOT_YOURS, text=text)
    if approval.answered_at is None and answer.at < approval.expires_at:
        return None
    if answer.id is None and approval.answered_at is not None:
        return AnswerResult(outcome=ApprovalOutcome.NOTHING_ASKED, text=turn_texts.nothing_asked())
    return AnswerResult(outcome=ApprovalOutcome.NO_LONGER_OPEN, text=turn_texts.no_longer_open())


def _result(approval: _Approval, answer: ApprovalAnswer) -> AnswerResult:
    if answer.allow:
        text = turn_texts.approved(approval.tool, answer.scope)
        return AnswerResult(outcome=ApprovalOutcome.APPROVED, text=text)
    return AnswerResult(outcome=ApprovalOutcome.DENIED, text=turn_texts.denied(approval.tool))


def _write(approval: _Approval, answer: ApprovalAnswer, state: str) -> Op[None]:
    yield sql(
        "UPDATE approval SET state=$2, answered_at=$3, answered_by=$4, why=$5 WHERE id=$1 AND answered_at IS NULL",
        approval.id,
        str(state),
        answer.at,
        answer.by or "",
        answer.text.strip() or None,
    )
    scope = scope_of(answer.scope, approval.session_id, approval.key, approval.person) if answer.allow else None
    if scope is not None:
        yield sql(ALLOW, agent_of(approval.key), approval.tool, scope, answer.by, answer.at)


def decided_calls(turn: int) -> Op[set[str]]:
    """The calls of a turn whose approval request is answered."""
    rows = yield sql("SELECT call_id FROM approval WHERE turn=$1 AND answered_at IS NOT NULL", turn)
    return {row[0] for row in rows}


def due_approvals(now: float) -> Op[list[tuple[int, str]]]:
    """Open approval requests that are past their expiry: number and key."""
    rows = yield sql(
        "SELECT id, key FROM approval WHERE answered_at IS NULL AND expires_at<=$1 ORDER BY expires_at LIMIT 500", now
    )
    return [(row[0], row[1]) for row in rows]


def expire_approval(number: int, key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Expire an approval request: the call does not run, its user gets a notice, the turn goes on."""
    entry = yield from lock_entry(key)
    rows: list[Row] = yield sql(
        "UPDATE approval SET state='expired', answered_at=$2 WHERE id=$1 AND answered_at IS NULL RETURNING tool, turn",
        number,
        at,
    )
    if entry is None or not rows:
        return (yield from events_of(key, notice))  # the events of an earlier run of this operation
    tool, turn = rows[0]
    text = turn_texts.expired(tool)
    facts = yield from queue_notice(notice, key, entry.origin, text, "approval_expired", at, delivery, turn)
    if delivery.by_event:
        facts = [*facts, fact("approval", at, id=str(number), turn=str(turn), tool=tool, state="expired")]
    return (yield from report(key, entry.event_seq, facts, notice))
