"""Ring one: what a death at every hit of every crash point leaves, on both engines; then the next process, then the history
checker. Most of these deaths are images of a process that is stopped there; those of some scenarios are real.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash import recorded
from tests.crash.gateway_process import CANCELLED, DIED, DONE, Death, undisturbed
from tests.crash.homes import Homes
from tests.crash.images import images_of
from tests.crash.models import ModelProcess
from tests.crash.outside import history_of
from tests.crash.processes import run_gateway, run_gateways
from tests.crash.scenarios import SCENARIOS
from tests.empty import EmptyFile
from tests.history import problems

ENGINES = ("sqlite", "postgres")
# The model's log would tell of what came after an image; the other one shows that deaths leave what images do.
REALLY_DYING = ("model", "tools")
CANCELLED_TOO = [name for name, scenario in SCENARIOS.items() if scenario.cancelled]


def points_of(name: str) -> list[str]:
    """The points that a scenario visits. One that was never recorded has one, which says so."""
    return list(SCENARIOS[name].only or recorded.hits_of(name) or ["not recorded"])


def visits(names: Iterable[str] = SCENARIOS) -> list[tuple[str, str, str]]:
    """Engine, scenario and point of each visit."""
    return [(engine, name, point) for name in names for point in points_of(name) for engine in ENGINES]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelProcess]:
    with ModelProcess(tmp_path_factory.mktemp("model")) as process:
        yield process


@pytest.fixture
def homes(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, empty_file: EmptyFile, model: ModelProcess
) -> Homes:
    database = request.getfixturevalue("reused_database") if engine == "postgres" else ""
    return Homes(tmp_path, empty_file, model, database)


def end_at(homes: Homes, name: str, death: Death) -> None:
    """A process that ends there, and the next one. A cancellation may end the process, or only what reached the point."""
    scenario, at = SCENARIOS[name], (name, death)
    gateway_process = scenario.fresh(homes, death)
    code = run_gateway(gateway_process)
    assert code in ({CANCELLED, DONE} if death.cancel else {DIED}), (at, code)
    if code != DONE:
        assert run_gateway(undisturbed(gateway_process)) == DONE, at
    scenario.check(gateway_process, at)


@pytest.mark.prove
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_passes_the_points_that_were_recorded(homes: Homes, name: str) -> None:
    """A process that nobody disturbs ends well, and its points are those on the list."""
    scenario = SCENARIOS[name]
    gateway_process = scenario.fresh(homes, None)
    assert run_gateway(gateway_process) == DONE
    scenario.check(gateway_process, "undisturbed")
    recorded.check(name, json.loads((gateway_process.folder / "hits").read_text()))


@pytest.mark.prove
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in REALLY_DYING])
def test_what_a_death_at_any_point_leaves_is_taken_up_without_loss_or_double(homes: Homes, name: str) -> None:
    """Promises 1 to 8, wherever the process dies."""
    scenario = SCENARIOS[name]
    gateway_process = scenario.fresh(homes, None)
    images = list(images_of(gateway_process, points_of(name)))
    assert Counter(image.point for image in images) == {each: recorded.hits_of(name)[each] for each in points_of(name)}
    for image in images:
        left, at = image.restored(gateway_process), (name, image.point, image.hit)
        assert run_gateway(left) == DONE, at
        scenario.check(left, at)
        shutil.rmtree(image.folder)


@pytest.mark.prove
@pytest.mark.parametrize(("engine", "name", "point"), visits(REALLY_DYING))
def test_a_death_at_a_point_loses_and_doubles_nothing(homes: Homes, name: str, point: str) -> None:
    """Promises 1 to 8, wherever the process dies."""
    for hit in range(1, recorded.hits_of(name)[point] + 1):
        end_at(homes, name, Death(point, hit))


@pytest.mark.prove
@pytest.mark.parametrize(("engine", "name", "point"), visits(CANCELLED_TOO))
def test_a_cancellation_at_a_point_loses_and_doubles_nothing(homes: Homes, name: str, point: str) -> None:
    """What is cancelled releases its key; a loop that is cancelled ends the process, loudly."""
    for hit in range(1, recorded.hits_of(name)[point] + 1):
        end_at(homes, name, Death(point, hit, cancel=True))


@pytest.mark.prove
@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("first", ["inbox.committed", "step.committed", "effect.acted", "send.before"])
def test_two_gateways_recover_the_same_death_at_once(homes: Homes, first: str) -> None:
    """On PostgreSQL two replicas may find the same dead one; each turn is taken up by one of them."""
    gateway_process = homes.fresh("tools", Death(first, 1))
    assert run_gateway(gateway_process) == DIED
    again = replace(gateway_process, scenario="beside", death=None)
    assert run_gateways([again, again]) == [DONE, DONE]
    assert problems(history_of(gateway_process)) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_death_in_the_middle_of_a_tool_is_recovered_from(homes: Homes) -> None:
    """One death on each engine; `make prove` visits every point."""
    end_at(homes, "tools", Death("effect.acted", 1))
