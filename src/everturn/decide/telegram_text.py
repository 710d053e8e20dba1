"""Markdown, as models write it, in the HTML that Telegram understands. What is not understood stays as it was written.

The visible text is never longer than what it was made from, so that a piece that fits still fits; tags are closed in the
order in which they were opened, so that Telegram has no reason to refuse it.
"""

from __future__ import annotations

import re
from html import escape

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_HEADING = re.compile(r"^ {0,3}#{1,6} +(\S.*?)[ #]*$")
_BULLET = re.compile(r"^(\s*)[-*+] +(?=\S)")
_QUOTE = re.compile(r"^ {0,3}> ?")
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\]\n]+)\]\((?P<url>(?:https?://|tg://|mailto:)[^\s)]+)\)"
    r"|\*\*(?=\S)(?P<b>.+?)(?<=\S)\*\*"
    r"|~~(?=\S)(?P<s>.+?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<i>[^*\n]+?)(?<=[^\s*])\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<u>[^_\n]+?)(?<=[^\s_])_(?!\w)"
)
_TAGS = {"b": "b", "s": "s", "i": "i", "u": "i"}


def to_html(text: str) -> str:
    """The text with its marks as tags."""
    out: list[str] = []
    lines = text.split("\n")
    while lines:
        fence = _FENCE.match(lines[0])
        taken = (
            _code(lines, fence, out) if fence else _quote(lines, out) if _QUOTE.match(lines[0]) else _line(lines, out)
        )
        lines = lines[taken:]
    return "\n".join(out)


def _code(lines: list[str], fence: re.Match[str], out: list[str]) -> int:
    """A block of code, up to its closing line or to the end."""
    close = re.compile(rf"^ {{0,3}}{re.escape(fence[1])}[`~]*\s*$")
    end = next((place for place, line in enumerate(lines) if place and close.match(line)), len(lines))
    body = _text("\n".join(lines[1:end]))
    language = f' class="language-{escape(fence[2])}"' if fence[2] else ""
    if body.strip():
        out.append(f"<pre><code{language}>{body}</code></pre>" if language else f"<pre>{body}</pre>")
    return end + 1


def _quote(lines: list[str], out: list[str]) -> int:
    """Neighbouring lines that begin with >."""
    end = next((place for place, line in enumerate(lines) if not _QUOTE.match(line)), len(lines))
    body = "\n".join(_inline(_QUOTE.sub("", line)) for line in lines[:end])
    out.append(f"<blockquote>{body}</blockquote>")
    return end


def _line(lines: list[str], out: list[str]) -> int:
    heading = _HEADING.match(lines[0])
    if heading:
        out.append(f"<b>{_inline(heading[1].replace('**', ''))}</b>")
    else:
        out.append(_inline(_BULLET.sub("\\1• ", lines[0])))
    return 1


def _inline(text: str) -> str:
    out, place = "", 0
    for match in _INLINE.finditer(text):
        out += _text(text[place : match.start()]) + _marked(match)
        place = match.end()
    return out + _text(text[place:])


def _marked(match: re.Match[str]) -> str:
    if match["code"] is not None:
        return f"<code>{_text(match['code'].strip() or match['code'])}</code>"
    if match["url"] is not None:
        return f'<a href="{escape(match["url"])}">{_inline(match["label"])}</a>'
    name = next(name for name in _TAGS if match[name] is not None)
    return f"<{_TAGS[name]}>{_inline(match[name])}</{_TAGS[name]}>"


def _text(text: str) -> str:
    return escape(text, quote=False)
