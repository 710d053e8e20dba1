"""Texts about attachments."""

import pytest

from everturn.home.rules import uploads_in
from everturn.inbox import rules as text
from everturn.inbox.rules import FetchOutcome
from everturn.model import Attachment, StoredFile

ID = "i" * 21 + "m"


def attached(kind: str = "document", name: str = "", **about: object) -> Attachment:
    return Attachment(kind=kind, ref="r", name=name, **about)  # type: ignore[arg-type]


def stored(name: str, kind: str = "text/plain", size: int = 12) -> StoredFile:
    return StoredFile(id=ID, name=name, type=kind, size=size)


@pytest.mark.parametrize(
    ("attachment", "outcome", "line"),
    [
        (
            attached("image"),
            FetchOutcome(stored("image.jpg", "image/jpeg", 122_880)),
            f"[image: image.jpg, image/jpeg, 120 kB, /files/{ID}/image.jpg]",
        ),
        (
            attached("voice", seconds=7),
            FetchOutcome(stored("voice.ogg", "audio/ogg", 9)),
            f"[voice: voice.ogg, 7 s, audio/ogg, 9 bytes, not transcribed, /files/{ID}/voice.ogg]",
        ),
        (
            attached(name="a.txt"),
            FetchOutcome(stored("a.txt"), text="hello\n", chars=6),
            f"[document: a.txt, text/plain, 12 bytes, /files/{ID}/a.txt]\nhello\n\n[end of a.txt]",
        ),
        (
            attached(name="a.txt"),
            FetchOutcome(stored("a.txt", size=2_621_440), text="hel", chars=0),
            f"[document: a.txt, text/plain, 2.5 MB, /files/{ID}/a.txt]\nhel\n[a.txt goes on: these were the first 3 characters]",
        ),
        (attached(name="../x.pdf"), FetchOutcome(trouble="it is gone"), "[document x.pdf did not arrive: it is gone]"),
        (attached("sticker", text="😀", family="Cats"), FetchOutcome(), "[sticker 😀 from the set Cats]"),
        (attached("sticker", text="😀", moving=True), FetchOutcome(), "[sticker 😀; it moves and cannot be seen]"),
        (attached("sticker", text="😀"), FetchOutcome(described="a cat waves"), "[sticker 😀: a cat waves]"),
    ],
)
def test_a_file_is_a_line(attachment: Attachment, outcome: FetchOutcome, line: str) -> None:
    assert text.settled_text("look", [attachment], [outcome]) == f"look\n\n{line}"
    assert text.settled_text(text.placeholders([attachment]), [attachment], [outcome]) == line
    assert [each.id for each in uploads_in(line)] == ([ID] if outcome.file else [])


@pytest.mark.parametrize(
    ("attachment", "described", "sees", "wanted"),
    [
        (attached("image"), False, False, True),
        (attached("sticker"), False, True, True),
        (attached("sticker"), True, True, False),
        (attached("sticker"), False, False, False),
        (attached("sticker", moving=True), False, True, False),
    ],
)
def test_bytes_are_fetched_where_they_are_needed(
    attachment: Attachment, *, described: bool, sees: bool, wanted: bool
) -> None:
    assert text.is_wanted(attachment, described=described, sees=sees) is wanted


@pytest.mark.parametrize(
    ("data", "whole", "said"),
    [
        (b"hello", True, ("hel", 5)),
        (b"he\r\n", True, ("he\n", 3)),
        ("größe".encode()[:3], False, ("gr", 0)),
        ("größe".encode()[:3], True, None),
        (b"\xff\xfeh\x00i\x00", True, None),
        (b"", True, ("", 0)),
    ],
)
def test_a_text_is_taken_up_to_its_bound(data: bytes, *, whole: bool, said: tuple[str, int] | None) -> None:
    assert text.inlined(data, 3, whole=whole) == said


@pytest.mark.parametrize(
    ("kind", "forbidden", "taken"),
    [("video/mp4", ("video/*",), False), ("video/mp4", ("video/webm",), True), ("a/b", ("a/b",), False)],
)
def test_types_are_forbidden_by_name_or_by_family(kind: str, forbidden: tuple[str, ...], *, taken: bool) -> None:
    assert text.is_forbidden(kind, forbidden) is not taken


def test_the_notice_about_missing_files_is_one_sentence() -> None:
    two = [attached(name="a.txt"), attached("image"), attached("sticker")]
    outcomes = [FetchOutcome(trouble="it is gone"), text.too_slow(two[1]), text.too_slow(two[2])]
    reasons = text.missing(two, outcomes)
    assert text.missing_notice(reasons[:1]) == "I did not get a.txt (it is gone). I answer without it."
    assert text.missing_notice(reasons) == (
        "I did not get a.txt (it is gone) and image.jpg (it could not be fetched in time). I answer without them."
    )


def test_the_documents_of_a_message_share_what_there_is() -> None:
    assert text.share_of(100, [attached(), attached("image"), attached()]) == 50
    assert text.share_of(100, [attached("image")]) == 100


def test_a_description_is_one_bounded_line() -> None:
    assert text.description_of(" A cat\nwaves [hello]. ") == "A cat waves (hello)."
    assert len(text.description_of("x" * 1000)) == text.DESCRIPTION_CHARS + 1
