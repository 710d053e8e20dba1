"""Texts as Telegram counts and marks them: UTF-16 units, entities, and the HTML that a bot may send.

https://core.telegram.org/bots/api#messageentity and https://core.telegram.org/bots/api#html-style
"""

from __future__ import annotations

import html
import re

from everturn.testing.telegram.state import Object, bad

_TOKEN = re.compile(r"<(/?)([A-Za-z0-9-]*)((?:\s+[A-Za-z-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]*))?)*)\s*>|<|&(#?\w+);")
_ATTRIBUTE = re.compile(r"([A-Za-z-]+)(?:=[\"']?([^\"'>]*)[\"']?)?")
_SPECIAL = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@\w+)?|(?<!\w)@[A-Za-z]\w{3,31}")
_KINDS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
    "span": "spoiler", "a": "text_link", "code": "code", "pre": "pre", "blockquote": "blockquote",
    "tg-emoji": "custom_emoji",
}  # fmt: skip
_NAMED = frozenset({"lt", "gt", "amp", "quot"})


def units(text: str) -> int:
    """The length in UTF-16 code units, which is how every offset and limit is counted."""
    return len(text.encode("utf-16-le")) // 2


def found_in(text: str) -> list[Object]:
    """The entities (commands and mentions) that Telegram itself marks in what people write."""
    return [
        {
            "type": "bot_command" if match[0].startswith("/") else "mention",
            "offset": units(text[: match.start()]),
            "length": units(match[0]),
        }
        for match in _SPECIAL.finditer(text)
    ]


def marked_in(text: str) -> list[str]:
    """The texts of those commands and mentions."""
    return _SPECIAL.findall(text)


def parsed(text: str, mode: str | None) -> tuple[str, list[Object]]:
    """The visible text and its entities. HTML and plain text are supported, no other parse mode."""
    if not mode:
        return text, found_in(text)
    if mode.lower() != "html":
        raise bad("unsupported parse_mode")
    return _Html().read(text)


class _Html:
    """Parses one text with tags."""

    def __init__(self) -> None:
        self._out = ""
        self._open: list[tuple[str, int, Object]] = []
        self._entities: list[Object] = []

    def read(self, text: str) -> tuple[str, list[Object]]:
        place = 0
        for match in _TOKEN.finditer(text):
            self._out += text[place : match.start()]
            place = match.end()
            self._token(match, len(text[: match.start()].encode()))
        if self._open:
            raise bad(f"can't parse entities: Can't find end tag corresponding to start tag \"{self._open[-1][0]}\"")
        self._out += text[place:]
        entities = sorted((each for each in self._entities if each["length"]), key=lambda each: int(each["offset"]))
        return self._out, entities

    def _token(self, match: re.Match[str], at: int) -> None:
        closing, tag, attributes, character = match[1], (match[2] or "").lower(), match[3] or "", match[4]
        if character is not None:
            known = character in _NAMED or character.startswith("#")
            self._out += html.unescape(match[0]) if known else match[0]
        elif closing:
            self._end(tag, at)
        elif tag not in _KINDS:
            raise bad(f'can\'t parse entities: Unsupported start tag "{tag}" at byte offset {at}')
        else:
            about = {name: html.unescape(value or "") for name, value in _ATTRIBUTE.findall(attributes)}
            self._open.append((tag, units(self._out), _entity(tag, about)))

    def _end(self, tag: str, at: int) -> None:
        if not self._open:
            raise bad(f"can't parse entities: Unexpected end tag at byte offset {at}")
        name, start, entity = self._open.pop()
        if tag not in {name, ""}:
            raise bad(
                f'can\'t parse entities: Unmatched end tag at byte offset {at}, expected "</{name}>", found "</{tag}>"'
            )
        self._entities.append(
            {"type": entity.pop("type"), "offset": start, "length": units(self._out) - start, **entity}
        )


def _entity(tag: str, about: dict[str, str]) -> Object:
    entity: Object = {"type": _KINDS[tag]}
    if tag == "a":
        entity["url"] = about.get("href", "")
    if tag == "code" and about.get("class", "").startswith("language-"):
        entity["language"] = about["class"].removeprefix("language-")
    return entity
