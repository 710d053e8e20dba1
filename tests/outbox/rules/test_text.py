"""Cutting text: within the limit in the platform's unit, at good places, code blocks whole, nothing lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.outbox.rules.text import Unit, split, storable, utf16
from tests.sessions.rules.examples import FEW_AND_MANY


def utf8(text: str) -> int:
    return len(text.encode())


@pytest.mark.parametrize(("text", "units"), [("", 0), ("abc", 3), ("é", 1), ("😀", 2), ("a😀b", 4)])
def test_utf16_counts_as_platforms_do(text: str, units: int) -> None:
    assert utf16(text) == units == len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("text", ["hello", " indented\n", "```python\nx\n```", "a" * 20])
def test_a_text_that_fits_is_left_alone(text: str) -> None:
    assert split(text, 20) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", " \t\n" * 30])
def test_nothing_makes_no_pieces(text: str) -> None:
    assert split(text, 20) == []


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two\nthree four\n\nfive six", ["one two\nthree four", "five six"]),
        ("one two three\nfour five six", ["one two three", "four five six"]),
        ("one two three four five six", ["one two three four", "five six"]),
        ("a" * 25, ["a" * 20, "a" * 5]),
        ("exactly twenty chars and more", ["exactly twenty chars", "and more"]),
        ("ab " + "c" * 20, ["ab", "c" * 20]),
        ("ab\n" + "c" * 20, ["ab", "c" * 20]),
        ("x" * 18 + "\n    indented line", ["x" * 18, "    indented line"]),
        ("x" * 18 + "\n" * 40 + "y", ["x" * 18, "y"]),
        ("\t" * 25 + "word", ["\t" * 5 + "word"]),
        ("x" * 18 + " \n \n" + "y" * 9, ["x" * 18, "y" * 9]),
    ],
)
def test_the_best_break_is_taken(text: str, pieces: list[str]) -> None:
    assert split(text, 20) == pieces


def test_the_limit_is_in_the_platforms_unit() -> None:
    assert split("😀" * 10, 10, utf16) == ["😀" * 5] * 2
    assert split("é" * 10, 10, utf8) == ["é" * 5] * 2


def test_a_letter_keeps_its_marks_and_an_emoji_its_parts() -> None:
    assert split("abce\u0301" * 2, 4) == ["abc", "e\u0301ab", "ce\u0301"]
    family = "👩\u200d👧"
    assert split("ab" + family + "cd", 4) == ["ab", family + "c", "d"]
    thumb, flag, wales = "👍🏽", "🇩🇪", "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f"
    assert split("a" + thumb * 4, 10, utf16) == ["a" + thumb * 2, thumb * 2]
    assert split("a" + flag * 4, 10, utf16) == ["a" + flag * 2, flag * 2]
    assert split("abc" + wales * 2, 10) == ["abc" + wales, wales]


def test_a_letter_with_endless_marks_is_cut_all_the_same() -> None:
    assert split("e" + "\u0301" * 99, 50) == ["e" + "\u0301" * 49, "\u0301" * 50]


def test_a_character_larger_than_the_limit_still_goes_out() -> None:
    assert split("😀😀", 1, utf16) == ["😀", "😀"]


def test_a_cut_code_block_is_closed_and_reopened_with_its_language() -> None:
    code = "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(8)) + "\n```"
    pieces = split(code, 50)
    assert len(pieces) > 2
    assert all(piece.startswith("```python\n") and piece.endswith("\n```") for piece in pieces)
    assert "".join(piece[9:-3] for piece in pieces).split() == code[9:-3].split()


def test_indentation_inside_a_reopened_block_survives() -> None:
    pieces = split("```\n" + "def f():\n" + "    return 1\n" * 5 + "```", 50)
    assert pieces[1].startswith("```\n    return 1\n")


@pytest.mark.parametrize("fence", ["```", "```python"])
def test_a_block_is_not_opened_on_the_last_line_of_a_piece(fence: str) -> None:
    pieces = split("words " * 5 + f"\n{fence}\n" + "code_" * 8 + "\n```", 60)
    assert pieces == [("words " * 5).strip(), f"{fence}\n" + "code_" * 8 + "\n```"]


def test_other_fences_are_understood() -> None:
    tildes = split("~~~~ text\n" + "a b c d e\n" * 9 + "~~~~", 60)
    assert all(piece.startswith("~~~~") and piece.endswith("~~~~") for piece in tildes)
    nested = split("````\n```\n" + "a b c d e\n" * 9 + "```\n````", 60)
    assert all(piece.startswith("````\n") and piece.endswith("\n````") for piece in nested)


def test_inline_code_of_three_ticks_opens_no_block() -> None:
    pieces = split("```x``` is inline\n" + "words words\n" * 9, 60)
    assert pieces[1].startswith("words")


def test_a_language_too_long_for_the_limit_is_not_repeated() -> None:
    pieces = split("```" + "language" * 3 + "\n" + "code code\n" * 9 + "```", 50)
    assert len(pieces) > 2
    assert all(piece.startswith("```\ncode code\n") and piece.endswith("\n```") for piece in pieces[1:])


def test_a_limit_too_small_for_fences_cuts_the_bare_text() -> None:
    assert split("```\nabcd\nefgh\n```", 6) == ["```", "abcd", "efgh", "```"]


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(character in rest for character in part)


UNITS: st.SearchStrategy[Unit] = st.sampled_from([len, utf16, utf8])
ALPHABET = st.sampled_from(
    ["a", "b", " ", "\n", "\t", "`", "```", "\n```", "```py\n", "~~~", "é", "😀", "\u0301", "\u200d", "🇩", "🏽"]
)
ODD_TEXT = st.lists(ALPHABET, max_size=200).map("".join) | st.text(max_size=300)


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_any_text_is_cut_within_the_limit_and_nothing_is_lost(examples: int) -> None:
    @settings(max_examples=examples)
    @given(ODD_TEXT, st.integers(4, 60), UNITS)
    def is_cut(text: str, limit: int, unit: Unit) -> None:
        text = text.encode("utf-8", "ignore").decode()
        pieces = split(text, limit, unit)
        assert all(piece.strip() and unit(piece) <= limit for piece in pieces)
        assert is_subsequence("".join(text.split()), "".join(pieces))

    is_cut()


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_without_code_blocks_nothing_is_added_either(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.text(st.sampled_from("ab \n\té😀"), max_size=400), st.integers(4, 60), UNITS)
    def is_cut(text: str, limit: int, unit: Unit) -> None:
        assert "".join("".join(split(text, limit, unit)).split()) == "".join(text.split())

    is_cut()


WORDS = st.lists(st.text(st.sampled_from("abc"), min_size=1, max_size=12), min_size=1, max_size=20)
PROSE = WORDS.map(" ".join)
CODE = st.lists(WORDS.map(lambda line: " ".join(line[:4])), min_size=1, max_size=20).map("\n".join)
BLOCK = st.tuples(st.sampled_from(["```", "```py", "~~~", "````sh"]), CODE).map(
    lambda block: f"{block[0]}\n{block[1]}\n{block[0].rstrip('pysh')}"
)


def prose_and_code(text: str) -> list[tuple[bool, str]]:
    """Every word of the text, and whether it stands in a code block."""
    found, inside = [], False
    for line in text.split("\n"):
        if line.startswith(("```", "~~~")):
            inside = not inside
        else:
            found += [(inside, word) for word in line.split()]
    assert not inside, "a block is left open"
    return found


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_prose_stays_prose_and_code_stays_code(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(PROSE | BLOCK, min_size=1, max_size=5).map("\n\n".join), st.integers(60, 200))
    def is_cut(text: str, limit: int) -> None:
        pieces = split(text, limit)
        assert [word for piece in pieces for word in prose_and_code(piece)] == prose_and_code(text)
        assert all(len(piece) <= limit for piece in pieces)

    is_cut()


@pytest.mark.parametrize(
    ("text", "kept"),
    [("", ""), ("plain", "plain"), ("a\x00b", "a\ufffdb"), ("ä\x00", "ä\ufffd"), ("\ud83d", "?"), ("😀\x01", "😀\x01")],
)
def test_what_a_database_cannot_store_is_replaced(text: str, kept: str) -> None:
    assert storable(text) == kept
