"""What counts as a command in a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.decide.commands import ALIASES, COMMANDS, Command, nearest, parse_command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Command("new", "")),
        ("/NEW", Command("new", "")),
        ("  /new \n", Command("new", "")),
        ("/new@everturn_bot", Command("new", "")),
        ("/resume@everturn_bot abc", Command("resume", "abc")),
        ("/resume  20260418_101500_0a1b2c3d", Command("resume", "20260418_101500_0a1b2c3d")),
        ("/resume\nlast one", Command("resume", "last one")),
        ("/reset", Command("reset", "")),
        ("/dance now", Command("dance", "now")),
        ("/start", Command("help", "")),
        ("/Cancel", Command("stop", "")),
        ("/set-home x", Command("set-home", "x")),
    ],
)
def test_a_slash_and_a_word_is_a_command(text: str, command: Command) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/ new",
        "//new",
        "/usr/bin",
        "/usr/bin is full",
        "/1",
        "/new!",
        "/new/",
        "say /new",
        "new",
        "/é",
        "/@bot",
    ],
)
def test_anything_else_is_an_ordinary_message(text: str) -> None:
    assert parse_command(text) is None


def test_the_commands_are_those_the_notices_may_name() -> None:
    assert list(COMMANDS) == ["new", "reset", "resume", "stop", "status", "help"]
    assert set(ALIASES.values()) <= set(COMMANDS)


@pytest.mark.parametrize(
    ("name", "meant"), [("hlep", "help"), ("resum", "resume"), ("STATUSS", "status"), ("nwe", "new"), ("dance", None)]
)
def test_the_nearest_command_is_offered(name: str, meant: str | None) -> None:
    assert nearest(name) == meant


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    command = parse_command(text)
    assert command is None or command.name == command.name.lower()
