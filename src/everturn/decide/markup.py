"""Markdown, as models write it, in HTML. What is not understood stays as it was written.

Platforms understand different tags; a dialect says which. Tags are closed in the order in which they were opened, so that no
platform has a reason to refuse them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_HEADING = re.compile(r"^ {0,3}(#{1,6}) +(\S.*?)[ #]*$")
_BULLET = re.compile(r"^(\s*)[-*+] +(?=\S)")
_QUOTE = re.compile(r"^ {0,3}> ?")
# What a mark may hold is bounded: else a text of nothing but opening marks takes the square of its length.
_INLINE = re.compile(
    r"\\(?P<escaped>[`*_~\[\]])"
    r"|(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]\n]{1,200})\]\((?P<url>(?:https?://|tg://|mailto:)(?:[^\s()]|\([^\s()]{0,200}\)){1,2000})\)"
    r"|(?P<bare>https?://[^\s<>*`]{1,2000})"  # an address is left as it is, whatever stands in it
    r"|\*\*(?!\*\*)(?=\S)(?P<bold>.{1,500}?)(?<=\S)\*\*(?!\*)"
    r"|~~(?=\S)(?P<struck>.{1,500}?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<slanted>[^*\n]+?)(?<=[^\s*])\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<low>[^_\n]+?)(?<=[^\s_])_(?!\w)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The tags of one platform."""

    bold: str
    slanted: str
    struck: str
    newline: str = "\n"  # what ends a line of text
    blocks: bool = False  # headings have tags of their own, and blocks stand on lines of their own without a newline


def to_html(text: str, dialect: Dialect) -> str:
    """The text with its marks as tags."""
    out, lines, before_block = "", text.split("\n"), True
    while lines:
        html, taken, block = _next(lines, dialect)
        apart = dialect.blocks and (block or before_block)
        if html is not None:
            out += html if apart or not out else dialect.newline + html
            before_block = block
        lines = lines[taken:]
    return out


def _next(lines: list[str], dialect: Dialect) -> tuple[str | None, int, bool]:
    """What begins here: its HTML if it shows anything, how many lines it takes, and whether it is a block."""
    if fence := _FENCE.match(lines[0]):
        return *_code(lines, fence, dialect), True
    if _QUOTE.match(lines[0]):
        return *_quote(lines, dialect), True
    if heading := _HEADING.match(lines[0]):
        tag = f"h{len(heading[1])}" if dialect.blocks else dialect.bold
        return f"<{tag}>{_inline(heading[2].replace('**', ''), dialect)}</{tag}>", 1, True
    return _inline(_BULLET.sub("\\1• ", lines[0]), dialect), 1, False


def _code(lines: list[str], fence: re.Match[str], dialect: Dialect) -> tuple[str | None, int]:
    """A block of code, up to its closing line or to the end."""
    close = re.compile(rf"^ {{0,3}}{re.escape(fence[1])}[`~]*\s*$")
    end = next((place for place, line in enumerate(lines) if place and close.match(line)), len(lines))
    body = _text("\n".join(lines[1:end]))
    if not body.strip():
        return None, end + 1
    if not fence[2] and not dialect.blocks:
        return f"<pre>{body}</pre>", end + 1
    language = f' class="language-{escape(fence[2])}"' if fence[2] else ""
    return f"<pre><code{language}>{body}</code></pre>", end + 1


def _quote(lines: list[str], dialect: Dialect) -> tuple[str, int]:
    """Neighbouring lines that begin with >."""
    end = next((place for place, line in enumerate(lines) if not _QUOTE.match(line)), len(lines))
    body = dialect.newline.join(_inline(_QUOTE.sub("", line), dialect) for line in lines[:end])
    return f"<blockquote>{body}</blockquote>", end


def _inline(text: str, dialect: Dialect) -> str:
    out, place = "", 0
    for match in _INLINE.finditer(text):
        out += _text(text[place : match.start()]) + _marked(match, dialect)
        place = match.end()
    return out + _text(text[place:])


def _marked(match: re.Match[str], dialect: Dialect) -> str:
    if (plain := match["escaped"] or match["bare"]) is not None:
        return _text(plain)
    if match["code"] is not None:
        return f"<code>{_text(match['code'].strip() or match['code'])}</code>"
    if match["url"] is not None:
        return f'<a href="{escape(match["url"])}">{_inline(match["label"], dialect)}</a>'
    tags = {"bold": dialect.bold, "struck": dialect.struck, "slanted": dialect.slanted, "low": dialect.slanted}
    name = next(name for name in tags if match[name] is not None)
    return f"<{tags[name]}>{_inline(match[name], dialect)}</{tags[name]}>"


def _text(text: str) -> str:
    return escape(text, quote=False)
