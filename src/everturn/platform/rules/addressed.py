"""Whether a message in a chat is for us, and which part of its text is for the agent."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?=\s|$)")
START = {"/start": "/help"}  # what a chat with a bot begins with


def addressed(
    text: str, name: str, *, direct: bool, reply_to_us: bool = False, listening: bool = False, edited: bool = False
) -> str | None:
    """The text for the agent; None when it is not for us.

    In a direct chat everything is. Elsewhere it must be a reply to us, a mention of our name, or a command that names
    nobody else; unless we listen to everything. A command of another bot is never ours. An edited text is for whoever the
    original was for, which the store knows: without our name it must not leave the old text in force.
    """
    command = _COMMAND.match(text)
    if command is not None:
        return _command(text, command, name)
    mentioned, rest = _without_name(text, name)
    if mentioned and (command := _COMMAND.match(rest)) is not None:
        return _command(rest, command, name)
    return rest if direct or reply_to_us or listening or edited or mentioned else None


def _command(text: str, command: re.Match[str], name: str) -> str | None:
    whose = command[2]
    if whose is not None and whose.lower() != name.lower():
        return None
    plain = f"/{command[1]}{text[command.end() :]}"
    return START.get(plain.split(maxsplit=1)[0].lower(), plain)


def _without_name(text: str, name: str) -> tuple[bool, str]:
    """Whether our name is mentioned, and the text without it at its beginning or end: in the middle it is part of a
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
    rest = text[begins.end() :] if begins else text
    whole = rest.rstrip()
    ends = re.search(rf"(?:{last})\Z", whole, re.IGNORECASE)
    return whole[: ends.start()].rstrip() if ends else rest
