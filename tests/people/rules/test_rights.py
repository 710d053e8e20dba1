"""Who may use which command, by platform and scope."""

import pytest

from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import BY_NAME, COMMANDS
from everturn.model import SessionSource
from everturn.people.rules.rights import NO_RIGHTS, ChatRights, Rights, may, menu, rank_of

GATED = Rights(
    owners=("telegram:1", "matrix:@o:x"),
    scopes={"telegram:group": ChatRights(admins=("2",), commands=("status", "reset"))},
)


def at(person: str | None, chat_type: str = "group", platform: str = "telegram") -> SessionSource:
    return SessionSource(platform=platform, chat_id="c", chat_type=chat_type, user_id=person)


@pytest.mark.parametrize(
    ("source", "rank"),
    [
        (at("1"), "owner"),
        (at("1", "dm"), "owner"),
        (at("1", platform="slack"), "user"),
        (at("2"), "admin"),
        (at("2", "thread"), "admin"),
        (at("2", "dm"), "user"),
        (at("3"), "user"),
        (at(None), "user"),
        (at(None, "dm", "api"), "owner"),
        (at("key:bot", "dm", "api"), "user"),  # a program has the rights of its name, not the owner's
        (at("owner", "dm", "web"), "owner"),
        (at("somebody", "dm", "web"), "user"),
        (SessionSource(platform="matrix", user_id="k", user_id_alt="@o:x"), "owner"),
    ],
)
def test_a_person_has_a_rank_where_they_write(source: SessionSource, rank: str) -> None:
    assert rank_of(GATED, source) == rank


@pytest.mark.parametrize(
    ("source", "command", "allowed"),
    [
        (at("3"), "undo", False),  # nobody listed it
        (at("3"), "status", True),
        (at("3"), "new", True),  # listed by its alias
        (at("3"), "help", True),
        (at("3"), "whoami", True),
        (at(None), "undo", False),
        (at("2"), "undo", True),
        (at("2"), "restart", False),  # an admin is not the owner
        (at("1"), "restart", True),
        (at("3", "dm"), "undo", True),  # no admin named there: gating is off
        (at("3", "dm"), "restart", False),
        (at("3", platform="slack"), "undo", True),
        (at(None, "dm", "api"), "restart", True),
    ],
)
def test_rights_are_those_of_the_platform_and_the_scope(source: SessionSource, command: str, allowed: bool) -> None:  # noqa: FBT001
    assert may(GATED, source, BY_NAME[command]) is allowed


def test_without_settings_everybody_may_use_all_but_the_owners() -> None:
    assert [each.name for each in menu(NO_RIGHTS, at("9", "dm"))] == [each for each in COMMANDS if each != "restart"]


def test_a_menu_offers_what_may_be_used() -> None:
    assert [each.name for each in menu(GATED, at(None))] == ["new", "deny", "status", "whoami", "help"]


def test_a_denial_names_who_may() -> None:
    text = command_texts.denied(BY_NAME["undo"], GATED, menu(GATED, at("3")))
    assert text == "Only the admins of this chat may use /undo. You may use /new, /deny, /status, /whoami, /help."
    assert "Only the owner" in command_texts.denied(BY_NAME["restart"], GATED, [])
    assert "add one to owners in [rights]" in command_texts.denied(BY_NAME["restart"], NO_RIGHTS, [])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (at("1"), "the owner and may use every command."),
        (at("2"), "an admin and may use every command that is not the owner's"),
        (at("3"), "a user and may use the commands that /help lists"),
        (at("3", "dm"), "a user and may use every command that is not the owner's"),
    ],
)
def test_whoami_says_what_we_know(source: SessionSource, said: str) -> None:
    text = command_texts.whoami(GATED, source)
    assert said in text
    assert f"Your id: {source.user_id}" in text
    assert f"telegram:{'dm' if source.chat_type == 'dm' else 'group'}" in text
