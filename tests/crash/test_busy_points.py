"""Ring one while a turn runs: a message joins, interrupts or takes back a turn, and the process dies at every point."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from everturn.gateway.parts import Settings
from everturn.store.open import open_store
from everturn.testing import FakePlatform
from tests.contracts.store import broken, select
from tests.crash.busy_lives import FIRST, SECOND, Digger, answer_to, answers
from tests.crash.lives import CANCELLED, DIED, DONE, Death, Life, undisturbed
from tests.crash.outside import history_of
from tests.crash.processes import run_life
from tests.crash.test_points import ENGINES_BY_TURNS, Homes, hits_of
from tests.history import notes, paid_twice, repeated

MODES = ("steer", "interrupt", "rollback")
# Every point on one engine; on the other those that this story adds to what test_points visits.
ON_POSTGRES = ("inbox.committed", "effect.acted", "effect.committed", "turn.joined", "turn.told")


def homes_of(engine: str, request: pytest.FixtureRequest, folder: Path) -> Homes:
    server = request.getfixturevalue("postgres") if engine == "postgres" else None
    return Homes(engine, folder, server)


def story(homes: Homes, busy: str, death: Death | None = None) -> Life:
    settings = Settings(busy=busy, stuck_after=0, unclean_boots=0, drain_s=0.0, burst_s=0.0)
    return replace(homes.fresh("own", death), agent=Digger, settings=settings)


async def stored(url: str) -> tuple[dict[str, object], list[str]]:
    """The rules that are broken in the database, and what became of the messages."""
    store = await open_store(url)
    try:
        states = await store.read(select, "SELECT state FROM inbox WHERE kind='message' ORDER BY id")
        return dict(await store.read(broken)), [row[0] for row in states]
    finally:
        await store.close()


def check(life: Life, busy: str, where: object) -> None:
    """Nobody is lost, nobody is answered twice, nothing is done twice, calls have their results."""
    rules, states = asyncio.run(stored(life.url))
    seen = Counter(answers(FakePlatform(file=life.folder / "platform")))
    history = history_of(life)
    assert rules == {}, where
    assert seen[answer_to(SECOND)] == 1, where
    assert seen[answer_to(FIRST)] == (states[0] == "done"), where
    assert set(states) <= ({"done"} if busy == "steer" else {"done", "withdrawn"}), where
    assert (states[1], len(states)) == ("done", 2), where
    problems = [*repeated(history.effects, "twice"), *paid_twice(history), *notes(history.transcripts)]
    assert problems == [], where


def end_at(homes: Homes, busy: str, death: Death) -> None:
    """One life that ends there, and the next."""
    life = story(homes, busy, death)
    code = run_life(life)
    assert code in {DIED, CANCELLED, DONE}, (death, code)
    if code != DONE:
        assert run_life(undisturbed(life)) == DONE, death
    check(life, busy, death)
    homes.forget(life)


def hits_in(homes: Homes, busy: str) -> list[tuple[str, int]]:
    """The points that an undisturbed life passes, each as often as it does."""
    first = story(homes, busy)
    hits = hits_of(first)
    check(first, busy, "undisturbed")
    homes.forget(first)
    assert ("turn.joined" in hits) == (busy == "steer")
    return [(point, hit) for point, count in hits.items() for hit in range(1, count + 1)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("busy", MODES)
@pytest.mark.parametrize("engine", ENGINES_BY_TURNS)
def test_a_death_at_any_point_loses_and_doubles_nothing(
    engine: str, busy: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    homes = homes_of(engine, request, tmp_path)
    for point, hit in hits_in(homes, busy):
        if engine == "sqlite" or point in ON_POSTGRES:
            end_at(homes, busy, Death(point, hit))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("busy", MODES)
def test_a_cancellation_at_any_point_loses_and_doubles_nothing(
    busy: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    homes = homes_of("sqlite", request, tmp_path)
    for point, hit in hits_in(homes, busy):
        end_at(homes, busy, Death(point, hit, cancel=True))
