"""Answers that grow, whatever the platform does at any of its calls: in the end they are seen once, whole."""

from pathlib import Path

import pytest

from everturn.decide.delivery import Surety
from tests.crash.lives import DONE
from tests.crash.stories import THREE_WORDS, assert_right, fresh, homes
from tests.crash.streaming import FAULTS, GIVEN_UP, KINDS, TOOL, play
from tests.empty import EmptyFile


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


@pytest.mark.prove
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
