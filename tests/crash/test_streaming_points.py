"""Answers that grow, wherever the process dies and whatever the platform does: in the end they are seen once, whole."""

import asyncio
import itertools
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everturn.decide.delivery import Surety
from tests.crash.lives import DIED, DONE, Death
from tests.crash.noting import CALLED
from tests.crash.stories import (
    ACT,
    GROWING,
    PREVIEW,
    SEND,
    THREE_WORDS,
    TURN,
    assert_right,
    check,
    fresh,
    lived,
    tell,
)
from tests.crash.streaming import FAULTS, GIVEN_UP, KINDS, TOOL, play
from tests.empty import EmptyFile
from tests.postgres import PostgresServer, empty_database

VISITED = (*PREVIEW, *TURN, *SEND)
FIXED = 305  # decides the stories of `make test`


def homes(folder: Path) -> Iterator[Path]:
    for number in itertools.count():
        (folder / str(number)).mkdir()
        yield folder / str(number)


def visit(folder: Path, points: Sequence[str], **about: object) -> None:
    """Die at every hit of each of these points, in homes of their own."""
    places, died = homes(folder), set()
    for point in points:
        hit = 1
        while check(fresh(next(places), "", **about), Death(point, hit)):
            died.add(point)
            hit += 1
    assert died == set(points)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("surety", Surety)
def test_a_death_at_any_point_of_a_growing_answer(tmp_path: Path, surety: Surety) -> None:
    """Promise 6: where the platform can tell nothing is doubled; elsewhere the one in flight is, and says so."""
    visit(tmp_path, VISITED, surety=surety)


def test_a_death_while_a_card_is_closed(tmp_path: Path) -> None:
    """Before it, after it and before that is committed, and when it is committed: it is closed, once, with all words."""
    visit(tmp_path, SEND, kind="cards", pieces=THREE_WORDS[:1])


@pytest.mark.torture
@pytest.mark.parametrize("surety", Surety)
@pytest.mark.parametrize("kind", GROWING)
def test_a_death_at_any_point_of_each_kind_of_answer(tmp_path: Path, kind: str, surety: Surety) -> None:
    """The same of what is deleted and of cards, in several parts; also right after each call of the platform, as between the
    ends of two cards.
    """
    pieces = (*THREE_WORDS, TOOL, " golf" * 15, " hotel" * 10)
    visit(tmp_path, (*VISITED, *ACT, CALLED), kind=kind, surety=surety, limit=120, pieces=pieces)


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


def test_a_death_while_words_are_taken_away(tmp_path: Path) -> None:
    """What was shown and became silence: gone, and not yet known to be gone."""
    stream = fresh(tmp_path, kind="deleted", silent=True, pieces=(*THREE_WORDS, TOOL), limit=20)
    deaths = [Death("preview.removed", hit) for hit in (1, 2)]
    assert len(check(stream, *deaths)) == 2
    assert stream.platform().texts("one") == []


async def fail_at_each_call(empty: EmptyFile, folder: Path, fault: str, **about: object) -> int:
    """One answer for each of its calls, which meets this fault; how many calls there were."""
    for call, home in enumerate(homes(folder)):
        stream = fresh(home, empty.copy(home), faults=("",) * call + (fault,), **about)
        code = await play(stream)
        assert_right(stream, code, (fault, call))
        if not stream.platform().met:
            return call
        assert code == (GIVEN_UP if (stream.kind, fault) == ("whole", "refused") else DONE), (fault, call)
    return 0


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {""}))
async def test_a_fault_at_any_call_of_a_growing_answer(empty_file: EmptyFile, tmp_path: Path, fault: str) -> None:
    """The first words, two changes, the last shape: whichever fails, and how, the text is seen once, without a cursor."""
    assert await fail_at_each_call(empty_file, tmp_path, fault) >= 4


@pytest.mark.torture
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {""}))
@pytest.mark.parametrize("surety", Surety)
@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_fault_at_any_call_of_each_kind_of_answer(
    empty_file: EmptyFile, tmp_path: Path, kind: str, surety: Surety, fault: str
) -> None:
    """In several parts, with a tool, and where nothing is left to be said."""
    limit = 120 if kind != "whole" else 4000  # a message in doubt that is sent whole says so at its end alone
    for name, about in (
        ("parts", {"pieces": (*THREE_WORDS, TOOL, " golf" * 15, " hotel" * 10), "limit": limit}),
        ("silent", {"pieces": (*THREE_WORDS, TOOL), "silent": True}),
    ):
        (tmp_path / name).mkdir()
        await fail_at_each_call(empty_file, tmp_path / name, fault, kind=kind, surety=surety, **about)


def tell_out_loud(
    capsys: pytest.CaptureFixture[str], number: int, stories: int, empty: Callable[[], str] = str
) -> None:
    """Tell them, and what really happened in them."""
    totals = tell(number, stories, empty)
    with capsys.disabled():
        sys.stderr.write(f"\n  growing answers, seed {number}: {totals}\n")
    assert totals.deaths.total() >= stories // 4, "they hardly ever die"
    assert totals.faults


def any_number() -> int:
    """Other stories in each run; `SEED` tells those of an earlier one again."""
    return int(os.environ.get("SEED") or secrets.randbelow(1_000_000))


@pytest.mark.timeout(900)
def test_whatever_happens_the_answer_is_seen_once(capsys: pytest.CaptureFixture[str]) -> None:
    tell_out_loud(capsys, FIXED, 10)


@pytest.fixture
def database(postgres: PostgresServer) -> Callable[[], str]:
    """A database that is emptied for each story."""
    url = postgres.create_database()

    def empty() -> str:
        asyncio.run(empty_database(url))
        return url

    return empty


@pytest.mark.torture
def test_whatever_happens_two_hundred_times(capsys: pytest.CaptureFixture[str]) -> None:
    tell_out_loud(capsys, any_number(), 200)


@pytest.mark.torture
def test_whatever_happens_on_postgres(database: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    tell_out_loud(capsys, any_number(), 60, database)
