"""What stays in a compaction, and how a failure backs off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.model import Message, ToolCall
from everturn.sessions.rules.transcript import back_off_s, first_kept

CALLS = ToolCall("a", "tool"), ToolCall("b", "tool")
TALK = [
    Message(role="user", content="one"),
    Message(role="assistant", content="", calls=CALLS),
    Message(role="tool", content="A", call_id="a"),
    Message(role="user", content="meanwhile"),
    Message(role="tool", content="B", call_id="b"),
    Message(role="assistant", content="done"),
    Message(role="user", content="two"),
]


@pytest.mark.parametrize(
    ("keep", "first"), [(0, 7), (1, 6), (2, 5), (3, 1), (4, 1), (5, 1), (6, 1), (7, 0), (99, 0), (-1, 7)]
)
def test_calls_and_results_are_never_separated(keep: int, first: int) -> None:
    assert first_kept(TALK, keep) == first


def test_a_result_whose_call_is_gone_moves_nothing() -> None:
    assert first_kept(TALK[2:], 3) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.integers(0, 40))
def test_whatever_is_kept_every_result_has_its_call(turns: list[tuple[int, bool]], keep: int) -> None:
    rows: list[Message] = []
    for number, (count, steered) in enumerate(turns):
        calls = tuple(ToolCall(f"{number}/{place}", "tool") for place in range(count))
        rows += [Message(role="user", content="x"), Message(role="assistant", content="", calls=calls)]
        rows += [Message(role="user", content="y")] * steered
        rows += [Message(role="tool", content="r", call_id=call.id) for call in calls]
    kept = rows[first_kept(rows, keep) :]
    made = {call.id for row in kept for call in row.calls}
    assert len(kept) >= min(keep, len(rows))
    assert {row.call_id for row in kept if row.role == "tool"} <= made


def test_failures_back_off_up_to_an_hour() -> None:
    assert [back_off_s(failures) for failures in (1, 2, 3, 4, 1000)] == [300, 900, 2700, 3600, 3600]
