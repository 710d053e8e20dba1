"""A message's walk through the package only gets shorter."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.empty import EmptyFile
from tests.ratchets import versions
from tests.turn_costs import risen
from tests.walk import SCENES, WALKS, recorded, walk
from tests.walk_page import count_rows, printed, rows_of, said_of


@pytest.mark.parametrize("name", SCENES)
async def test_a_walk_is_no_longer_than_it_was(name: str, empty_file: EmptyFile, tmp_path: Path) -> None:
    """Shorter is a failure as well, until the numbers are written down."""
    walked = await walk(name, empty_file.copy(tmp_path))
    print(*(f"{each.file} {each.function}" for each in walked.stations), sep="\n")  # noqa: T201  for who looks why
    assert walked.counts == recorded()[name]


async def test_the_architecture_page_prints_the_walk(empty_file: EmptyFile, tmp_path: Path) -> None:
    """Files that two threads come to at once may change places: their order is not compared. `make docs` writes the page."""
    walked = await walk("plain", empty_file.copy(tmp_path))
    assert sorted(printed()) == sorted([*rows_of(walked), *count_rows(recorded())])


def test_the_first_sentence_of_a_file_is_taken() -> None:
    assert said_of("inbox/intake.py").startswith("Accepts messages")
    assert not said_of("inbox/intake.py").endswith(".")


def test_no_walk_ever_became_longer() -> None:
    assert [line for (_, now), (_, before) in pairwise(versions(WALKS)) for line in risen(before, now)] == []
