"""A message's walk through the package only gets shorter."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.empty import EmptyFile
from tests.ratchets import versions
from tests.turn_costs import risen
from tests.walk import SCENES, WALKS, recorded, walk


@pytest.mark.parametrize("name", SCENES)
async def test_a_walk_is_no_longer_than_it_was(name: str, empty_file: EmptyFile, tmp_path: Path) -> None:
    """Shorter is a failure as well, until the numbers are written down."""
    walked = await walk(name, empty_file.copy(tmp_path))
    print(*(f"{each.file} {each.function}" for each in walked.stations), sep="\n")  # noqa: T201  for who looks why
    assert walked.counts == recorded()[name]


def test_no_walk_ever_became_longer() -> None:
    assert [line for (_, now), (_, before) in pairwise(versions(WALKS)) for line in risen(before, now)] == []
