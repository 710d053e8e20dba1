"""Count what model calls use: reserved before a call, settled with its step, so that no crash loop spends past a limit."""

from __future__ import annotations

import msgspec

from everturn.errors import Spent
from everturn.model import Usage
from everturn.operator.rules.timeline import LOST
from everturn.store.interface import Op, Row, Statement, sql
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rules.spending import EVERYBODY, SpendingLimits, lost_call, passes_day, passes_turn

PLANNED = "planned_tokens, planned_cost, planned_day, planned_spender"
USED = "requests, input_tokens, output_tokens, cached_tokens, cost"
ADD_USAGE = (
    "requests=requests+$2, input_tokens=input_tokens+$3, output_tokens=output_tokens+$4,"
    " cached_tokens=cached_tokens+$5, cost=coalesce(cost+$6, cost, $6)"
)
SPEND = (
    "INSERT INTO spending (spender, day, tokens, cost) VALUES ($1, $2, $3, $4) ON CONFLICT (spender, day) DO UPDATE"
    " SET tokens=spending.tokens+excluded.tokens, cost=spending.cost+excluded.cost RETURNING tokens, cost"
)
ASKED = "asked_requests=$2, asked_input=$3, asked_output=$4, asked_cost=$5, called=attempt"
ADD_LOST = (
    "INSERT INTO failure (turn, number, attempt, kind, why, wait_s, at)"
    " VALUES ($1, (SELECT coalesce(max(number), 0)+1 FROM failure WHERE turn=$1 AND number>0), $2, $3, $4, 0, $5)"
)
LONGEST_CHAIN = 1000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one model call may use at most; `call` is its number, made by the caller."""

    call: int
    tokens: int
    cost: float
    day: str
    spender: str
    limits: SpendingLimits
    asked: Usage = Usage()  # the same as usage, for a call whose end is not seen


def add_plan(begun: StartedTurn, plan: Plan) -> Op[None]:
    """Count a model call before it is made, and store that it is made. Raises Spent, and counts nothing, when it would pass a limit.

    What is still planned belongs to a call whose end was not seen: it stays counted.
    """
    rows = yield sql(
        "SELECT input_tokens+output_tokens+lost_tokens+planned_tokens, coalesce(cost, 0)+lost_cost+planned_cost,"
        " planned_call FROM turn WHERE id=$1",
        begun.turn,
    )
    tokens, cost, call = rows[0]
    if call == plan.call:
        return  # this operation ran before
    _refuse(passes_turn(plan.limits, tokens + plan.tokens, cost + plan.cost))
    by_day = plan.limits.by_day()
    for spender in (plan.spender, EVERYBODY) if by_day else ():
        spent = yield sql(SPEND, spender, plan.day, plan.tokens, plan.cost)
        _refuse(passes_day(plan.limits, spender, *spent[0]))
    yield sql(
        "UPDATE turn SET lost_tokens=lost_tokens+planned_tokens, lost_cost=lost_cost+planned_cost, planned_tokens=$2,"
        " planned_cost=$3, planned_day=$4, planned_spender=$5, planned_call=$6, asked_requests=$7, asked_input=$8,"
        " asked_output=$9, asked_cost=$10, called=attempt WHERE id=$1",
        begun.turn, plan.tokens, plan.cost, plan.day if by_day else None, plan.spender, plan.call,
        plan.asked.requests, plan.asked.input_tokens, plan.asked.output_tokens, plan.asked.cost,
    )  # fmt: skip


def mark_call(turn: int, attempt: int, asked: Usage) -> Statement:
    """The statement that marks a model call without limits and its expected use; no row: another attempt runs."""
    return sql(
        f"UPDATE turn SET {ASKED} WHERE id=$1 AND state='running' AND attempt=$6/*did*/",
        turn, asked.requests, asked.input_tokens, asked.output_tokens, asked.cost, attempt,
    )  # fmt: skip


def count_lost_call(turn: int | None, at: float) -> Op[None]:
    """Count a model call that was cut off before its response was stored: it was probably paid for. What it was expected to
    use becomes used; a reservation of the day stays, and the turn no longer holds it. Once: the turn then has no open call.
    """
    rows = yield sql(
        "UPDATE turn SET asked_requests=0 WHERE id=$1 AND asked_requests>0"
        " RETURNING attempt, attempt_at, session_id, asked_input, asked_output, asked_cost",
        turn,
    )
    if not rows or turn is None:
        return
    attempt, began_at, session_id, input_tokens, output_tokens, cost = rows[0]
    used = (1, input_tokens, output_tokens, 0, cost)
    forget = "planned_tokens=0, planned_cost=0, planned_day=NULL, planned_spender=NULL"
    yield sql(f"UPDATE turn SET {ADD_USAGE}, {forget} WHERE id=$1", turn, *used)
    yield sql(f"UPDATE session SET {ADD_USAGE} WHERE session_id=$1", session_id, *used)
    yield sql(ADD_LOST, turn, attempt, LOST, lost_call(input_tokens + output_tokens), max(at, began_at))


def _refuse(why: str | None) -> None:
    if why is not None:
        raise Spent(why)


def count_usage(begun: StartedTurn, usage: Usage) -> Op[None]:
    """Add what a model call used to its turn and its session, in place of what was planned; failures before it are over."""
    used = (usage.requests, usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost)
    rows = yield sql(
        f"UPDATE turn SET {ADD_USAGE}, failures=0, asked_requests=0 WHERE id=$1 RETURNING {PLANNED}", begun.turn, *used
    )
    yield sql(f"UPDATE session SET {ADD_USAGE} WHERE session_id=$1", begun.session_id, *used)
    yield from _settle(begun, rows[0], usage.input_tokens + usage.output_tokens, usage.cost or 0.0)


def count_failed_call(begun: StartedTurn, usage: Usage) -> Op[None]:
    """Add what a failed model call used, in place of what was planned: nothing, unless the model had begun to answer."""
    used = (usage.requests, usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost)
    rows = yield sql(
        f"UPDATE turn SET {ADD_USAGE}, failures=failures+1, asked_requests=0 WHERE id=$1 RETURNING {PLANNED}",
        begun.turn,
        *used,
    )
    if usage.requests:
        yield sql(f"UPDATE session SET {ADD_USAGE} WHERE session_id=$1", begun.session_id, *used)
    yield from _settle(begun, rows[0], usage.input_tokens + usage.output_tokens, usage.cost or 0.0)


def count_call_apart(begun: StartedTurn, usage: Usage) -> Op[None]:
    """Add what a call apart from the conversation used: a picture that was described, a summary that failed. Once: the turn
    then has no open call.
    """
    used = (usage.requests, usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost)
    rows = yield sql(
        f"UPDATE turn SET {ADD_USAGE}, asked_requests=0 WHERE id=$1 AND asked_requests>0 RETURNING {PLANNED}",
        begun.turn,
        *used,
    )
    if rows:
        yield sql(f"UPDATE session SET {ADD_USAGE} WHERE session_id=$1", begun.session_id, *used)
        yield from _settle(begun, rows[0], usage.input_tokens + usage.output_tokens, usage.cost or 0.0)


def _settle(begun: StartedTurn, planned: Row, tokens: int, cost: float) -> Op[None]:
    planned_tokens, planned_cost, day, spender = planned
    if spender is None:
        return  # nothing was planned
    for each in (spender, EVERYBODY) if day is not None else ():
        yield sql(
            "UPDATE spending SET tokens=tokens+$3, cost=cost+$4 WHERE spender=$1 AND day=$2",
            each,
            day,
            tokens - planned_tokens,
            cost - planned_cost,
        )
    yield sql(
        "UPDATE turn SET planned_tokens=0, planned_cost=0, planned_day=NULL, planned_spender=NULL WHERE id=$1",
        begun.turn,
    )


def usage_of_turn(turn: int) -> Op[Usage]:
    """What a turn used so far."""
    rows = yield sql(f"SELECT {USED} FROM turn WHERE id=$1", turn)
    return Usage(*rows[0]) if rows else Usage()


def usage_of_session(session_id: str) -> Op[Usage]:
    """What a conversation used so far, with the sessions from which it was compacted."""
    total = Usage()
    for _ in range(LONGEST_CHAIN):
        rows = yield sql(
            f"SELECT {', '.join('s.' + name for name in USED.split(', '))}, p.session_id FROM session s LEFT JOIN session p"
            " ON p.session_id=s.parent AND p.end_reason='compaction' WHERE s.session_id=$1",
            session_id,
        )
        if not rows:
            break
        total = _sum(total, Usage(*rows[0][:5]))
        if rows[0][5] is None:
            break
        session_id = rows[0][5]
    return total


def last_turn(session_id: str) -> Op[int | None]:
    """The turn that wrote the newest row of a session."""
    rows = yield sql(
        "SELECT turn FROM message WHERE session_id=$1 AND turn IS NOT NULL ORDER BY seq DESC LIMIT 1", session_id
    )
    return int(rows[0][0]) if rows else None


def _sum(one: Usage, other: Usage) -> Usage:
    costs = [each.cost for each in (one, other) if each.cost is not None]
    return Usage(
        requests=one.requests + other.requests,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        cost=sum(costs) if costs else None,
    )
