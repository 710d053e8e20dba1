"""Shortening a long output for the transcript."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.turns.rules.turns import output_id, parse_output_id, shorten, storable


def test_a_short_output_is_shown_as_it_is() -> None:
    shown = shorten("abc", "1:a", 3, 100)
    assert (shown.text, shown.whole) == ("abc", None)


def test_a_long_one_is_shown_by_head_and_tail_and_kept_whole() -> None:
    text = "a" * 400 + "b" * 400 + "c" * 400
    shown = shorten(text, "7:call", 300, 10_000)
    assert shown.text.startswith("a" * 200 + "\n[")
    assert shown.text.endswith("]\n" + "c" * 100)
    assert "900 of 1200 characters" in shown.text
    assert "read_output with id '7:call', start 200" in shown.text
    assert shown.whole == text


def test_what_is_kept_is_bounded_and_that_is_said() -> None:
    shown = shorten("x" * 1000, "7:call", 100, 500)
    assert shown.whole == "x" * 500
    assert "Only the first 500 characters were kept." in shown.text


@given(st.text(st.characters(codec=None)))
def test_every_text_can_be_stored(text: str) -> None:
    kept = storable(text)
    assert "\x00" not in kept
    assert kept.encode().decode() == kept
    assert len(kept) == len(text)


@given(st.integers(1, 2**63 - 1), st.text(min_size=1).map(str.strip).filter(bool))
def test_an_id_names_its_turn_and_call(turn: int, call_id: str) -> None:
    assert parse_output_id(output_id(turn, call_id)) == (turn, call_id)


@pytest.mark.parametrize("text", ["", ":", "7", "7:", "x:call", "-7:call", "\u0667:call", "1" * 30 + ":call"])
def test_other_texts_are_no_id(text: str) -> None:
    assert parse_output_id(text) is None
