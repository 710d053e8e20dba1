"""Which messages are for us: in a group only those that address us, and never those that name another bot."""

import pytest

from everturn.platform.rules import addressed

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
        ("@everturn_bot's opinion?", "@everturn_bot's opinion?"),
        ("@everturn_bot: /new", "/new"),
        ("@everturn_bot /start", "/help"),
        ("@everturn_bot /new@other_bot", None),
        ("@everturn_bot", ""),
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


@pytest.mark.parametrize("name", ["@everturn_bot", "x"])
def test_a_text_of_spaces_takes_no_longer_than_another_one(name: str) -> None:
    """Whoever writes so must not hold everybody up: looked at from every place, this would take hours."""
    spaces = " " * 200_000
    text = "hi" if name.startswith("@") else f"hi{spaces}x"
    assert addressed(f"@everturn_bot hi{spaces}{name}", BOT, direct=False) == text


def test_without_a_name_nobody_can_mention_us() -> None:
    assert addressed("@ hello", "", direct=False) is None


@pytest.mark.parametrize(
    ("text", "words"), [("hello", "hello"), ("@everturn_bot hello", "hello"), ("/new@other_bot", None), ("", "")]
)
def test_words_that_replace_earlier_ones_need_not_name_us_again(text: str, words: str | None) -> None:
    assert addressed(text, BOT, direct=False, edited=True) == words
