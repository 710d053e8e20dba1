"""What stands beneath a file that is sent, and what follows it."""

import pytest

from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.text import beneath_file, not_sent


@pytest.mark.parametrize(
    ("text", "unknown", "parts"),
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
def test_what_has_no_room_beneath_a_file_follows_it(text: str, unknown: bool, parts: list[str]) -> None:  # noqa: FBT001
    assert beneath_file(text, 100, 200, len, unknown=unknown) == parts


@pytest.mark.parametrize(
    ("out", "text", "files", "unknown", "told"),
    [
        (0, False, True, False, "I could not send you the file a.pdf: it is forbidden"),
        (0, True, True, False, "I could not send you the file a.pdf and the text that belongs to it: it is forbidden"),
        (1, True, True, False, "You have the file a.pdf, but I could not send you the text that belongs to it: it is forbidden"),
        (2, True, True, False, "You have the file a.pdf, but I could not send you all of the text that belongs to it: it is forbidden"),
        (0, False, True, True, "I do not know whether the file a.pdf reached you: it is forbidden"),
        (0, True, True, True, "I do not know whether the file a.pdf and the text that belongs to it reached you: it is forbidden"),
        (1, True, True, True, "You have the file a.pdf, but I do not know whether the text that belongs to it reached you: it is forbidden"),
        (2, True, True, True, "You have the file a.pdf, but I do not know whether all of the text that belongs to it reached you: it is forbidden"),
        (0, True, False, False, "I could not send you the file a.pdf and the text that belongs to it: it is forbidden"),
        (1, True, False, False, "I could not send you the file a.pdf, nor all of the text that belongs to it: it is forbidden"),
    ],
)  # fmt: skip
def test_a_failed_file_notice_says_what_arrived_and_what_did_not(
    out: int, *, text: bool, files: bool, unknown: bool, told: str
) -> None:
    assert not_sent("a.pdf", "it  is\nforbidden", out=out, text=text, files=files, unknown=unknown) == told
