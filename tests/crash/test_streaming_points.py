"""Answers that grow, wherever the process dies and whatever the platform does: in the end they are seen once, whole."""

import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.decide.delivery import Surety
from tests.crash.lives import DIED, DONE, Death
from tests.crash.processes import run_process
from tests.crash.streaming import FAULTS, Stream, faults_of, live

POINTS = (
    "preview.opened", "preview.sent", "preview.committed", "turn.calling", "turn.answering", "turn.finished", "send.before",
    "send.after", "send.committed", "recovery.turn", "recovery.outbox",
)  # fmt: skip
VISITED = POINTS[:9]
THREE_WORDS = ("alpha bravo", " charlie delta", " echo foxtrot")


def fresh(folder: Path, **about: object) -> Stream:
    """A new home and a new platform."""
    values: dict[str, object] = {"pieces": THREE_WORDS, **about}
    return Stream(f"sqlite:///{folder / 'everturn.db'}", folder, began=time.time(), **values)  # type: ignore[arg-type]


def lived(stream: Stream) -> int:
    return run_process(live, stream)


def check(stream: Stream, *deaths: Death) -> int:
    """Die there, life after life, then live on; how often it died. The screen is right in the end."""
    codes = [lived(replace(stream, death=death)) for death in deaths]
    if DONE not in codes:
        codes.append(lived(stream))
    assert set(codes) <= {DIED, DONE}, (codes, deaths, stream.platform().texts("one"))
    assert faults_of(stream, stream.platform().texts("one")) == [], deaths
    return codes.count(DIED)


def homes(folder: Path) -> Iterator[Path]:
    for number in itertools.count():
        (folder / str(number)).mkdir()
        yield folder / str(number)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("surety", Surety)
def test_a_death_at_any_point_of_a_growing_answer(tmp_path: Path, surety: Surety) -> None:
    """Promise 6: where the platform can tell nothing is doubled; elsewhere the one in flight is, and says so."""
    places, died = homes(tmp_path), set()
    for point in VISITED:
        hit = 1
        while check(fresh(next(places), surety=surety), Death(point, hit)):
            died.add(point)
            hit += 1
    assert died == set(VISITED)


STREAMS = st.lists(st.sampled_from(["alpha ", "bravo\n", "charlie, ", "delta. \n\n", "echo", "```\ncode\n```\n"]), min_size=1, max_size=6)  # fmt: skip
DEATHS = st.lists(st.builds(Death, st.sampled_from(POINTS), st.integers(1, 3)), max_size=3)
PLATFORM_FAULTS = st.lists(st.sampled_from(sorted(FAULTS)), max_size=5).map(tuple)


def numbered(pieces: list[str]) -> tuple[str, ...]:
    """Each piece with a word of its own, so that a repetition is seen."""
    return tuple(f"w{place}x {piece}" for place, piece in enumerate(pieces))


def anything(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )  # fmt: skip


def whatever_happens(
    pieces: list[str], deaths: list[Death], faults: tuple[str, ...], surety: Surety, *, cards: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = fresh(Path(folder), pieces=numbered(pieces), surety=surety, cards=cards, limit=120, faults=faults)
        check(stream, *deaths)


@pytest.mark.timeout(120)
@anything(25)
@given(STREAMS, DEATHS, PLATFORM_FAULTS, st.sampled_from(Surety), st.booleans())
def test_whatever_happens_the_answer_is_seen_once(
    pieces: list[str],
    deaths: list[Death],
    faults: tuple[str, ...],
    surety: Surety,
    cards: bool,  # noqa: FBT001
) -> None:
    whatever_happens(pieces, deaths, faults, surety, cards=cards)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@anything(200)
@given(STREAMS, DEATHS, PLATFORM_FAULTS, st.sampled_from(Surety), st.booleans())
def test_whatever_happens_two_hundred_times(
    pieces: list[str],
    deaths: list[Death],
    faults: tuple[str, ...],
    surety: Surety,
    cards: bool,  # noqa: FBT001
) -> None:
    whatever_happens(pieces, deaths, faults, surety, cards=cards)
