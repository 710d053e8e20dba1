"""Ring one with questions, spending and a compaction: die, or be cancelled, at every hit of every point."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from everturn import points
from everturn.decide.spending import Limits
from tests.crash.asking import AskingAgent, asks
from tests.crash.lives import CANCELLED, DIED, DONE, Death, Life, undisturbed
from tests.crash.outside import history_of, transcript_of
from tests.crash.processes import run_life
from tests.crash.test_model_points import homes_of
from tests.crash.test_points import ENGINES_BY_TURNS, Homes, hits_of
from tests.history import problems

MUST_VISIT = {"approval.asked", "approval.answered", "session.compacted", "effect.begun", "effect.acted"}
ROLES = ["summary", "user", "assistant", "tool", "tool", "assistant"]


def fresh(homes: Homes, death: Death | None = None) -> Life:
    life = homes.fresh("given", death)
    settings = replace(life.settings, limits=Limits(turn_tokens=10**6, total_tokens_day=10**9))
    return replace(life, agent=AskingAgent, play=asks, settings=settings)


def check(life: Life, where: object) -> None:
    """Nothing lost, doubled or run without a yes; the key stands on the child, with every call and its result."""
    assert problems(history_of(life)) == [], where
    assert [row.role for row in transcript_of(life)] == ROLES, where


def end_at(homes: Homes, death: Death) -> int:
    """End there, then let the next life go on; how it ended."""
    life = fresh(homes, death)
    code = run_life(life)
    assert code in {CANCELLED if death.cancel else DIED, DONE}, (death, code)
    if code != DONE:
        assert run_life(undisturbed(life)) == DONE, death
    check(life, death)
    homes.forget(life)
    return code


def die_at_every_hit(homes: Homes, point: str) -> int:
    """Die at the first, second, ... hit until a life passes with none left; returns how many deaths there were."""
    return sum(1 for _ in itertools.takewhile(lambda hit: end_at(homes, Death(point, hit)) == DIED, itertools.count(1)))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES_BY_TURNS)
def test_a_death_at_any_point_asks_nothing_twice_and_runs_nothing_without_a_yes(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    homes = homes_of(engine, request, tmp_path)
    first = fresh(homes)
    hits = hits_of(first)
    check(first, "undisturbed")
    homes.forget(first)
    deaths = {point: die_at_every_hit(homes, point) for point in hits}
    assert deaths.keys() <= points.ALL
    assert deaths.keys() >= MUST_VISIT
    assert all(deaths.values()), deaths


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES_BY_TURNS)
@pytest.mark.parametrize("point", sorted(MUST_VISIT))
def test_a_cancellation_there_does_no_harm(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, point: str
) -> None:
    homes = homes_of(engine, request, tmp_path)
    for hit in (1, 2):
        end_at(homes, Death(point, hit, cancel=True))
