"""Extracts the text of a web page in one pass from left to right, in linear time whatever the page holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from itertools import islice
from urllib.parse import urljoin

_TAG = re.compile(r"/?([a-zA-Z][a-zA-Z0-9]{0,20})")
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]{1,2000})"|'([^']{1,2000})'|([^\s"'>]{1,2000}))""", re.IGNORECASE)
_SILENT = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "template", "noscript", "svg", "head", "iframe", "title")
}
_BREAKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "td",
        "th",
        "title",
        "tr",
        "ul",
    ]
)
_LONGEST_TAG = 10_000
MOST_PIECES = 200_000  # no honest page has as many
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")
_LINES = re.compile(r"\s*\n\s*")


def text_of(page: str, address: str) -> str:
    """The visible text of a page, a line for each block; links carry their address."""
    title = re.search(r"<title[^>]{0,200}>([^<]{1,300})", page, re.IGNORECASE)
    text = "".join(islice(_pieces(page, address), MOST_PIECES))
    body = _LINES.sub("\n", _SPACES.sub(" ", text)).strip()
    return f"{' '.join(unescape(title[1]).split())}\n\n{body}" if title else body


def _pieces(page: str, address: str) -> Iterator[str]:
    place, link = 0, ""
    while (start := page.find("<", place)) >= 0:
        yield unescape(page[place:start])
        place = _after(page, start)
        name = _TAG.match(page, start + 1)
        if name is None:
            if place == start + 1:
                yield "<"
            continue
        kind = name[1].lower()
        if kind == "a":
            yield link
            link = "" if page[start + 1] == "/" else _target(page[start:place], address)
        elif kind in _BREAKS:
            yield "\n"
    yield unescape(page[place:])


def _after(page: str, start: int) -> int:
    """The position behind what begins here: a tag, a comment, or an element that shows no text."""
    if page.startswith("<!--", start):
        end = page.find("-->", start + 4)
        return end + 3 if end >= 0 else len(page)
    if not (page[start + 1 : start + 2].isalpha() or page[start + 1 : start + 2] in {"/", "!", "?"}):
        return start + 1  # a sign of its own
    end = page.find(">", start, start + _LONGEST_TAG)
    if end < 0:
        return start + 1
    name = _TAG.match(page, start + 1)
    closing = _SILENT.get(name[1].lower()) if name and page[start + 1] != "/" else None
    if closing is None:
        return end + 1
    found = closing.search(page, end)
    return found.start() if found else len(page)


def _target(tag: str, address: str) -> str:
    found = _HREF.search(tag)
    if not found:
        return ""
    try:
        target = urljoin(address, unescape(found[1] or found[2] or found[3]).strip())
    except ValueError:
        return ""
    return f" ({target})" if target.startswith(("http://", "https://")) and len(target) <= 500 else ""
