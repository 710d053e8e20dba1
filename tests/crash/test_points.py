"""Ring one: die at every hit of every crash point, on both engines; then the next life, then the history checker."""

import asyncio
import itertools
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everturn import points
from everturn.decide.delivery import Surety
from tests.crash.lives import CANCELLED, DIED, DONE, Death, Life, undisturbed
from tests.crash.outside import history_of
from tests.crash.processes import run_life, run_lives
from tests.empty import EmptyFile
from tests.history import problems
from tests.postgres import PostgresServer, empty_database

# Stories that others share much with: their second engine is visited by `make torture`.
ENGINES_BY_TURNS = ["sqlite", pytest.param("postgres", marks=pytest.mark.torture)]
ON_BOTH = frozenset({"tools", "plain"})  # what every message passes: its deaths are tried on both engines every time


def on(engine: str, scenario: str, *, often: bool) -> object:
    """A story on an engine; one that need not be told every time is for `make torture`."""
    return pytest.param(engine, scenario, marks=() if often else pytest.mark.torture)


def stories(scenarios: Sequence[str], often_on_postgres: Collection[str]) -> list[object]:
    """Each scenario on both engines: always on SQLite, on PostgreSQL always those that are named."""
    return [
        on(engine, each, often=engine == "sqlite" or each in often_on_postgres)
        for each in scenarios
        for engine in ("sqlite", "postgres")
    ]


class Homes:
    """A fresh home, database and platform for each life story."""

    def __init__(self, engine: str, folder: Path, postgres: PostgresServer | None) -> None:
        self._engine = engine
        self._folder = folder
        self._postgres = postgres
        self._count = itertools.count(1)
        self._database = postgres.create_database() if postgres else ""
        self._empty = None if postgres else EmptyFile(folder)

    def fresh(self, scenario: str, death: Death | None = None, surety: Surety = Surety.KEYED) -> Life:
        """A life in a new home."""
        folder = self._folder / str(next(self._count))
        folder.mkdir()
        url = self._empty.copy(folder) if self._empty else self._database
        return Life(scenario, url, folder, death, surety)

    def forget(self, life: Life) -> None:
        """Empty its database for the next story: far cheaper than a new one."""
        if self._database:
            asyncio.run(empty_database(life.url))


@pytest.fixture
def homes(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Homes:
    server = request.getfixturevalue("postgres") if engine == "postgres" else None
    return Homes(engine, tmp_path, server)


def hits_of(life: Life) -> dict[str, int]:
    """How often an undisturbed life passes each point."""
    assert run_life(undisturbed(life)) == DONE
    hits: dict[str, int] = json.loads((life.folder / "hits").read_text())
    return hits


def die_at_every_hit(homes: Homes, scenario: str, point: str) -> int:
    """Die at the first, second, ... hit until a life passes with none left; returns how many deaths there were."""
    for hit in itertools.count(1):
        life = homes.fresh(scenario, Death(point, hit))
        code = run_life(life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert run_life(undisturbed(life)) == DONE, (point, hit)
        assert problems(history_of(life)) == [], (point, hit)
        homes.forget(life)
        if code == DONE:
            return hit - 1
    raise AssertionError


def cancel_at(homes: Homes, scenario: str, point: str, hit: int) -> None:
    """Cancel the task that reaches the hit; if that ends the process, the next life goes on."""
    life = homes.fresh(scenario, Death(point, hit, cancel=True))
    code = run_life(life)
    assert code in {CANCELLED, DONE}, (point, hit, code)
    if code == CANCELLED:
        assert run_life(undisturbed(life)) == DONE, (point, hit)
    assert problems(history_of(life)) == [], (point, hit)
    homes.forget(life)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("engine", "scenario"), stories(["plain", "tools", "reset", "drain", "undo", "restart"], ON_BOTH)
)
def test_a_death_at_any_point_loses_and_doubles_nothing(homes: Homes, scenario: str) -> None:
    """Promises 1 to 8, wherever the process dies."""
    first = homes.fresh(scenario)
    hits = hits_of(first)
    homes.forget(first)
    deaths = {point: die_at_every_hit(homes, scenario, point) for point in hits}
    assert deaths.keys() <= points.ALL
    assert all(deaths.values()), deaths


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("engine", "scenario"), stories(["plain", "tools", "reset", "drain", "restart"], {"plain"}))
def test_a_cancellation_at_any_point_loses_and_doubles_nothing(homes: Homes, scenario: str) -> None:
    """Who is cancelled releases; a loop that is cancelled ends the process, loudly."""
    first = homes.fresh(scenario)
    hits = hits_of(first)
    homes.forget(first)
    for point, count in hits.items():
        for hit in range(1, count + 1):
            cancel_at(homes, scenario, point, hit)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", ["step.committed", "effect.acted", "turn.finished"])
@pytest.mark.parametrize(
    ("engine", "scenario"),
    [
        on("sqlite", "finish", often=True),
        on("sqlite", "two_recoveries", often=False),
        on("postgres", "finish", often=False),
        on("postgres", "two_recoveries", often=False),
    ],
)
def test_a_death_during_recovery_is_recovered_from(homes: Homes, first: str, scenario: str) -> None:
    """Recovery runs through the normal claim path, and may itself die anywhere."""
    cut_off = homes.fresh("tools", Death(first, 1))
    assert run_life(cut_off) == DIED
    hits = hits_of(replace(cut_off, scenario=scenario))
    homes.forget(cut_off)
    for point in hits:
        for hit in itertools.count(1):
            life = homes.fresh("tools", Death(first, 1))
            assert run_life(life) == DIED
            again = replace(life, scenario=scenario, death=Death(point, hit))
            code = run_life(again)
            assert code in {DIED, DONE}, (point, hit, code)
            if code == DIED:
                assert run_life(undisturbed(again)) == DONE, (point, hit)
            assert problems(history_of(life)) == [], (point, hit)
            homes.forget(life)
            if code == DONE:
                break


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", ["inbox.committed", "step.committed", "effect.acted", "send.before"])
def test_two_gateways_recover_the_same_death_at_once(postgres: PostgresServer, tmp_path: Path, first: str) -> None:
    """On PostgreSQL two replicas may find the same dead one; each turn is taken up by one of them."""
    homes = Homes("postgres", tmp_path, postgres)
    life = homes.fresh("tools", Death(first, 1))
    assert run_life(life) == DIED
    again = replace(life, scenario="beside", death=None)
    assert run_lives([again, again]) == [DONE, DONE]
    assert problems(history_of(life)) == []
