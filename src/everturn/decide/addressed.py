"""Whether what is said in a chat is said to us, and which of the words are meant for the agent."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?=\s|$)")
START = {"/start": "/help"}  # what a chat with a bot begins with


def addressed(text: str, name: str, *, direct: bool, reply_to_us: bool = False, listening: bool = False) -> str | None:
    """The words for the agent; None when they are not for us.

    In a direct chat everything is. Elsewhere it must be a reply to us, a mention of our name, or a command that names
    nobody else; unless we are told to listen to everything. A command of another bot is never ours.
    """
    command = _COMMAND.match(text)
    if command is not None:
        return _command(text, command, name)
    mentioned, words = _without_name(text, name)
    return words if direct or reply_to_us or listening or mentioned else None


def _command(text: str, command: re.Match[str], name: str) -> str | None:
    whose = command[2]
    if whose is not None and whose.lower() != name.lower():
        return None
    plain = f"/{command[1]}{text[command.end() :]}"
    return START.get(plain.split(maxsplit=1)[0].lower(), plain)


def _without_name(text: str, name: str) -> tuple[bool, str]:
    """Whether we are mentioned, and the words without our name at their beginning or end: in the middle it is part of a
    sentence.
    """
    mention = rf"(?<!\w)@{re.escape(name)}(?!\w)"
    if not name or not re.search(mention, text, re.IGNORECASE):
        return False, text
    return True, re.sub(rf"^\s*{mention}[,:]?\s*|\s*{mention}\s*$", "", text, flags=re.IGNORECASE)
