"""Texts about files that a tool sends: for the model, for platforms without files, and for failed deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from everturn.home.rules.files import Upload
from everturn.outbox.rules.delivery import MAY_REPEAT, marked
from everturn.outbox.rules.text import Unit, split

_SECRET = (
    "everturn.toml", "everturn.db*", "api_token", "*.lock", "*token*", "*secret*", "*password*", "*credential*", "*.pem", "*.key",
    "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_ed25519*", "id_ecdsa*", "shadow",
)  # fmt: skip
WHY_CHARS = 200
LOST = "the file no longer exists"


def keeps_secrets(parts: Sequence[str]) -> bool:
    """Whether a path names something that must not be sent: hidden files and folders, keys, the gateway's own files."""
    hidden = any(part.startswith(".") for part in parts)
    return hidden or any(fnmatchcase(part.lower(), secret) for part in parts for secret in _SECRET)


def linked(upload: Upload, kind: str, text: str) -> str:
    """The text for the page: the message, and a link to the file; an image is shown."""
    link = f"[{upload.name}]({upload.address})"
    shown = f"!{link}" if kind.startswith("image/") else link
    return f"{text}\n\n{shown}" if text else shown


def beneath_file(body: str, caption: int, text: int, unit: Unit, *, unknown: bool) -> list[str]:
    """The caption of a file, then the messages that follow it with the text that has no room there. Where it may be a
    repetition, the caption says so.
    """
    whole = marked(body).lstrip() if unknown else body
    if unit(whole) <= caption:
        return [whole]
    return [MAY_REPEAT if unknown else "", *split(whole, text, unit)]


def not_here(name: str, text: str) -> str:
    """The text for a platform that takes no files."""
    sentence = f"(I have a file for you, {name}, but files cannot be sent here.)"
    return f"{text}\n\n{sentence}" if text else sentence


def not_sent(name: str, why: str, *, out: int, text: bool, files: bool, unknown: bool) -> str:
    """The notice about a file that failed: what arrived, and what did not. `out`: how many messages of it were sent, of which
    the first is the file itself where the platform takes `files`. `unknown`: the next one may have arrived, too.
    """
    file, belonging = f"the file {name}", f"{'all of ' if out > 1 or not files else ''}the text that belongs to it"
    if out and files:
        have, missing = f"You have {file}, but ", belonging
    elif out:
        have, missing = "", f"{file}, nor {belonging}"
    else:
        have, missing = "", f"{file} and the text that belongs to it" if text else file
    said = f"I do not know whether {missing} reached you" if unknown else f"I could not send you {missing}"
    return f"{have}{said}: {' '.join(why.split())[:WHY_CHARS]}"


def will_be_sent(name: str, to: str, *, takes_files: bool) -> str:
    """The result of the send tool for the model."""
    if takes_files:
        return f"The file {name} will be delivered to {to}."
    return f"Files cannot be sent to {to}: only the name {name} and your text will be delivered."
