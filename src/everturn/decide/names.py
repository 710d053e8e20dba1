"""Names, topics and other short texts that strangers chose: one line, bounded, without anything that steers a reader."""

from __future__ import annotations

import unicodedata

from everturn.decide.keys import Isolation, is_shared
from everturn.model import SessionSource

NAME_LIMIT = 64
TEXT_LIMIT = 240
_ASIDE = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "", "Co": "", "Cn": ""}
_BRACKETS = str.maketrans("[]", "()")


def clean_text(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """One line of at most `limit` characters; control, format and unassigned characters are gone."""
    # Only the front is looked at: what a stranger sends may be very long, and the rest is cut off anyway.
    seen = (text or "")[: limit * 8]
    if not seen.isprintable():  # nearly all are, and thousands are looked at to find one
        seen = "".join(_ASIDE.get(unicodedata.category(character), character) for character in seen)
    line = " ".join(seen.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def clean_name(name: str | None, limit: int = NAME_LIMIT) -> str:
    """A person's or a chat's name as one short line that can not close the brackets it stands in."""
    return clean_text(name, limit).translate(_BRACKETS)


def authored(author: str | None, words: str) -> str:
    """The words with their author in front, as the model sees them where several people speak."""
    name = clean_name(author)
    return f"[{name}] {words}" if name else words


def author_of(source: SessionSource, isolation: Isolation) -> str | None:
    """Who said it, where several people speak in the lane; None where one person does."""
    if not is_shared(source, isolation):
        return None
    return clean_text(source.user_name) or clean_text(source.user_id) or None
