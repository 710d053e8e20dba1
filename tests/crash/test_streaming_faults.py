"""Streaming messages, whatever the platform does at any of its calls: in the end the answer is seen once, whole."""

from pathlib import Path

import pytest

from everturn.outbox.rules.delivery import Surety
from tests.crash.gateway_process import DONE
from tests.crash.stream_scenarios import THREE_PIECES, assert_right, fresh, homes
from tests.crash.streaming import DEAD_LETTER, FAULTS, KINDS, TOOL, play
from tests.empty import EmptyFile


async def fail_at_each_call(empty: EmptyFile, folder: Path, fault: str, **about: object) -> int:
    """One answer for each of its calls, which meets this fault; how many calls there were."""
    for call, home in enumerate(homes(folder)):
        stream = fresh(home, empty.copy(home), faults=("",) * call + (fault,), **about)
        code = await play(stream)
        assert_right(stream, code, (fault, call))
        if not stream.platform().met:
            return call
        assert code == (DEAD_LETTER if (stream.kind, fault) == ("whole", "refused") else DONE), (fault, call)
    return 0


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {""}))
async def test_a_fault_at_any_call_of_a_growing_answer(empty_file: EmptyFile, tmp_path: Path, fault: str) -> None:
    """The first text, two edits, the last edit: whichever fails, and how, the text is seen once, without a cursor."""
    assert await fail_at_each_call(empty_file, tmp_path, fault) >= 4


@pytest.mark.prove
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {""}))
@pytest.mark.parametrize("surety", Surety)
@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_fault_at_any_call_of_each_kind_of_answer(
    empty_file: EmptyFile, tmp_path: Path, kind: str, surety: Surety, fault: str
) -> None:
    """In several parts, with a tool, and where nothing is left to be said."""
    limit = 120 if kind != "whole" else 4000  # a whole message whose delivery is unknown says so at its end alone
    for name, about in (
        ("parts", {"pieces": (*THREE_PIECES, TOOL, " golf" * 15, " hotel" * 10), "limit": limit}),
        ("silent", {"pieces": (*THREE_PIECES, TOOL), "silent": True}),
    ):
        (tmp_path / name).mkdir()
        await fail_at_each_call(empty_file, tmp_path / name, fault, kind=kind, surety=surety, **about)
