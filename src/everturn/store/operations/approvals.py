"""Approvals: a call that needs a person's yes lets its turn wait; the answer is a row, and so is what it allows for later."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.decide import approval_words
from everturn.decide.approvals import Scope, approver_of, may_answer, remembered, scope_of
from everturn.decide.exact_text import shown
from everturn.decide.keys import agent_of, origin_of, same_chat
from everturn.errors import FenceLost
from everturn.model import Event, SessionEntry, SessionSource, ToolCall
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.boundaries import release
from everturn.store.operations.bubbles import in_hand, set_aside
from everturn.store.operations.entries import lock_entry, source_of
from everturn.store.operations.telling import Delivery, Fact, events_of, fact, owe, report, tell
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import begin_effect

COLUMNS = "id, key, session_id, turn, tool, person, state, expires_at, answered_at"
ADD = (
    "INSERT INTO approval (id, key, session_id, turn, call_id, tool, question, person, state, asked_at, expires_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9, $10) ON CONFLICT (turn, call_id) DO NOTHING"
)
ALLOW = (
    "INSERT INTO allowance (agent, tool, scope, granted_by, at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (agent, tool, scope) DO NOTHING"
)

ASKED = (
    "SELECT a.tool, a.question, a.state, a.why, e.state FROM approval a"
    " LEFT JOIN effect e ON e.turn=a.turn AND e.call_id=a.call_id WHERE a.turn=$1 AND a.call_id=$2"
)
AUTHORS = "SELECT source FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 ORDER BY place, id"


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What a question may need; `id` is also that of the message that asks it."""

    id: int
    at: float
    expires_s: float
    delivery: Delivery
    approvers: bool = False  # named approvers answer
    said: str = ""  # what the turn's bubble shows
    bubble: int = 0  # the bubble's number from now on; smaller than `id`, so that it has its last shape before


class May(StrEnum):
    """What becomes of a call that needs an approval."""

    ALLOWED = "allowed"  # it is begun
    REFUSED = "refused"  # it never runs; the model is told why
    ASKED = "asked"  # the turn waits and is no longer ours
    LATER = "later"  # nothing happened: what was said before the question is just being put right on the screen


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of asking first."""

    may: May
    why: str = ""  # for the model
    events: tuple[Event, ...] = ()


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer; without an id it is the answer to the newest question of the conversation."""

    allow: bool
    at: float
    by: str | None  # the person, as decide/approvals.approver_of names people
    id: int | None = None
    scope: Scope = Scope.ONCE
    words: str = ""  # why not, for the model
    approvers: tuple[str, ...] = ()


class Outcome(StrEnum):
    """What an answer did."""

    APPROVED = "approved"
    DENIED = "denied"
    NOTHING_ASKED = "nothing_asked"
    NO_LONGER_OPEN = "no_longer_open"
    NOT_YOURS = "not_yours"


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer did, also in words."""

    outcome: Outcome
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


def ask_first(begun: Begun, call: ToolCall, asking: Asking) -> Op[Permission]:
    """Begin a call that needs an approval if it has one; else ask, and let go of the key until the answer is there. An answer
    holds for what was shown, and for one run of it.
    """
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.fence != begun.fence or entry.turn != begun.turn:
        return (yield from _asked_before(begun, asking))
    asked = (call.name, shown(call.ask or ""))
    rows = yield sql(ASKED, begun.turn, call.id)
    *known, state, why, effect = rows[0] if rows else (*asked, None, None, None)
    if tuple(known) != asked:
        return Permission(may=May.REFUSED, why=approval_words.another_call(call.id))
    if state in {"denied", "expired", "closed"}:
        return Permission(may=May.REFUSED, why=approval_words.refused(state, why))
    if (state == "approved" and effect != "done") or (yield from _is_allowed(begun, call.name)):
        yield from begin_effect(begun, call, asking.at)
        return Permission(may=May.ALLOWED)
    if state == "approved":
        return Permission(may=May.REFUSED, why=approval_words.ran_before(call.id))
    if (yield from in_hand(begun.turn)):
        return Permission(may=May.LATER)
    return (yield from _ask(entry, begun, call, asking))


def _asked_before(begun: Begun, asking: Asking) -> Op[Permission]:
    """For an operation that runs twice: it asked, and so it no longer has the key."""
    if not (yield sql("SELECT 1 FROM approval WHERE id=$1", asking.id)):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    return Permission(may=May.ASKED, events=(yield from events_of(begun.key, asking.id)))


def _is_allowed(begun: Begun, tool: str) -> Op[bool]:
    """Whether everybody whose words the turn answers has a yes that is remembered: nobody acts with another's."""
    for person in (yield from _authors(begun)):
        if not (yield from _has_yes(begun, tool, person)):
            return False
    return True


