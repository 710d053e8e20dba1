"""Ring one with a language model: die at every hit of the points of a turn; then look at every request the model saw."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from everturn import points
from tests.crash.lives import DIED, DONE, Death, Life, undisturbed
from tests.crash.models import ModelProcess, asks
from tests.crash.outside import history_of, transcript_of
from tests.crash.processes import run_life
from tests.crash.test_points import Homes
from tests.history import problems
from tests.model_history import model_problems

# A step of the turn, and what surrounds it; `make torture` visits every point.
POINTS = ("step.committed", "effect.acted", "turn.finished")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelProcess]:
    with ModelProcess(tmp_path_factory.mktemp("model")) as process:
        yield process


ON_POSTGRES = ("effect.acted",)
STORIES = [("sqlite", point) for point in POINTS] + [("postgres", point) for point in ON_POSTGRES]


def homes_of(engine: str, request: pytest.FixtureRequest, folder: Path) -> Homes:
    server = request.getfixturevalue("postgres") if engine == "postgres" else None
    return Homes(engine, folder, server)


def check(life: Life, model: ModelProcess, where: object) -> None:
    """Nothing lost, nothing doubled, nothing asked again."""
    assert problems(history_of(life)) == [], where
    assert model_problems(model.news(), transcript_of(life)) == [], where


def die_at_every_hit(homes: Homes, model: ModelProcess, point: str) -> int:
    """Die at the first, second, ... hit until a life passes with none left; returns how many deaths there were."""
    for hit in itertools.count(1):
        life = replace(homes.fresh("model", Death(point, hit)), agent=asks(model.base_url))
        code = run_life(life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert run_life(undisturbed(life)) == DONE, (point, hit)
        check(life, model, (point, hit))
        homes.forget(life)
        if code == DONE:
            return hit - 1
    raise AssertionError


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("engine", "point"), STORIES)
def test_a_model_turn_survives_a_death_at_any_point(
    request: pytest.FixtureRequest, tmp_path: Path, model: ModelProcess, engine: str, point: str
) -> None:
    """Promises 4, 5 and 7 with a model that streams and several tool calls."""
    assert die_at_every_hit(homes_of(engine, request, tmp_path), model, point) > 0


# What a model turn does not pass: approvals, compaction, commands and messages that tools send have stories of their own.
OTHERS = (
    "approval.",
    "session.",
    "command.",
    "action.",
    "restart.",
    "person.",
    "channels.",
    "backlog.",
    "message.",
    "media.",
    "chat.",
    "doubt.",
    "preview.removed",
    "drain.",
    "turn.failed",
    "turn.joined",
    "turn.told",
)
PASSED = sorted(name for name in points.ALL if not name.startswith(OTHERS))


@pytest.mark.torture
@pytest.mark.parametrize("point", PASSED)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_model_turn_survives_a_death_at_every_point_on_both_engines(
    request: pytest.FixtureRequest, tmp_path: Path, model: ModelProcess, engine: str, point: str
) -> None:
    """From the door to the delivery, recovery included: a point that an undisturbed life does not pass costs one life."""
    deaths = die_at_every_hit(homes_of(engine, request, tmp_path), model, point)
    print(f"{engine} {point}: {deaths} deaths with a model")  # noqa: T201  torture shows what it did
