"""What counts as a command in a message."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.commands.rows.commands import DOES
from everturn.commands.rules.registry import (
    ALIASES,
    BY_NAME,
    COMMANDS,
    REGISTRY,
    Busy,
    Command,
    Declared,
    Right,
    nearest,
    number_in,
    parse_command,
)


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
        ("/reset", Command("new", "")),
        ("/dance now", Command("dance", "now")),
        ("/start", Command("help", "")),
        ("/Cancel", Command("stop", "")),
        ("/set-home x", Command("set-home", "x")),
        ("/Set_home x", Command("set-home", "x")),
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


def test_every_name_means_one_command() -> None:
    assert len(COMMANDS) == len(REGISTRY)
    assert not set(ALIASES) & set(COMMANDS)
    assert len(ALIASES) == sum(len(each.aliases) for each in REGISTRY)
    assert set(ALIASES.values()) <= set(COMMANDS)


@pytest.mark.parametrize("command", REGISTRY, ids=lambda each: each.name)
def test_each_command_is_described_and_can_be_written(command: Declared) -> None:
    assert parse_command(f"/{command.name} words") == Command(command.name, "words")
    assert all(parse_command(f"/{alias}") == Command(command.name, "") for alias in command.aliases)
    assert command.line[0].islower()
    assert not command.line.endswith(".")
    assert not command.more or command.more.endswith(".")
    assert set(re.findall(r"/([a-z]+)", command.line + command.more)) <= set(COMMANDS)


def test_what_the_operations_do_is_what_the_registry_declares() -> None:
    assert set(DOES) == set(COMMANDS)


@pytest.mark.parametrize(
    ("name", "busy"),
    [("new", Busy.END), ("stop", Busy.END), ("retry", Busy.END), ("undo", Busy.REFUSE), ("branch", Busy.REFUSE)],
)
def test_commands_declare_what_they_do_on_a_busy_lane(name: str, busy: Busy) -> None:
    assert BY_NAME[name].busy is busy


def test_only_a_restart_is_the_owners() -> None:
    assert [each.name for each in REGISTRY if each.right is Right.OWNER] == ["restart"]
    assert {each.name for each in REGISTRY if each.right is Right.ANYONE} == {"help", "whoami", "deny"}


@pytest.mark.parametrize(
    ("name", "meant"), [("hlep", "help"), ("resum", "resume"), ("STATUSS", "status"), ("nwe", "new"), ("dance", None)]
)
def test_the_nearest_command_is_offered(name: str, meant: str | None) -> None:
    assert nearest(name) == meant


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    command = parse_command(text)
    assert command is None or command.name == command.name.lower()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("1" * 5000, None),
        ("-1", None),
        ("", None),
        ("²", None),
    ],
)
def test_a_number_is_only_read_where_it_can_be_one_of_ours(text: str, number: int | None) -> None:
    assert number_in(text) == number
