"""Converts Markdown to the HTML that Telegram understands: a few tags, and line breaks as they are.

The visible text is never longer than what it was made from, so that a piece that fits still fits.
"""

from __future__ import annotations

import re

from everturn.platform.rules import markup

_TAG = re.compile(r"<[^>]*>")
TELEGRAM = markup.Dialect(bold="b", slanted="i", struck="s")


def to_html(text: str) -> str:
    """The text with its Markdown as HTML."""
    return markup.to_html(text, TELEGRAM)


def exact_html(text: str) -> str:
    """The text as it is, in HTML: an approval request shows what runs, whatever marks stand in it."""
    return markup.exact_html(text, TELEGRAM)


def shows(html: str) -> bool:
    """Whether anything is left to be seen: Telegram refuses a text of nothing but tags and space."""
    return bool(_TAG.sub("", html).strip())
