"""Metrics over time, from stored rows: what a chart shows is the same after a restart.

Rows are found by their id, which grows with time: no table needs another index for this, except for turns that took
so long that their id does not say when they ended.
"""

from __future__ import annotations

from everturn.ids import oldest_id
from everturn.model import Json
from everturn.store.interface import Op, Row, sql

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
