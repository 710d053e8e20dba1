"""Answers that grow, wherever the process dies and whatever the platform does: in the end they are seen once, whole."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.decide.delivery import Surety
from tests.crash.lives import DIED, DONE, Death
from tests.crash.processes import run_process
from tests.crash.streaming import FAULTS, GIVEN_UP, KINDS, TOOL, Stream, faults_of, live
from tests.postgres import PostgresServer, empty_database

POINTS = (
    "preview.opened", "preview.sent", "preview.committed", "turn.calling", "turn.answering", "turn.finished", "send.before",
    "send.after", "send.committed", "recovery.turn", "recovery.outbox",
)  # fmt: skip
VISITED = POINTS[:9]
THREE_WORDS = ("alpha bravo", " charlie delta", " echo foxtrot")


def fresh(folder: Path, url: str = "", **about: object) -> Stream:
    """A new home and a new platform."""
    values: dict[str, object] = {"pieces": THREE_WORDS, **about}
    return Stream(url or f"sqlite:///{folder / 'everturn.db'}", folder, began=time.time(), **values)  # type: ignore[arg-type]


def lived(stream: Stream) -> int:
    return run_process(live, stream)


def check(stream: Stream, *deaths: Death) -> int:
    """Die there, life after life, then live on; how often it died. The screen is right in the end; what the platform
    refuses may be a dead letter, for everybody to see.
    """
    codes = [lived(replace(stream, death=death)) for death in deaths]
    if not {DONE, GIVEN_UP} & set(codes):
        codes.append(lived(stream))
    ends = {DIED, DONE, *([GIVEN_UP] if stream.refused else [])}
    assert set(codes) <= ends, (codes, deaths, stream.platform().texts("one"))
    assert GIVEN_UP in codes or faults_of(stream, stream.platform().texts("one")) == [], deaths
    return codes.count(DIED)


def homes(folder: Path) -> Iterator[Path]:
    for number in itertools.count():
        (folder / str(number)).mkdir()
        yield folder / str(number)


@pytest.mark.timeout(900)
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("surety", [Surety.KEYED, pytest.param(Surety.READ_BACK, marks=pytest.mark.torture)])
def test_a_death_at_any_point_around_a_question(tmp_path: Path, surety: Surety) -> None:
    """What was said before it stands above it, the answer beneath it, each once."""
    places, died = homes(tmp_path), set()
    for point in (*VISITED, "step.committed", "approval.asked", "approval.answered"):
        hit = 1
        while check(
            fresh(next(places), surety=surety, asks=True, pieces=("alpha bravo", TOOL, "charlie")), Death(point, hit)
        ):
            died.add(point)
            hit += 1
    assert died >= {
        "preview.sent",
        "turn.finished",
        "send.after",
        "step.committed",
        "approval.asked",
        "approval.answered",
    }


@pytest.mark.parametrize(("policy", "ends"), [("mark", "sent"), ("ask", "doubtful"), ("drop", "dead")])
def test_first_words_that_may_be_out_at_a_death_follow_the_policy(tmp_path: Path, policy: str, ends: str) -> None:
    """Sent, and not yet committed: repeated with a mark, asked about in the chat (also if it dies then), or left."""
    stream = fresh(tmp_path, surety=Surety.NEITHER, on_doubt=policy, ends=ends)
    assert lived(replace(stream, death=Death("preview.sent", 1))) == DIED
    if policy == "ask":
        assert lived(replace(stream, death=Death("doubt.asked", 1))) == DIED
    assert lived(stream) == DONE
    first, *more = stream.platform().texts("one")
    assert first.startswith(THREE_WORDS[0])
    assert [policy == "mark" or "/resend" in text for text in more] == [True] * (policy != "drop")


SAID = [
    "alpha ",
    "bravo\n",
    "charlie, ",
    "delta. \n\n",
    "echo",
    "```\ncode\n```\n",
    "\n<think>\nhm",
    "hidden\n</think>\n",
    TOOL,
]
STREAMS = st.lists(st.sampled_from(SAID), min_size=1, max_size=6)
DEATHS = st.lists(st.builds(Death, st.sampled_from(POINTS), st.integers(1, 3)), max_size=3)
CUTS = st.lists(st.integers(1, 60), max_size=4)


def at_calls(faults: dict[int, str]) -> tuple[str, ...]:
    """Faults by the number of the call that meets them."""
    return tuple(faults.get(call, "") for call in range(max(faults, default=-1) + 1))


PLATFORM_FAULTS = st.dictionaries(st.integers(0, 25), st.sampled_from(sorted(FAULTS)), max_size=5).map(at_calls)


def cut_anywhere(pieces: tuple[str, ...], cuts: list[int]) -> tuple[str, ...]:
    """The same words in other pieces: also in the middle of a word, a tag or a fence."""
    found: list[str] = []
    for says, group in itertools.groupby(pieces, lambda piece: piece != TOOL):
        whole = list(group)
        text = "".join(whole)
        places = [0, *sorted({cut for cut in cuts if cut < len(text)}), len(text)]
        found += [text[start:end] for start, end in itertools.pairwise(places)] if says else whole
    return tuple(found)


def numbered(pieces: list[str]) -> tuple[str, ...]:
    """Each piece that is said with a word of its own, so that a repetition is seen."""
    own = [piece if piece == TOOL or "think>" in piece else f"w{place}x {piece}" for place, piece in enumerate(pieces)]
    return ("first ", *own)


def anything(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )  # fmt: skip


def platforms(kind: str, surety: Surety, *, silent: bool) -> dict[str, object]:
    """A platform. Where what may be out is marked, a part has room for the mark, and an orphan is not made up for by
    silence: nothing is there that could say so.
    """
    telling = surety is not Surety.NEITHER
    limit = 40 if telling else 4000 if kind == "whole" else 120
    return {"kind": kind, "surety": surety, "limit": limit, "silent": silent and telling}


PLATFORMS = st.builds(platforms, st.sampled_from(sorted(KINDS)), st.sampled_from(Surety), silent=st.booleans())
Platform = dict[str, object]


@dataclass(frozen=True)
class Story:
    """What is said in which pieces, where it dies, and what the platform is and does."""

    pieces: list[str]
    cuts: list[int]
    deaths: list[Death]
    faults: tuple[str, ...]
    platform: Platform

    def happens(self, url: str = "") -> None:
        """It is seen once, whole."""
        pieces = cut_anywhere(numbered(self.pieces), self.cuts) if self.cuts else numbered(self.pieces)
        with tempfile.TemporaryDirectory() as folder:
            stream = fresh(Path(folder), url, pieces=pieces, faults=self.faults, seen=False, **self.platform)
            check(stream, *self.deaths)


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.create_database()


STORIES = st.builds(Story, STREAMS, CUTS, DEATHS, PLATFORM_FAULTS, PLATFORMS)


def test_a_death_while_words_are_taken_away(tmp_path: Path) -> None:
    """What was shown and became silence: gone, and not yet known to be gone."""
    stream = fresh(tmp_path, kind="deleted", silent=True, pieces=(*THREE_WORDS, TOOL), limit=20)
    deaths = [Death("preview.removed", hit) for hit in (1, 2)]
    assert check(stream, *deaths) == 2
    assert stream.platform().texts("one") == []


@pytest.mark.timeout(900)
@anything(15)
@given(STORIES)
def test_whatever_happens_the_answer_is_seen_once(story: Story) -> None:
    story.happens()


@pytest.mark.torture
@pytest.mark.timeout(1800)
@anything(200)
@given(STORIES)
def test_whatever_happens_two_hundred_times(story: Story) -> None:
    story.happens()


@pytest.mark.torture
@pytest.mark.timeout(1800)
@anything(60)
@given(STORIES)
def test_whatever_happens_on_postgres(database: str, story: Story) -> None:
    asyncio.run(empty_database(database))
    story.happens(database)