def _has_yes(begun: Begun, tool: str, person: str | None) -> Op[bool]:
    for scope in remembered(begun.session_id, begun.key, person):
        found = yield sql(
            "SELECT 1 FROM allowance WHERE agent=$1 AND tool=$2 AND scope=$3", agent_of(begun.key), tool, scope
        )
        if found:
            return True
    return False


def _authors(begun: Begun) -> Op[list[str | None]]:
    """Whose words are part of the turn by its rows, who began it first."""
    rows = yield sql(AUTHORS, begun.key, begun.turn)
    sources = [source_of(row[0]) or begun.source for row in rows] or [begun.source]
    return list(dict.fromkeys(approver_of(source) for source in sources))


def _ask(entry: SessionEntry, begun: Begun, call: ToolCall, asking: Asking) -> Op[Permission]:
    """The question, the obligation to deliver it, and the turn that waits: one transaction, and nothing is held."""
    expires_at = asking.at + asking.expires_s
    ask = shown(call.ask or "")
    text = approval_words.question(call.name, ask, asking.id, asking.expires_s, approvers=asking.approvers)
    yield sql(
        ADD, asking.id, begun.key, begun.session_id, begun.turn, call.id, call.name, ask,
        (yield from _authors(begun))[0], asking.at, expires_at,
    )  # fmt: skip
    yield from _let_wait(entry, begun, asking.at)
    by_event = asking.delivery.by_event
    if not by_event:
        yield from set_aside(begun, asking.bubble, asking.said, asking.at)
    yield from owe(
        asking.id, begun.key, begun.turn, "question", begun.source, text, asking.at, Delivery(by_event=by_event), 0
    )
    turn = str(begun.turn)
    facts = [
        fact("approval", asking.at, id=str(asking.id), turn=turn, tool=call.name, state="open", question=ask,
             text=text, expires_at=expires_at),
        fact("turn", asking.at, turn=turn, state="waiting", attempt=begun.attempt),
    ]  # fmt: skip
    events = yield from report(begun.key, entry.event_seq, facts if by_event else [], asking.id)
    return Permission(may=May.ASKED, events=events)


def _let_wait(entry: SessionEntry, begun: Begun, at: float) -> Op[None]:
    yield sql(
        "INSERT INTO attempt (turn, attempt, instance, note, started_at, ended_at, why)"
        " SELECT id, attempt, instance, note, attempt_at, $2, 'waits for an approval' FROM turn WHERE id=$1"
        " ON CONFLICT (turn, attempt) DO NOTHING",
        begun.turn,
        at,
    )
    yield sql("UPDATE turn SET state='waiting', instance=NULL WHERE id=$1 AND state='running'", begun.turn)
    yield from release(entry, keep_turn=True)


def answer_question(entry: SessionEntry, answer: ApprovalAnswer) -> Op[tuple[Answered, list[Fact]]]:
    """As a part of an operation that has locked the entry and stores its facts. The question may be of another key."""
    approval = yield from _find(entry.key, answer.id)
    if approval is not None and approval.key != entry.key:
        yield from lock_entry(approval.key)
        approval = yield from _find(approval.key, approval.id)
    if approval is None:
        return Answered(outcome=Outcome.NOTHING_ASKED, text=approval_words.nothing_asked()), []
    refusal = _refusal(approval, answer, there=same_chat(entry.key, approval.key))
    if refusal is not None:
        return refusal, []
    said = _said(approval, answer)
    yield from _write(approval, answer, said.outcome)
    told = fact(
        "approval", answer.at, id=str(approval.id), turn=str(approval.turn), tool=approval.tool, state=said.outcome
    )
    return said, [told] if approval.key == entry.key else []


