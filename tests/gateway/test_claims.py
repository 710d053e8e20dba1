"""Every claim about sessions, recovery, notes and draining that we started from is named by a test, and so is each trap.

The claims D0 to D4 are those of the seed documents. What they claim is met by outcome where the design departs on purpose.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests import house

CLAIMS = {
    "D0": {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12},  # 8 is an observation
    "D1": {*range(2, 15), 20, 25},  # 1 is history, from 15 on they concern other parts
    "D2": {*range(1, 9)},
    "D3": {*range(1, 14)},  # 14 is a status
    "D4": {*range(1, 35)},
}
TRAPS = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17}  # 8 and 18: access, 14: edits
CLAIM = re.compile(r"\b(d\d)[._](\d+)(?!\d)", re.IGNORECASE)
TRAP = re.compile(r"\btraps? (\d+)", re.IGNORECASE)


def told() -> Iterator[str]:
    """The name and the words of every test."""
    for source in house.sources("tests"):
        tests = (function for function in source.functions if function.name.startswith("test_"))
        for test in tests:
            yield f"{test.name.replace('_d', ' d').replace('_trap_', ' trap ')} {ast.get_docstring(test) or ''}"


NAMED = " ".join(told())


@pytest.mark.parametrize("document", CLAIMS)
def test_every_claim_is_named_by_a_test(document: str) -> None:
    named = {int(number) for found, number in CLAIM.findall(NAMED) if found.upper() == document}
    assert sorted(CLAIMS[document] - named) == []


def test_every_trap_is_named_by_a_test() -> None:
    assert sorted(TRAPS - {int(number) for number in TRAP.findall(NAMED)}) == []
