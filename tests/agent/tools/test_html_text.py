"""The text of a page, whatever the page holds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.agent.tools.fetch import text_of

PIECES = st.sampled_from(
    ["<", ">", "</", "a", "script", "<!--", "-->", "<p>", "<a href=", '"', "'", "&amp;", " ", "x", "<svg>"]
)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<br>b", "a\nb"),
        ("a <b>bold</b> word", "a bold word"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("x<script>if (a < b) {}</SCRIPT>y", "xy"),
        ("x<!-- <p>no</p> -->y", "xy"),
        ("x<script>never closed", "x"),
        ("x<!-- never closed", "x"),
        ('<a href="/b?c=1&amp;d=2">go</a>', "go (http://h/b?c=1&d=2)"),
        ("<a href=javascript:x>go</a>", "go"),
        ("<a name=x>go</a>", "go"),
        ("<p>one</p>\n\n<p>two</p>", "one\ntwo"),
        ("<title> A\n B </title>text", "A B\n\ntext"),
        ("&lt;b&gt; &eacute;", "<b> é"),
    ],
)
def test_what_a_person_would_read(page: str, text: str) -> None:
    assert text_of(page, "http://h/") == text


@given(st.lists(PIECES).map("".join) | st.text())
def test_no_page_breaks_it(page: str) -> None:
    assert isinstance(text_of(page, "http://h/"), str)


@pytest.mark.parametrize("piece", ["<", "<a ", "<!--", "<script>", "</", "<a href='", "<title>", "<p", "&", "&#"])
def test_no_page_takes_long(piece: str) -> None:
    """The worst that a server may send: a moment's work, where a quadratic reader would take hours."""
    began = time.process_time()
    text_of(piece * (2_000_000 // len(piece)), "http://h/")
    assert time.process_time() - began < 60
