"""Files that a tool sends, in words: for the model, for where they cannot be shown, and for who misses one."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from everturn.decide.delivery import MAY_REPEAT, marked
from everturn.decide.text import Unit, split
from everturn.decide.uploads import Upload

_SECRET = (
    "everturn.toml", "everturn.db*", "api_token", "*.lock", "*token*", "*secret*", "*password*", "*credential*", "*.pem", "*.key",
    "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_ed25519*", "id_ecdsa*", "shadow",
)  # fmt: skip
WHY_CHARS = 200
LOST = "the file is not there any more"


def keeps_secrets(parts: Sequence[str]) -> bool:
    """Whether a path leads to what nobody should be sent: hidden files and folders, keys, the gateway's own files."""
    hidden = any(part.startswith(".") for part in parts)
    return hidden or any(fnmatchcase(part.lower(), secret) for part in parts for secret in _SECRET)


def linked(upload: Upload, kind: str, words: str) -> str:
    """Where a page shows it: the words, and a link that a picture is seen behind."""
    link = f"[{upload.name}]({upload.address})"
    shown = f"!{link}" if kind.startswith("image/") else link
    return f"{words}\n\n{shown}" if words else shown


def beneath_file(words: str, caption: int, text: int, unit: Unit, *, doubtful: bool) -> list[str]:
    """What stands beneath a file, then the messages that follow it with words that have no room there. Where it may be a
    repetition, the file itself says so.
    """
    whole = marked(words).lstrip() if doubtful else words
    if unit(whole) <= caption:
        return [whole]
    return [MAY_REPEAT if doubtful else "", *split(whole, text, unit)]


def not_here(name: str, words: str) -> str:
    """What a platform shows that takes no files."""
    sentence = f"(I have a file for you, {name}, but it can not be sent here.)"
    return f"{words}\n\n{sentence}" if words else sentence


def not_sent(name: str, why: str, *, out: int, words: bool, files: bool, unknown: bool) -> str:
    """For those who wait for it: what they have, and what they do not. `out`: how many messages of it are there, of which
    the first is the file itself where the platform takes `files`. `unknown`: the next one may be there, too.
    """
    file, belonging = f"the file {name}", f"{'all of ' if out > 1 or not files else ''}the words that belong to it"
    if out and files:
        have, missing = f"You have {file}, but ", belonging
    elif out:
        have, missing = "", f"{file}, nor {belonging}"
    else:
        have, missing = "", f"{file} and the words that belong to it" if words else file
    said = f"I do not know whether {missing} reached you" if unknown else f"I could not send you {missing}"
    return f"{have}{said}: {' '.join(why.split())[:WHY_CHARS]}"


def will_be_sent(name: str, to: str, *, takes_files: bool) -> str:
    """What the model is told."""
    if takes_files:
        return f"The file {name} will be delivered to {to}."
    return f"Files can not be sent to {to}: only the name {name} and your words will be delivered."
