"""Rules that the platforms share: whether a message is for the agent, when a platform is lost, and Markdown as markup."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from everturn.turns.rules.approvals import INDENT

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?=\s|$)")
START = {"/start": "/help"}  # what a chat with a bot begins with


def addressed(
    text: str, name: str, *, direct: bool, reply_to_us: bool = False, listening: bool = False, edited: bool = False
) -> str | None:
    """The text for the agent; None when it is not for us.

    In a direct chat everything is. Elsewhere it must be a reply to us, a mention of our name, or a command that names
    nobody else; unless we listen to everything. A command of another bot is never ours. An edited text is for whoever the
    original was for, which the store knows: without our name it must not leave the old text in force.
    """
    command = _COMMAND.match(text)
    if command is not None:
        return _command(text, command, name)
    mentioned, rest = _without_name(text, name) if "@" in text else (False, text)
    if mentioned and (command := _COMMAND.match(rest)) is not None:
        return _command(rest, command, name)
    return rest if direct or reply_to_us or listening or edited or mentioned else None


def _command(text: str, command: re.Match[str], name: str) -> str | None:
    whose = command[2]
    if whose is not None and whose.lower() != name.lower():
        return None
    plain = f"/{command[1]}{text[command.end() :]}"
    return START.get(plain.split(maxsplit=1)[0].lower(), plain)


def _without_name(text: str, name: str) -> tuple[bool, str]:
    """Whether our name is mentioned, and the text without it at its beginning or end: in the middle it is part of a
    sentence, and so it is where it is part of a word.
    """
    mention = rf"(?<!\w)@{re.escape(name)}(?!\w)"
    if not name or not re.search(mention, text, re.IGNORECASE):
        return False, text
    return True, trimmed(text, rf"{mention}(?:[,:]|(?=\s|\Z))", mention)


def trimmed(text: str, first: str, last: str) -> str:
    """The text without what these patterns find at its beginning and at its end, and without the space around that.

    The end is looked at alone: to look for space and a name from every place of a text would take the square of its length.
    """
    begins = re.match(rf"\s*(?:{first})\s*", text, re.IGNORECASE)
    rest = text[begins.end() :] if begins else text
    whole = rest.rstrip()
    ends = re.search(rf"(?:{last})\Z", whole, re.IGNORECASE)
    return whole[: ends.start()].rstrip() if ends else rest


RECENT_S = 150.0  # a poll lasts 30 seconds, or a minute: twice that, and some


class Reach(StrEnum):
    """The connection state of a platform. Being connected proves nothing: it must have answered lately."""

    OPEN = "open"  # its clients connect to us
    READING = "reading"
    CONNECTING = "connecting"  # it has not answered in this process, and no error is known
    SILENT = "silent"  # it has not answered for long, and no error is known
    TROUBLE = "trouble"


def reach_of(received_at: float | None, trouble: str | None, now: float) -> Reach:
    """The state of a platform that reports when it last answered a read, and what is wrong."""
    if trouble:
        return Reach.TROUBLE
    if received_at is None:
        return Reach.CONNECTING
    return Reach.READING if now - received_at <= RECENT_S else Reach.SILENT


def reach_text(state: str, trouble: str | None, since: str) -> str:
    """The state as a text for people; `since` is a time as a text, empty if it is not known."""
    began = f" since {since}" if since else ""
    match state:
        case Reach.TROUBLE:
            return f"cannot be read{began}: {trouble}"
        case Reach.SILENT:
            return f"has sent nothing{began}"
        case Reach.CONNECTING:
            return f"connecting{began}"
        case _:
            return state


# No pattern goes back over what it took (`*+`): else a line of the right marks takes the square or the cube of its length.
_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$")
_HEADING = re.compile(r"^ {0,3}(#{1,6}) +(\S)(.*)$")
_BULLET = re.compile(r"^(\s*)[-*+] +(?=\S)")
_QUOTE = re.compile(r"^ {0,3}> ?")
# A mark that is closed far behind it is only found here. What closes it is looked up in a list that one walk made: if each opening
# mark looked for its own, a text of nothing but opening marks would take the square of its length.
_INLINE = re.compile(
    r"\\(?P<escaped>[`*_~\[\]])"
    r"|(?P<ticks>`++)"
    r"|\[(?P<label>[^\[\]\n]{1,200}+)\]\((?P<url>(?:https?://|tg://|mailto:)(?:[^\s()]|\([^\s()]{0,200}+\)){1,2000}+)\)"
    r"|(?P<bare>https?://[^\s<>*`]{1,2000}+)"  # an address is left as it is, whatever stands in it
    r"|(?P<bold>\*\*)(?!\*\*)(?=\S)"
    r"|(?P<struck>~~)(?=\S)"
    r"|(?<![\w*])\*(?=[^\s*])(?P<slanted>[^*\n]++)(?<=[^\s*])\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<low>[^_\n]++)(?<=[^\s_])_(?!\w)"
)
_TICKS = re.compile(r"`++")
_CLOSES = {"bold": re.compile(r"(?<=\S)(?=\*\*(?!\*))"), "struck": re.compile(r"(?<=\S)(?=~~)")}
_MARK_CHARS = 500  # the longest text that is bold or struck


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The tags of one platform."""

    bold: str
    slanted: str
    struck: str
    newline: str = "\n"  # what ends a line of text
    blocks: bool = False  # headings have tags of their own, and blocks stand on lines of their own without a newline


