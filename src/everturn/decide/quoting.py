"""What somebody answers to: the agent reads it before their words, as it may never have seen it."""

from __future__ import annotations

import re

from everturn.decide.commands import parse_command
from everturn.decide.names import clean_name

QUOTED_CHARS = 500
_LINE = re.compile(r"\[in reply to [^\[\]\n]+\]\n")


def in_reply(words: str, quoted: str, author: str | None) -> str:
    """The words of a reply with what it answers in front, in one line that can not end early. `author`: None for ourselves.
    A command stays one: it says what it means by itself.
    """
    line = clean_name(quoted, QUOTED_CHARS)
    if not line or parse_command(words) is not None:
        return words
    whose = "your" if author is None else f"{clean_name(author) or 'somebody'}'s"
    return f"[in reply to {whose} message: {line}]\n{words}"


def edited(before: str, now: str) -> str:
    """What an edit says, with what the message answered: not every platform tells that again."""
    line = _LINE.match(before)
    return now if line is None or _LINE.match(now) else line[0] + now
