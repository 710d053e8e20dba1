"""Makes a plan that fails smaller, until every message and every fault that is left is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from tests.sim.plan import Plan

T = TypeVar("T")
Fails = Callable[[Plan], bool]
OTHER_LATENCIES = 3  # what is left draws its latencies anew, so each part is tried with those of a few more seeds


def shrunk(plan: Plan, fails: Fails, tries: int = 1000) -> Plan:
    """A plan that fails as well, and has no message and no fault that it does not need, as far as so many tries can tell."""
    left = count(tries, -1)
    while True:
        smaller = _smaller(plan, lambda tried: next(left) > 0 and fails(tried))
        if smaller is None:
            return plan
        plan = smaller


def _smaller(plan: Plan, fails: Fails) -> Plan | None:
    """The first smaller plan that fails, the largest cuts first."""
    for candidate in _candidates(plan):
        for seed in range(plan.seed, plan.seed + OTHER_LATENCIES):
            tried = replace(candidate, seed=seed)
            if fails(tried):
                return tried
    return None


def _candidates(plan: Plan) -> Iterator[Plan]:
    chats = sorted({each.chat for each in plan.said})
    for chat in chats if len(chats) > 1 else ():
        yield replace(plan, said=tuple(each for each in plan.said if each.chat == chat))
    pieces = 2
    while pieces <= 2 * max(len(plan.said), len(plan.faults), 1):
        for said in _without_a_piece(plan.said, pieces):
            yield replace(plan, said=said)
        for faults in _without_a_piece(plan.faults, pieces):
            yield replace(plan, faults=faults)
        pieces *= 2


def _without_a_piece(whole: Sequence[T], pieces: int) -> Iterator[tuple[T, ...]]:
    """The sequence without each of so many pieces of it."""
    size = -(-len(whole) // pieces)
    for start in range(0, len(whole), size) if size else ():
        yield (*whole[:start], *whole[start + size :])
