"""Markdown for Telegram: what models write, never refused, never longer than it was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.outbox.rules.text import utf16
from everturn.platform.telegram.rules import shows, to_html
from everturn.testing.telegram.state import parsed

MARKS = ["**", "*", "_", "~~", "`", "```", "\n", "\n```py\n", "[a](https://x.example/?a=1&b=2)", "# ", "> ", "- ", "<b>", "&amp;", "😀", " ", "word"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("**bold** and *it* and _it_ and ~~no~~", "<b>bold</b> and <i>it</i> and <i>it</i> and <s>no</s>"),
        ("**bold *and* it**", "<b>bold <i>and</i> it</b>"),
        ("`a<b`", "<code>a&lt;b</code>"),
        ("``a`b``", "<code>a`b</code>"),
        ("2 * 3 * 4, snake_case_name, __init__", "2 * 3 * 4, snake_case_name, __init__"),
        ("**open", "**open"),
        ("[x](https://x.example/?a=1&b=2)", '<a href="https://x.example/?a=1&amp;b=2">x</a>'),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("## Title ##", "<b>Title</b>"),
        ("# **Title**", "<b>Title</b>"),
        ("#tag", "#tag"),
        ("# #", "<b>#</b>"),
        ("# a  # b ## #", "<b>a  # b</b>"),
        ("``a` b", "``a` b"),
        ("```a``` b``", "<code>a</code> b``"),
        ("~~~ a ` b", "~~~ a ` b"),
        ("~~~~ py 3\nx\n~~~~", '<pre><code class="language-py">x</code></pre>'),
        ("- one\n  * two\n+ three", "• one\n  • two\n• three"),
        ("> a\n> *b*\nc", "<blockquote>a\n<i>b</i></blockquote>\nc"),
        ("```\na < *b*\n```", "<pre>a &lt; *b*</pre>"),
        ("```python\nx\n```\nafter", '<pre><code class="language-python">x</code></pre>\nafter'),
        ("```python\nnot closed", '<pre><code class="language-python">not closed</code></pre>'),
        ("~~~\n```\n~~~", "<pre>```</pre>"),
        ("", ""),
        ("***both*** and **a *b***", "<b><i>both</i></b> and <b>a <i>b</i></b>"),
        ("[x](https://x.example/a_(b)_(c)) (d)", '<a href="https://x.example/a_(b)_(c)">x</a> (d)'),
        ("(https://x.example/_a_/b*c)", "(https://x.example/_a_/b*c)"),
        ("**https://x.example/_a_** ~~https://x.example~~", "<b>https://x.example/_a_</b> <s>https://x.example</s>"),
        ("\\*plain\\* \\_words\\_ and C:\\Users", "*plain* _words_ and C:\\Users"),
        ("[[x](https://x.example)", '[<a href="https://x.example">x</a>'),
    ],
)
def test_each_mark_has_its_tag(text: str, html: str) -> None:
    assert to_html(text) == html


@settings(max_examples=100)
@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=30).map("".join))
def test_it_is_always_understood_and_what_is_seen_is_never_longer(text: str) -> None:
    visible, _ = parsed(to_html(text), "HTML")
    assert utf16(visible) <= utf16(text)


@pytest.mark.parametrize(
    ("text", "seen"),
    [("a", True), ("**a**", True), ("<b>", True), ("", False), ("```python ▌\n```", False), ("```\n```", False),
     ("> ", False), ("# **", False), ("` `", False), ("```\n\n```\na", True)],
)  # fmt: skip
def test_what_is_nothing_but_marks_shows_nothing(text: str, *, seen: bool) -> None:
    visible, _ = parsed(to_html(text), "HTML")
    assert shows(to_html(text)) is bool(visible.strip()) is seen


@pytest.mark.timeout(30)
@pytest.mark.parametrize("mark", ["[", "**a ", "~~a ", "*a ", "_a ", "[a](https://x", "***", "[a](https://x(", "\\"])
def test_a_text_of_opening_marks_is_read_at_once(mark: str) -> None:
    """In less than a second; if each mark looked through all that follows it, minutes."""
    text = mark * (100_000 // len(mark))
    assert to_html(text) == text


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("text", "html"),
    [
        pytest.param(f"# a{' ' * 500_000}x", f"<b>a{' ' * 500_000}x</b>", id="heading"),
        pytest.param(f"# a{'#' * 500_000}x", f"<b>a{'#' * 500_000}x</b>", id="heading's end"),
        pytest.param(f"~~~{'a' * 500_000}`", f"~~~{'a' * 500_000}`", id="language"),
        pytest.param(f"{'~' * 50_001}`", f"{'<s>~</s>' * 10_000}~`", id="fence"),
        pytest.param(f"a{'`' * 100_000}", f"a{'`' * 100_000}", id="ticks"),
        pytest.param("a\n" * 100_000, "a\n" * 100_000, id="lines"),
    ],
)
def test_a_long_line_or_many_of_them_are_read_at_once(text: str, html: str) -> None:
    """In less than a second; where a pattern goes back over what it took, or each line moves all others, minutes or hours."""
    assert to_html(text) == html
