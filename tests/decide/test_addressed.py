"""Who is meant: in a group only what is said to us, and never the name of another bot."""

import pytest

from everturn.decide.addressed import addressed

BOT = "everturn_bot"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "hello"),
        ("", ""),
        ("@everturn_bot hello", "hello"),
        ("/new", "/new"),
        ("/new@everturn_bot a title", "/new a title"),
        ("/new@Everturn_Bot", "/new"),
        ("/new@other_bot", None),
        ("/start", "/help"),
        ("/start payload", "/help"),
        ("/etc/passwd is a file", "/etc/passwd is a file"),
    ],
)
def test_in_a_direct_chat_everything_is_for_us(text: str, words: str | None) -> None:
    assert addressed(text, BOT, direct=True) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", None),
        ("@everturn_bot hello", "hello"),
        ("@Everturn_Bot, hello", "hello"),
        ("hello @everturn_bot", "hello"),
        ("what does @everturn_bot think?", "what does @everturn_bot think?"),
        ("@everturn_bots hello", None),
        ("mail@everturn_bot", None),
        ("@other_bot hello", None),
        ("/new", "/new"),
        ("/new@everturn_bot", "/new"),
        ("/new@other_bot", None),
        ("/new@other_bot @everturn_bot", None),
        ("/etc/passwd is a file", None),
    ],
)
def test_elsewhere_it_must_name_us(text: str, words: str | None) -> None:
    assert addressed(text, BOT, direct=False) == words


@pytest.mark.parametrize(("text", "words"), [("hello", "hello"), ("/new@other_bot", None)])
def test_a_reply_to_us_is_for_us_and_so_is_everything_when_we_listen(text: str, words: str | None) -> None:
    assert addressed(text, BOT, direct=False, reply_to_us=True) == words
    assert addressed(text, BOT, direct=False, listening=True) == words


def test_without_a_name_nobody_can_mention_us() -> None:
    assert addressed("@ hello", "", direct=False) is None