def to_html(text: str, dialect: Dialect) -> str:
    """The text with its Markdown, as models write it, as HTML. What is not understood stays as it was written.

    Tags are closed in the order in which they were opened, so that no platform has a reason to refuse them.
    """
    out, lines, place, before_block = "", text.split("\n"), 0, True
    while place < len(lines):
        html, place, block = _next(lines, place, dialect)
        apart = dialect.blocks and (block or before_block)
        if html is not None:
            out += html if apart or not out else dialect.newline + html
            before_block = block
    return out


def exact_html(text: str, dialect: Dialect) -> str:
    """The text as it is, without reading Markdown in it; lines that are indented as a call are in monospace."""
    return dialect.newline.join(_exact_line(line) for line in text.split("\n"))


def _exact_line(line: str) -> str:
    html = escape(line.removeprefix(INDENT), quote=False)
    return f"<code>{html}</code>" if line.startswith(INDENT) and line.strip() else html


def _next(lines: list[str], place: int, dialect: Dialect) -> tuple[str | None, int, bool]:
    """The block that begins at this line: its HTML if it shows anything, the line after it, and whether it is a block."""
    line = lines[place]
    if fence := _FENCE.match(line):
        return *_code(lines, place, fence, dialect), True
    if _QUOTE.match(line):
        return *_quote(lines, place, dialect), True
    if heading := _HEADING.match(line):
        tag = f"h{len(heading[1])}" if dialect.blocks else dialect.bold
        text = heading[2] + heading[3].rstrip(" #")
        return f"<{tag}>{_inline(text.replace('**', ''), dialect)}</{tag}>", place + 1, True
    return _inline(_BULLET.sub("\\1• ", line), dialect), place + 1, False


def _code(lines: list[str], place: int, fence: re.Match[str], dialect: Dialect) -> tuple[str | None, int]:
    """A block of code, up to its closing line or to the end."""
    close = re.compile(rf"^ {{0,3}}{re.escape(fence[1])}[`~]*\s*$")
    end = next((each for each in range(place + 1, len(lines)) if close.match(lines[each])), len(lines))
    body = escape("\n".join(lines[place + 1 : end]), quote=False)
    if not body.strip():
        return None, end + 1
    if not fence[2] and not dialect.blocks:
        return f"<pre>{body}</pre>", end + 1
    language = f' class="language-{escape(fence[2])}"' if fence[2] else ""
    return f"<pre><code{language}>{body}</code></pre>", end + 1


def _quote(lines: list[str], place: int, dialect: Dialect) -> tuple[str, int]:
    """Neighbouring lines that begin with >."""
    end = next((each for each in range(place, len(lines)) if not _QUOTE.match(lines[each])), len(lines))
    body = dialect.newline.join(_inline(_QUOTE.sub("", line), dialect) for line in lines[place:end])
    return f"<blockquote>{body}</blockquote>", end


def _inline(text: str, dialect: Dialect) -> str:
    if (match := _INLINE.search(text)) is None:
        return escape(text, quote=False)
    out, place, closers = list[str](), 0, _Closers(text)
    while match is not None:
        marked, end = _marked(match, dialect, closers)
        if marked is not None:  # else nothing closes it: it stays as it is
            out += escape(text[place : match.start()], quote=False), marked
            place = end
        match = _INLINE.search(text, end)
    return "".join(out) + escape(text[place:], quote=False)


class _Closers:
    """Where marks of one line are closed, found in one walk when the first of a kind is opened."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, list[int]] = {}

    def after(self, kind: str, start: int) -> int | None:
        """The first place from here on that closes a mark of this kind."""
        if kind not in self._places:
            self._places[kind] = [match.start() for match in _CLOSES[kind].finditer(self._text)]
        return _first(self._places[kind], start)

    def ticks(self, ticks: str, start: int) -> int | None:
        """The next run of exactly these ticks."""
        if "ticks" not in self._places:
            self._places["ticks"] = []
            for run in _TICKS.finditer(self._text):
                self._places.setdefault(run[0], []).append(run.start())
        return _first(self._places.get(ticks, []), start)


def _first(places: list[int], start: int) -> int | None:
    found = bisect_left(places, start)
    return places[found] if found < len(places) else None


def _marked(match: re.Match[str], dialect: Dialect, closers: _Closers) -> tuple[str | None, int]:
    """The HTML of a mark and where it ends; None, and where to look on, for one that nothing closes."""
    kind, text, end = match.lastgroup, match.string, match.end()
    if kind in {"escaped", "bare"}:
        return escape(match[kind], quote=False), end
    if kind == "ticks":
        close = closers.ticks(match["ticks"], end)
        if close is None:
            return None, end
        code = text[end:close]
        return f"<code>{escape(code.strip() or code, quote=False)}</code>", close + len(match["ticks"])
    if kind == "url":
        return f'<a href="{escape(match["url"])}">{_inline(match["label"], dialect)}</a>', end
    if kind in {"slanted", "low"}:
        return f"<{dialect.slanted}>{_inline(match[kind], dialect)}</{dialect.slanted}>", end
    close = closers.after(kind or "", end + 1)
    if close is None or close - end > _MARK_CHARS:
        return None, match.start() + 1
    tag = dialect.bold if kind == "bold" else dialect.struck
    return f"<{tag}>{_inline(text[end:close], dialect)}</{tag}>", close + 2
