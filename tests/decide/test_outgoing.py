"""What stands beneath a file that is sent, and what follows it."""

import pytest

from everturn.decide.delivery import MAY_REPEAT
from everturn.decide.outgoing import beneath_file, not_sent


@pytest.mark.parametrize(
    ("words", "doubtful", "parts"),
    [
        ("", False, [""]),
        ("", True, [MAY_REPEAT]),
        ("short", False, ["short"]),
        ("short", True, [f"short\n\n{MAY_REPEAT}"]),
        ("x" * 90, False, ["x" * 90]),
        ("x" * 90, True, [MAY_REPEAT, f"{'x' * 90}\n\n{MAY_REPEAT}"]),
        (f"{'x' * 150} {'y' * 150}", False, ["", "x" * 150, "y" * 150]),
    ],
)
def test_what_has_no_room_beneath_a_file_follows_it(words: str, doubtful: bool, parts: list[str]) -> None:  # noqa: FBT001
    assert beneath_file(words, 100, 200, len, doubtful=doubtful) == parts


@pytest.mark.parametrize(
    ("out", "words", "files", "unknown", "told"),
    [
        (0, False, True, False, "I could not send you the file a.pdf: it is forbidden"),
        (0, True, True, False, "I could not send you the file a.pdf and the words that belong to it: it is forbidden"),
        (1, True, True, False, "You have the file a.pdf, but I could not send you the words that belong to it: it is forbidden"),
        (2, True, True, False, "You have the file a.pdf, but I could not send you all of the words that belong to it: it is forbidden"),
        (0, False, True, True, "I do not know whether the file a.pdf reached you: it is forbidden"),
        (0, True, True, True, "I do not know whether the file a.pdf and the words that belong to it reached you: it is forbidden"),
        (1, True, True, True, "You have the file a.pdf, but I do not know whether the words that belong to it reached you: it is forbidden"),
        (2, True, True, True, "You have the file a.pdf, but I do not know whether all of the words that belong to it reached you: it is forbidden"),
        (0, True, False, False, "I could not send you the file a.pdf and the words that belong to it: it is forbidden"),
        (1, True, False, False, "I could not send you the file a.pdf, nor all of the words that belong to it: it is forbidden"),
    ],
)  # fmt: skip
def test_who_misses_something_is_told_what_is_there_and_what_is_not(
    out: int, *, words: bool, files: bool, unknown: bool, told: str
) -> None:
    assert not_sent("a.pdf", "it  is\nforbidden", out=out, words=words, files=files, unknown=unknown) == told
