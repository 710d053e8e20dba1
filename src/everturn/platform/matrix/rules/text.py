"""Text on Matrix: formatting, size in an event, and which text of a message is for us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from everturn.commands.rules.registry import BY_NAME, canonical
from everturn.platform.rules import markup
from everturn.platform.rules.addressed import addressed, trimmed

MATRIX = markup.Dialect(bold="strong", slanted="em", struck="del", newline="<br>", blocks=True)
TEXT_WEIGHT = 16_000
NOT_READ = (
    "This room is encrypted, and I cannot read encrypted messages. Please invite me to a room without encryption: it is"
    " chosen when a room is created, and cannot be switched off later."
)
NO_PLAIN_TEXT = (
    "the room is encrypted, and a plain message could be read by everybody on its homeserver; write in a room without"
    " encryption"
)
HTML_WEIGHT = 38_000  # with the text, an edit's fallback and what the server adds, an event stays below 64 KiB
_ESCAPED = re.compile(r'["\\\n\r\t\b\f]')
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
_QUOTED = re.compile(r"> (?:\* )?<@[^>\n]+>")
_BANG = re.compile(r"!([A-Za-z][A-Za-z_-]*)(?=\s|$)")


def weight(text: str) -> int:
    """The size of a text in an event: its bytes as JSON. Every character counts at least one."""
    return len(text.encode("utf-8", "replace")) + len(_ESCAPED.findall(text)) + 5 * len(_CONTROL.findall(text))


def to_html(text: str) -> str | None:
    """The text with its Markdown as HTML; None where that would show nothing more, or not fit into an event."""
    html = markup.to_html(text, MATRIX)
    plain = escape(text, quote=False).replace("\n", "<br>")
    return None if html == plain or weight(html) > HTML_WEIGHT else html


def exact_html(text: str) -> str:
    """The text as it is, in HTML: an approval request shows what runs, whatever marks stand in it."""
    return markup.exact_html(text, MATRIX).replace("  ", " &#160;")  # HTML shows several spaces as one


def without_fallback(text: str) -> str:
    """The text of a reply without the quotation that older clients put in front of it."""
    if not _QUOTED.match(text):
        return text
    lines = text.split("\n")
    kept = next((place for place, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[kept:]).lstrip("\n")


def for_us(
    text: str, user: str, name: str, *, direct: bool, mentioned: bool, reply_to_us: bool, listening: bool
) -> str | None:
    """The text for the agent; None when it is not for us. `user` is our id, `name` our display name in the room,
    `mentioned` what the sender's client reports.

    A command may begin with an exclamation mark: many clients keep the slash for themselves.
    """
    local = user[1:].partition(":")[0]
    named, rest = _without_names(text, tuple(each for each in (user[1:], name, local) if each), told=mentioned)
    return addressed(
        _slashed(rest), local, direct=direct, reply_to_us=reply_to_us, listening=listening or named or mentioned
    )


def _slashed(text: str) -> str:
    bang = _BANG.match(text)
    known = bang is not None and canonical(bang[1].lower()) in BY_NAME
    return f"/{text[1:]}" if known else text


def _without_names(text: str, names: Sequence[str], *, told: bool) -> tuple[bool, str]:
    """Whether our name is mentioned, and the text without it at its beginning or end: in the middle it is part of a
    sentence. A bare name counts only where it is followed by a colon or comma, or the client reports a mention.
    """
    name = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
    at = rf"(?<!\w)@(?:{name})(?!\w)"
    bare_first, bare_last = (rf"(?:{name})(?!\w)[,:]?", rf"|(?<!\w)(?:{name})") if told else (rf"(?:{name})[,:]", "")
    first = rf"{at}[,:]?|{bare_first}"
    found = any(re.search(each, text, re.IGNORECASE) for each in (rf"\A\s*(?:{first})", at))
    return found, trimmed(text, first, f"{at}{bare_last}") if found or told else text
