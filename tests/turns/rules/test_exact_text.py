"""What an approver sees: every character of a call, and never the same line for two calls."""

import json
import sys
import unicodedata

import pytest

from everturn.turns.rules.approvals import BLANK, exact, exact_json

PLAIN = [
    "ls -l",
    "echo '[the docs](https://example.org/';touch${IFS}PWNED",
    "grüße",
    "नमस्ते",
    "שלום",
    "日本語 한국어",
    "a\u0301",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert exact(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", r"a\nb"),
        (r"a\nb", r"a\\nb"),
        ("a\\\nb", r"a\\\nb"),
        ("a\tb\rc\x00", r"a\tb\rc\x00"),
        ("rm\u2800-rf", r"rm\u2800-rf"),
        ("x\u3164y\uffa0z\u115f\u1160", r"x\u3164y\uffa0z\u115f\u1160"),
        ("x\U00013441y\U00013442", r"x\U00013441y\U00013442"),
        ("a\u200bb\u200dc\ufeff\u2060", r"a\u200bb\u200dc\ufeff\u2060"),
        ("a\u202eb\u2066c\u2069\u200f", r"a\u202eb\u2066c\u2069\u200f"),
        ("a\u00a0b\u2003c\u3000\u2028", r"a\xa0b\u2003c\u3000\u2028"),
        ("'\u0338'", r"'\u0338'"),
        ("a\u0300\u0301\u0302", "a\u0300\u0301" + r"\u0302"),
        ("\u0301a\u20dd", r"\u0301a\u20dd"),
        ("a\ufe0f\U000e0041\ue000\u0378", r"a\ufe0f\U000e0041\ue000\u0378"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_can_not_be_seen_is_an_escape_and_a_backslash_is_two(text: str, shown: str) -> None:
    assert exact(text) == shown


def test_blanks_that_python_does_not_know_as_letters_yet_are_blanks() -> None:
    """Python 3.11 escapes them as unassigned; since Unicode 15 they are letters, the blank hieroglyphs."""
    assert {"\U00013441", "\U00013442"} <= BLANK


def test_no_character_is_lost_or_looks_like_nothing() -> None:
    """Of all characters: one that stays has a shape, and is no control, space or mark without a letter."""
    for code in range(sys.maxunicode + 1):
        shown = exact(chr(code))
        if shown == chr(code):
            assert chr(code) == " " or unicodedata.category(chr(code))[0] in "LNPS"
        else:
            assert shown.isascii()
            assert shown.startswith("\\")


def test_arguments_show_a_line_break_and_a_written_one_differently() -> None:
    assert exact_json({"a": "x\ny"}) == r'{"a":"x\ny"}'
    assert exact_json({"a": r"x\ny"}) == r'{"a":"x\\ny"}'
    hidden = {"a": "x\u202e\u3164 \u2800", "b": ["\u00a0"]}
    assert exact_json(hidden) == r'{"a":"x\u202e\u3164 \u2800","b":["\xa0"]}'
    visible = {"name": "grüße 日本語", "quote": 'say "hi"'}
    assert json.loads(exact_json(visible)) == visible
