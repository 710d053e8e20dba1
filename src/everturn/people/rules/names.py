"""Names, topics and other short texts that strangers chose: one line, bounded, without anything that steers a reader."""

from __future__ import annotations

import unicodedata

from everturn.model import SessionSource
from everturn.sessions.rules.keys import Isolation, is_shared

NAME_LIMIT = 64
TEXT_LIMIT = 240
_REPLACED = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "", "Co": "", "Cn": ""}
_BRACKETS = str.maketrans("[]", "()")
_LIKE_A_BRACKET = frozenset("[\u2045\u2772\u27e6\u27ec\u298b\u298d\u298f\u3010\u3014\u3016\u3018\u301a")


def clean_text(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """One line of at most `limit` characters; control, format and unassigned characters are gone."""
    # Only the front is looked at: what a stranger sends may be very long, and the rest is cut off anyway.
    seen = (text or "")[: limit * 8]
    if not seen.isprintable():  # nearly all are, and thousands are looked at to find one
        seen = "".join(_REPLACED.get(unicodedata.category(character), character) for character in seen)
    line = " ".join(seen.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def clean_name(name: str | None, limit: int = NAME_LIMIT) -> str:
    """A person's or a chat's name as one short line that cannot close the brackets it stands in."""
    return clean_text(name, limit).translate(_BRACKETS)


def authored(author: str | None, text: str) -> str:
    """The text with its author in front, as the model sees it where several people speak. A line that begins with a bracket,
    and so looks as if somebody else said it, has the author in front, too. All other lines stay as they are.
    """
    name = clean_name(author)
    if not name:
        return text
    first, *lines = text.splitlines(keepends=True) or [""]
    return f"[{name}] {first}" + "".join(f"[{name}] {line}" if _names_somebody(line) else line for line in lines)


def _names_somebody(line: str) -> bool:
    """Whether a line looks as if it began with a name in brackets: what cannot be seen before it does not count."""
    seen = next((each for each in line if unicodedata.category(each)[0] not in "CZM"), "")
    return seen in _LIKE_A_BRACKET or unicodedata.normalize("NFKC", seen)[:1] == "["


def author_of(source: SessionSource, isolation: Isolation) -> str | None:
    """The author's name where several people speak in the lane; None where one person does."""
    if not is_shared(source, isolation):
        return None
    return clean_text(source.user_name) or clean_text(source.user_id) or None
