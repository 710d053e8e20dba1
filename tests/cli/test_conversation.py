"""The parts of a chat that need no gateway: reading events, remembering the place, keeping the terminal safe."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.cli.chat import StreamEvent, events_of
from everturn.cli.screen import ReadPosition, completion, last_line
from everturn.cli.shared import printable
from everturn.home.folder import Home


async def lines(text: str) -> AsyncIterator[str]:
    for line in text.split("\n"):
        yield line


async def heard(text: str) -> list[StreamEvent]:
    return [event async for event in events_of(lines(text))]


async def test_events_are_read_with_and_without_a_number() -> None:
    text = 'retry: 1000\n\nid: 7\nevent: reply\ndata: {"text": "hi"}\n\n: still here\n\nevent: delta\ndata: {"text": "h"}\n\n'
    assert await heard(text) == [StreamEvent("reply", {"text": "hi"}, 7), StreamEvent("delta", {"text": "h"}, None)]


async def test_an_event_that_was_cut_off_is_not_taken() -> None:
    assert await heard('id: 7\nevent: reply\ndata: {"text": "hi"}') == []


async def test_data_over_several_lines_is_one_text() -> None:
    assert await heard('event: reply\ndata: {"text":\ndata: "hi"}\n\n') == [StreamEvent("reply", {"text": "hi"}, None)]


def test_the_place_is_kept_in_an_owner_only_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert ReadPosition(home, "me").last == 0
    ReadPosition(home, "me").move(12)
    assert ReadPosition(home, "me").last == 12
    (file,) = tmp_path.iterdir()
    assert file.name == "chat-me.last"
    assert os.name != "posix" or file.stat().st_mode & 0o777 == 0o600


def test_a_hostile_name_stays_in_the_home(tmp_path: Path) -> None:
    ReadPosition(Home(tmp_path), "../../up").move(1)
    assert [file.name for file in tmp_path.iterdir()] == ["chat-..%2F..%2Fup.last"]


def test_a_damaged_place_is_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "chat-me.last").write_text("what?")
    assert ReadPosition(Home(tmp_path), "me").last == 0


@pytest.mark.parametrize(
    ("text", "shown"), [("a\x1b[2Jb", "a[2Jb"), ("a\tb\nc\r", "a\tb\nc"), ("\x9b31m", "31m"), ("grüß", "grüß")]
)
def test_what_could_steer_a_terminal_is_left_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_progress_is_the_last_line() -> None:
    assert last_line("one\ntwo\n\n") == "two"
    assert last_line("") == ""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/und", ["/undo "]),
        ("/RE", ["/resume ", "/retry ", "/resend ", "/reload ", "/restart "]),
        ("/q", ["/queue ", "/quit "]),
        ("un", []),
    ],
)
def test_the_tab_key_completes_commands(typed: str, offered: list[str]) -> None:
    found = [completion(typed, number) for number in range(len(offered) + 1)]
    assert found == [*offered, None]
