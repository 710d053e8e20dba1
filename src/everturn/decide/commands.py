"""What counts as a command in a message, and which commands there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

COMMANDS: dict[str, str] = {
    "new": "start a fresh conversation; the earlier one is kept",
    "reset": "the same as /new",
    "resume": "list earlier conversations, or bring one back",
    "stop": "stop the running task and keep the conversation",
    "status": "show what is going on here",
    "help": "show this list",
}
ALIASES = {"start": "help", "commands": "help", "cancel": "stop"}
# A second slash, as in /usr/bin, or anything else glued to the word makes it ordinary text.
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command a person wrote; `name` is lower case and need not exist."""

    name: str
    argument: str


def parse_command(text: str) -> Command | None:
    """The command in `text`, or None when it is an ordinary message."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return Command(ALIASES.get(name, name), match[2] or "")


def nearest(name: str) -> str | None:
    """The known command that was probably meant."""
    return next(iter(get_close_matches(name.lower(), COMMANDS, n=1)), None)