def _find(key: str, number: int | None) -> Op[_Approval | None]:
    """The question with this number, else the key's newest: a turn asks one at a time."""
    if number is not None:
        rows = yield sql(f"SELECT {COLUMNS} FROM approval WHERE id=$1", number)
    else:
        rows = yield sql(f"SELECT {COLUMNS} FROM approval WHERE key=$1 ORDER BY id DESC LIMIT 1", key)
    return _Approval(*rows[0]) if rows else None


def _refusal(approval: _Approval, answer: ApprovalAnswer, *, there: bool) -> Answered | None:
    # Rows of an earlier version name nobody for the token.
    asked_for = approval.person or approver_of(SessionSource(platform=origin_of(approval.key)[0]))
    if not may_answer(asked_for, answer.by, allow=answer.allow, approvers=answer.approvers, there=there):
        text = approval_words.not_yours(approvers=bool(answer.approvers))
        return Answered(outcome=Outcome.NOT_YOURS, text=text)
    if approval.answered_at is None and answer.at < approval.expires_at:
        return None
    if answer.id is None and approval.answered_at is not None:
        return Answered(outcome=Outcome.NOTHING_ASKED, text=approval_words.nothing_asked())
    return Answered(outcome=Outcome.NO_LONGER_OPEN, text=approval_words.no_longer_open())


def _said(approval: _Approval, answer: ApprovalAnswer) -> Answered:
    if answer.allow:
        text = approval_words.approved(approval.tool, answer.scope)
        return Answered(outcome=Outcome.APPROVED, text=text)
    return Answered(outcome=Outcome.DENIED, text=approval_words.denied(approval.tool))


def _write(approval: _Approval, answer: ApprovalAnswer, state: str) -> Op[None]:
    yield sql(
        "UPDATE approval SET state=$2, answered_at=$3, answered_by=$4, why=$5 WHERE id=$1 AND answered_at IS NULL",
        approval.id,
        str(state),
        answer.at,
        answer.by or "",
        answer.words.strip() or None,
    )
    scope = scope_of(answer.scope, approval.session_id, approval.key, approval.person) if answer.allow else None
    if scope is not None:
        yield sql(ALLOW, agent_of(approval.key), approval.tool, scope, answer.by, answer.at)


def decided_calls(turn: int) -> Op[set[str]]:
    """The calls of a turn whose question has its answer."""
    rows = yield sql("SELECT call_id FROM approval WHERE turn=$1 AND answered_at IS NOT NULL", turn)
    return {row[0] for row in rows}


def due_approvals(now: float) -> Op[list[tuple[int, str]]]:
    """Open questions whose time is over: number and key."""
    rows = yield sql(
        "SELECT id, key FROM approval WHERE answered_at IS NULL AND expires_at<=$1 ORDER BY expires_at LIMIT 500", now
    )
    return [(row[0], row[1]) for row in rows]


def expire_approval(number: int, key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Nobody answered in time: the call is not run, its user is told, the turn goes on."""
    entry = yield from lock_entry(key)
    rows: list[Row] = yield sql(
        "UPDATE approval SET state='expired', answered_at=$2 WHERE id=$1 AND answered_at IS NULL RETURNING tool, turn",
        number,
        at,
    )
    if entry is None or not rows:
        return (yield from events_of(key, notice))  # what this operation told when it ran before
    tool, turn = rows[0]
    text = approval_words.expired(tool)
    facts = yield from tell(notice, key, entry.origin, text, "approval_expired", at, delivery, turn)
    if delivery.by_event:
        facts = [*facts, fact("approval", at, id=str(number), turn=str(turn), tool=tool, state="expired")]
    return (yield from report(key, entry.event_seq, facts, notice))
