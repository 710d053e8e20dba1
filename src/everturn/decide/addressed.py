"""Whether what is said in a chat is said to us, and which of the words are meant for the agent."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?=\s|$)")
START = {"/start": "/help"}  # what a chat with a bot begins with


def addressed(
    text: str, name: str, *, direct: bool, reply_to_us: bool = False, listening: bool = False, edited: bool = False
) -> str | None:
    """The words for the agent; None when they are not for us.

    In a direct chat everything is. Elsewhere it must be a reply to us, a mention of our name, or a command that names
    nobody else; unless we are told to listen to everything. A command of another bot is never ours. Words that replace
    earlier ones are for whoever those were for, which the store knows: without our name they must not leave the old in force.
    """
    command = _COMMAND.match(text)
    if command is not None:
        return _command(text, command, name)
    mentioned, words = _without_name(text, name)
    if mentioned and (command := _COMMAND.match(words)) is not None:
        return _command(words, command, name)
    return words if direct or reply_to_us or listening or edited or mentioned else None


def _command(text: str, command: re.Match[str], name: str) -> str | None:
    whose = command[2]
    if whose is not None and whose.lower() != name.lower():
        return None
    plain = f"/{command[1]}{text[command.end() :]}"
    return START.get(plain.split(maxsplit=1)[0].lower(), plain)


def _without_name(text: str, name: str) -> tuple[bool, str]:
    """Whether we are mentioned, and the words without our name at their beginning or end: in the middle it is part of a
    sentence, and so it is where it is part of a word.
    """
    mention = rf"(?<!\w)@{re.escape(name)}(?!\w)"
    if not name or not re.search(mention, text, re.IGNORECASE):
        return False, text
    return True, trimmed(text, rf"{mention}(?:[,:]|(?=\s|\Z))", mention)


def trimmed(text: str, first: str, last: str) -> str:
    """The text without what these patterns find at its beginning and at its end, and without the space around that.

    The end is looked at alone: to look for space and a name from every place of a text would take the square of its length.
    """
    begins = re.match(rf"\s*(?:{first})\s*", text, re.IGNORECASE)
    words = text[begins.end() :] if begins else text
    whole = words.rstrip()
    ends = re.search(rf"(?:{last})\Z", whole, re.IGNORECASE)
    return whole[: ends.start()].rstrip() if ends else words
