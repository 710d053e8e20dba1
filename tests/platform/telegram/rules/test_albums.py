"""Albums where people must name us: one part with our name makes all of them ours, and nothing else does."""

import pytest

from everturn.model import Heard, Inbound, SessionSource
from everturn.platform.telegram.rules import undecided, whole


def part(number: str, album: str | None = "a", *, named: bool = False, chat: str = "team") -> Inbound:
    source = SessionSource(platform="telegram", chat_id=chat, chat_type="group", user_id="ann", message_id=number)
    return Inbound(id=f"{number}@{chat}", source=source, text=number, album=album, only_with_album=not named)


def edit(of: Inbound) -> Inbound:
    return Inbound(id=f"{of.id}#edit", source=of.source, text="edited", what=Heard.EDITED, of=of.id, album=of.album)


SAID = part("9", None, named=True)


@pytest.mark.parametrize(
    ("batch", "ours"),
    [
        ([], []),
        ([SAID], ["9"]),
        ([part("1"), part("2")], []),
        ([part("1", named=True), part("2"), part("3")], ["1", "2", "3"]),
        ([part("1"), part("2"), part("3", named=True)], ["1", "2", "3"]),
        ([part("1"), SAID, part("2", named=True)], ["1", "9", "2"]),
        ([part("1"), part("2", "b", named=True)], ["2"]),
        ([part("1"), part("2", chat="other", named=True)], ["2"]),
        ([part("1"), edit(part("1"))], ["edited"]),  # an edit is for whoever the message was for, and names nobody
    ],
)
def test_an_album_is_ours_if_one_part_of_it_is(batch: list[Inbound], ours: list[str]) -> None:
    found = whole(batch)
    assert [each.text for each in found if not each.only_with_album] == ours
    assert [each.id for each in found] == [each.id for each in batch]


@pytest.mark.parametrize(
    ("batch", "numbers"),
    [
        ([], set()),
        ([SAID, part("1", named=True), edit(SAID)], set()),
        ([part("1"), SAID, part("2")], {0, 2}),
        ([part("1"), SAID, edit(part("1"))], {0, 2}),
    ],
)
def test_what_a_later_part_decides_waits_with_its_edits(batch: list[Inbound], numbers: set[int]) -> None:
    assert undecided(dict(enumerate(batch))) == numbers
