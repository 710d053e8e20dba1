"""A message and its edits in one batch: the last text counts, of the same message and by the same person."""

import pytest

from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform.telegram.rules import folded

FILE = Attachment(kind="document", ref="f")


def said(number: str, text: str, who: str = "ann", **more: object) -> Inbound:
    return Inbound(id=number, source=SessionSource(platform="p", chat_id="1", user_id=who), text=text, **more)  # type: ignore[arg-type]


def edit(of: str, text: str, who: str = "ann", **more: object) -> Inbound:
    return said(f"{of}#{text}", text, who, what=Heard.EDITED, of=of, **more)


@pytest.mark.parametrize(
    ("batch", "texts"),
    [
        ([], []),
        ([said("1", "a")], ["a"]),
        ([said("1", "a"), edit("1", "b")], ["b", "b"]),
        ([said("1", "a"), edit("1", "b"), edit("1", "c")], ["c", "b", "c"]),
        ([said("1", "a"), said("2", "x"), edit("1", "b")], ["b", "x", "b"]),
        ([said("1", "a"), edit("2", "b")], ["a", "b"]),
        ([said("1", "a"), edit("1", "b", "bob")], ["a", "b"]),
        ([said("1", "a"), edit("1", "/stop")], ["a", "/stop"]),
        ([said("1", "/stop"), edit("1", "a")], ["/stop", "a"]),
        ([said("1", "/etc/x is a file"), edit("1", "a")], ["a", "a"]),
        ([said("1", "/new"), edit("1", "/stop")], ["/stop", "/stop"]),
    ],
)
def test_what_was_said_has_the_words_of_its_last_edit(batch: list[Inbound], texts: list[str]) -> None:
    found = folded(batch)
    assert [each.text for each in found] == texts
    assert [(each.id, each.what) for each in found] == [(each.id, each.what) for each in batch]


def test_it_stays_the_message_that_it_was_but_for_words_and_files() -> None:
    first = said("1", "a", said_at=5.0, album="7")
    (found, _) = folded([first, edit("1", "b", attachments=(FILE,), said_at=9.0, edition=3)])
    assert (found.said_at, found.album, found.attachments, found.edition) == (5.0, "7", (FILE,), 3)
