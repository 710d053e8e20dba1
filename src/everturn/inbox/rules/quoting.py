"""Quotes: the agent reads the message that somebody replies to before their text, as it may never have seen it."""

from __future__ import annotations

import re

from everturn.commands.rules.registry import parse_command
from everturn.people.rules.names import clean_name

QUOTED_CHARS = 500
_LINE = re.compile(r"\[in reply to [^\[\]\n]+\]\n")


def in_reply(text: str, quoted: str, author: str | None) -> str:
    """The text of a reply after a line that quotes the message it answers; the quote cannot end that line early.
    `author`: None for ourselves. A command stays as it is.
    """
    line = clean_name(quoted, QUOTED_CHARS)
    if not line or parse_command(text) is not None:
        return text
    whose = "your" if author is None else f"{clean_name(author) or 'somebody'}'s"
    return f"[in reply to {whose} message: {line}]\n{text}"


def edited(before: str, now: str) -> str:
    """The edited text, with the quote of the earlier text: not every platform sends the quote again."""
    line = _LINE.match(before)
    return now if line is None or _LINE.match(now) else line[0] + now
