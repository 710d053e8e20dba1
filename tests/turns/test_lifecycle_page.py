"""docs/concepts/turn-lifecycle.md draws exactly the moves that the code allows."""

import re
from collections.abc import Mapping

import pytest

from everturn.model import INBOX_MOVES, OUTBOX_MOVES, TURN_MOVES
from tests.house import ROOT

PAGE = (ROOT / "docs" / "concepts" / "turn-lifecycle.md").read_text(encoding="utf-8")
DIAGRAMS = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("place", "moves"), list(enumerate([INBOX_MOVES, TURN_MOVES, OUTBOX_MOVES])))
def test_the_diagrams_are_the_tables_of_moves(place: int, moves: Mapping[str, frozenset[str]]) -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+)$", DIAGRAMS[place], re.MULTILINE)
    ends = re.findall(r"^    (\w+) --> \[\*\]$", DIAGRAMS[place], re.MULTILINE)
    assert sorted(drawn) == sorted((str(state), str(after)) for state, afters in moves.items() for after in afters)
    assert sorted(ends) == sorted(str(state) for state, afters in moves.items() if not afters)


@pytest.mark.parametrize("moves", [INBOX_MOVES, TURN_MOVES, OUTBOX_MOVES])
def test_every_state_is_explained(moves: Mapping[str, frozenset[str]]) -> None:
    assert [state for state in moves if f"| `{state}` | " not in PAGE] == []
