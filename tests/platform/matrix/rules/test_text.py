"""Text on Matrix: formatting, size, and which part of a message is for us."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.platform.matrix.rules import for_us, to_html, weight, without_fallback

US, NAME = "@everturn:x.example", "Ever Turn"
MARKS = ["**", "*", "_", "~~", "`", "```", "\n", "\n```py\n", "[a](https://x.example/?a=1&b=2)", "# ", "> ", "- ", "<b>", "&amp;", "😀", " ", "word"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain < words\nin two lines", None),
        ("**bold** and *it* and ~~no~~", "<strong>bold</strong> and <em>it</em> and <del>no</del>"),
        ("## Title\nwords", "<h2>Title</h2>words"),
        ("a\n**b**\n\nc", "a<br><strong>b</strong><br><br>c"),
        ("before\n```\nx < y\nz\n```\nafter", "before<pre><code>x &lt; y\nz</code></pre>after"),
        ("```python\nx\n```", '<pre><code class="language-python">x</code></pre>'),
        ("> a\n> *b*\nc", "<blockquote>a<br><em>b</em></blockquote>c"),
        ("- one\n- two", "• one<br>• two"),
        ("`a` " * 4000, None),
    ],
)
def test_each_mark_has_its_tag_and_what_does_not_fit_stays_plain(text: str, html: str | None) -> None:
    assert to_html(text) == html


class Balance(HTMLParser):
    """Every tag is closed in the order in which it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  as it is called
        self.open += [tag] if tag != "br" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@settings(max_examples=100)
@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=30).map("".join))
def test_tags_are_balanced_and_nothing_weighs_less_than_its_json(text: str) -> None:
    balance = Balance()
    balance.feed(to_html(text) or "")
    assert balance.open == []
    assert len(text) <= weight(text)
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    assert weight(text) >= len(written) - 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("> <@ann:x.example> what?\n> more\n\nyes", "yes"),
        ("> * <@ann:x.example> waves\n\nhi", "hi"),
        ("> a quotation of mine\n\nyes", "> a quotation of mine\n\nyes"),
        ("yes", "yes"),
    ],
)
def test_the_quotation_of_older_clients_is_left_out(text: str, words: str) -> None:
    assert without_fallback(text) == words


@pytest.mark.parametrize(
    ("text", "mentioned", "words"),
    [
        ("hello", False, None),
        ("hello", True, "hello"),
        ("@everturn:x.example hello", False, "hello"),
        ("@everturn:x.example: hello", True, "hello"),
        ("@everturn, hello", False, "hello"),
        ("everturn: hello", False, "hello"),
        ("EVER TURN: hello", False, "hello"),
        ("Ever Turn hello", True, "hello"),
        ("Ever Turn hello", False, None),
        ("hello Ever Turn", True, "hello"),
        ("hello @everturn", False, "hello"),
        ("what does @everturn think?", False, "what does @everturn think?"),
        ("everturning: hello", False, None),
        ("@everturns hello", False, None),
        ("@other:x.example hello", False, None),
        ("!status", False, "/status"),
        ("!reset now", False, "/reset now"),
        ("!important", False, None),
        ("everturn: !status", False, "/status"),
        ("/new", False, "/new"),
        ("/new@other", False, None),
    ],
)
def test_in_a_room_only_what_is_said_to_us_is_for_us(text: str, *, mentioned: bool, words: str | None) -> None:
    given_ = {"direct": False, "mentioned": mentioned, "reply_to_us": False, "listening": False}
    assert for_us(text, US, NAME, **given_) == words


@pytest.mark.parametrize("mentioned", [True, False])
def test_a_text_of_spaces_takes_no_longer_than_another_one(*, mentioned: bool) -> None:
    """Looked at from every place, this would take hours."""
    text = f"@everturn hi{' ' * 200_000}x"
    given_ = {"direct": False, "mentioned": mentioned, "reply_to_us": False, "listening": False}
    assert for_us(text, US, NAME, **given_) == text.removeprefix("@everturn ")


@pytest.mark.parametrize(
    ("direct", "reply_to_us", "listening"), [(True, False, False), (False, True, False), (False, False, True)]
)
def test_a_direct_chat_a_reply_or_listening_makes_all_of_it_ours(
    *, direct: bool, reply_to_us: bool, listening: bool
) -> None:
    given_ = {"direct": direct, "mentioned": False, "reply_to_us": reply_to_us, "listening": listening}
    assert for_us("what now", US, "", **given_) == "what now"
