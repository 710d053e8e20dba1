"""Answers of homeservers as they should not be: each is one of our errors, or read as far as it makes sense."""

from typing import Any

import pytest

from everturn.errors import OutcomeUnknown
from everturn.platform.matrix import MatrixSettings
from everturn.platform.matrix.requesting import read_answer
from everturn.platform.matrix.wire import Page, Sync, content_of


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"\xff", b'{"a":' * 100_000])
def test_what_is_not_understood_leaves_the_outcome_open(answer: bytes) -> None:
    with pytest.raises(OutcomeUnknown, match="not understood"):
        read_answer(answer, dict[str, Any])


def test_a_place_that_is_null_is_none() -> None:
    room = b'{"timeline": {"events": [], "limited": true, "prev_batch": null}}'
    news = read_answer(b'{"next_batch": "s1", "rooms": {"join": {"!a:x": ' + room + b"}}}", Sync)
    assert news.rooms.join["!a:x"].timeline.prev_batch is None
    assert read_answer(b'{"chunk": [], "end": null}', Page).end is None


@pytest.mark.parametrize(("size", "read"), [(7, 7), (True, 0), ("7", 0), (-1, 0), (None, 0)])
def test_only_a_number_is_a_size(size: object, read: int) -> None:
    found = content_of({"info": {"size": size}}).size
    assert (found, type(found)) == (read, int)


def test_settings_do_not_show_the_token() -> None:
    assert "secret" not in repr(MatrixSettings(homeserver="https://x", user="@a:x", token="secret"))
