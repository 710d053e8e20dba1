"""When a streaming message is edited, and what it shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.model import Bubble, Message, ToolCall
from everturn.outbox.rules.delivery import UnknownAction, send_key
from everturn.outbox.rules.streaming import (
    Growth,
    Look,
    Pace,
    growing,
    grown,
    is_silence,
    next_place,
    not_said_before,
    resolved,
    room,
    said_before,
    so_far,
    stated,
    together,
    visible,
    wait_s,
    whole,
    with_marks,
    with_resend_mark,
)
from everturn.outbox.rules.text import split, utf16

PACE = Pace(interval_s=1, min_chars=10, cursor="|")


@pytest.mark.parametrize(
    ("growth", "wait"),
    [
        (Growth(first=True, since_s=0, grown=10), 0),  # the first text, as soon as it says something
        (Growth(first=True, since_s=0, grown=9), 1),
        (Growth(first=True, since_s=1, grown=9), 0),
        (Growth(first=True, since_s=0, grown=1, boundary=True), 0),
        (Growth(first=True, since_s=0, grown=10, hold_s=7), 7),  # the platform's own delay is honoured
        (Growth(first=True, since_s=0.25, grown=10, slow=2), 1.75),  # they went wrong, and are not tried again at once
        (Growth(since_s=0.25, grown=10), 0.75),
        (Growth(since_s=1, grown=10), 0),
        (Growth(since_s=1, grown=9), 1),  # a little waits for more, and is looked at meanwhile
        (Growth(since_s=2.5, grown=9), 0.5),
        (Growth(since_s=3, grown=9), 0),
        (Growth(since_s=0.25, grown=1, boundary=True), 0.75),
        (Growth(since_s=1, grown=10, slow=4), 3),
        (Growth(since_s=1, grown=10, slow=64), 9),  # never slower than once in ten seconds
        (Growth(since_s=20, grown=10, slow=64, hold_s=30), 30),
    ],
)
def test_when_the_message_is_edited(growth: Growth, wait: float) -> None:
    assert wait_s(PACE, growth) == wait


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Hel", []),  # too little for a notification
        ("Hell", ["Hell|"]),
        (" a b c ", []),
        ("<thi", []),
        ("<think>secret", []),
        ("<think>secret</think>\nHello", ["Hello|"]),
        ("Hello\n<thinking>se", ["Hello|"]),
        ("Hello\n<b", ["Hello\n<b|"]),
        ("Hello <think", ["Hello <think|"]),  # in the middle of a line it is said
        ("(sil", []),
        ("(silent", []),
        ("(silver", ["(silver|"]),
        ("```py\nprint(", ["```py\nprint(|\n```"]),
        ("one two three four five", ["one two three four", "five|"]),
        ("x" * 20, ["x" * 20]),  # no room for the cursor
    ],
)
def test_what_is_shown_of_an_unfinished_answer(text: str, shown: list[str]) -> None:
    assert growing(text, 20, len, "|") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(silent)", ""),
        ("*Silent*", ""),
        (".", ""),
        ("No.", "No."),
        ("<think>a</think>Yes", "Yes"),
        ("<think>never closed", "<think>never closed"),  # better seen than lost
        ("Use <think> in the middle", "Use <think> in the middle"),
    ],
)
def test_what_is_shown_of_a_whole_answer(text: str, shown: str) -> None:
    assert visible(text, finished=True) == shown
    assert is_silence(text) == (shown == "" and "think" not in text)


@pytest.mark.parametrize(
    ("text", "look", "shown"),
    [
        ("(silent)", Look(silence="send"), "(silent)"),
        ("<think>a</think>", Look(silence="send"), ""),
        ("<think>a</think>Yes", Look(reasoning=True), "<think>a</think>Yes"),
        ("<think>not closed yet", Look(reasoning=True), "<think>not closed yet"),
    ],
)
def test_what_is_left_out_is_a_setting(text: str, look: Look, shown: str) -> None:
    assert {visible(text, finished=finished, look=look) for finished in (True, False)} == {shown}


@pytest.mark.parametrize(("quote", "where"), [("groups", {"group"}), ("always", {"dm", "group"}), ("never", set())])
def test_where_the_answered_message_is_named(quote: str, where: set[str]) -> None:
    assert {each for each in ("dm", "group") if Look(quote=quote).quotes(each)} == where


@given(st.text(st.sampled_from("ab \n`~<think>/😀"), max_size=200), st.integers(20, 60))
def test_no_part_is_longer_than_the_platform_takes(text: str, limit: int) -> None:
    assert all(utf16(piece) <= limit for piece in growing(text, limit, utf16, " ▌"))


@given(st.lists(st.sampled_from(["one", "two", "three", "\n"]), min_size=30, max_size=60))
def test_parts_that_are_full_stay_as_they_are(words: list[str]) -> None:
    """What was shown as a whole part while the text streamed is a part of the whole text, too."""
    text = " ".join(words)
    whole = split(text, 40)
    early = growing(text[: len(text) * 2 // 3], 40, len, "")
    assert early[:-2] == whole[: max(0, len(early) - 2)]


@pytest.mark.parametrize(
    ("action", "after"),
    [
        (UnknownAction.REPEAT, Bubble(name="7", repeats=True)),
        (UnknownAction.LOOK, Bubble(name="7", repeats=True)),
        (UnknownAction.MARK, Bubble(name="7", replaces=(0,))),
        (UnknownAction.ASK, Bubble(name="7", hold="ask")),
        (UnknownAction.DROP, Bubble(name="7", hold="drop")),
    ],
)
def test_a_part_with_unknown_delivery(action: UnknownAction, after: Bubble) -> None:
    assert resolved(Bubble(name="7", sending=0), action) == after
    assert resolved(Bubble(name="7"), action) == Bubble(name="7")


@pytest.mark.parametrize(
    ("out", "place"), [((), 0), (("a",), 1), (("",), 0), (("", "b"), 0), (("a", "", "c"), 1), (("a", "b"), 2)]
)
def test_the_next_part_takes_the_place_of_one_that_is_gone(out: tuple[str, ...], place: int) -> None:
    assert next_place(out) == place
    marked = with_resend_mark(Bubble(name="7", hold="ask"), out)
    assert (marked.hold, marked.replaces) == (None, (place,))


def test_what_replaces_another_has_its_own_key_and_says_so() -> None:
    assert [send_key("7", 1), send_key("7", 1, (1,)), send_key("7", 0, (1, 1))] == ["7-1", "7-1-1", "7-0"]
    first, second = with_marks(["one", "two"], (1,))
    assert first == "one"
    assert second.endswith("\n\ntwo")
    assert room(200, len, (1,)) + len(second) - 3 == 200
    assert room(200, len, ()) == 200


@pytest.mark.parametrize(("before", "text", "by"), [("", "abc", 3), ("ab", "abc", 1), ("xy", "abc", 3)])
def test_another_text_is_new_as_a_whole(before: str, text: str, by: int) -> None:
    assert grown(before, text) == by


@pytest.mark.parametrize(
    ("before", "text", "shown"),
    [
        ("", "Hello", "Hello"),
        ("Let me look.", "It is there.", "Let me look.\n\nIt is there."),
        ("Let me look. \n", "\nIt is there.", "Let me look.\n\nIt is there."),
        ("Let me look.", "", "Let me look."),
        ("Let me look.", "Let me look. It is there.", "Let me look. It is there."),  # it says all of it again
        ("```\ncode", "Done.", "```\ncode\n```\n\nDone."),
    ],
)
def test_what_was_said_before_a_tool_stands_above_what_follows(before: str, text: str, shown: str) -> None:
    assert together(before, text) == so_far(before, text) == stated(before, text) == shown
    assert not text or whole(before, text) == shown


@pytest.mark.parametrize(
    ("said", "before", "new"),
    [
        ("It is a wh", "", "It is a wh"),
        ("Let me look.\n\nIt is a wh", "Let me look. ", "It is a wh"),
        ("```\ncode\n```\n\nDo", "```\ncode", "Do"),
        ("Let me look.", "Let me look.", ""),
        ("Let me", "Let me look.", ""),  # the message in the chat is older than the step
        ("Something else", "Let me look.", ""),
        ("", "", ""),
    ],
)
def test_what_a_streaming_message_says_beyond_the_committed_steps(said: str, before: str, new: str) -> None:
    assert not_said_before(said, before) == new


@pytest.mark.parametrize(
    ("text", "growing_so", "before_a_tool", "at_last"),
    [
        ("(sil", "Words.", "Words.\n\n(sil", "Words.\n\n(sil"),  # it may become silence
        ("(silent)", "Words.", "Words.", "(silent)"),  # and then takes back what was said
        ("<think>hm</think>Yes.", "Words.\n\nYes.", "Words.\n\nYes.", "Words.\n\nYes."),
        ("Yes.\n<think>hm", "Words.\n\nYes.\n", "Words.\n\nYes.\n", "Words.\n\nYes.\n<think>hm"),
    ],
)
def test_thoughts_and_silence_beneath_text(text: str, growing_so: str, before_a_tool: str, at_last: str) -> None:
    shown = so_far("Words.", text), stated("Words.", text), whole("Words.", text)
    assert shown == (growing_so, before_a_tool, at_last)


def test_what_was_said_since_a_person_was_asked() -> None:
    rows = [
        Message(role="user", content="go"),
        *(Message(role="assistant", content=f"word {call}", calls=(ToolCall(call, "write"),)) for call in "abc"),
        Message(role="tool", content="done", call_id="c"),
        Message(role="assistant", content="the answer"),
    ]
    assert said_before(rows, ()) == "word a\n\nword b\n\nword c"
    assert said_before(rows, {"b"}) == "word c"
    assert said_before(rows, {"c"}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "So:\n```xml\n<think>\nhm\n</think>\n```\nDone.",
        "~~~\n<think>hm</think>\n~~~",
        "```\n```\nnone\n```\n<thinking>x</thinking>\n```",
        "````\n```\n<think>hm</think>\n````\nDone.",
        "```\n<think>hm</think>\nit is not closed",
    ],
)
def test_what_stands_in_a_code_block_is_shown_as_it_is(text: str) -> None:
    assert visible(text, finished=True) == visible(text, finished=False) == text


def test_thoughts_may_hold_code() -> None:
    assert visible("<think>\n```\nx\n</think>\nDone.\n```\ny\n```", finished=True) == "Done.\n```\ny\n```"
    assert visible("```\nx\n```\n<think>hm</think>\nDone.", finished=True) == "```\nx\n```\nDone."


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "mark", ["<think>\n", "\n<think>\n", "```\n<think>\n", "<think>\n<thought>\n", "<think></thought>\n"]
)
def test_a_text_of_tags_that_nobody_closes_is_read_at_once(mark: str) -> None:
    """A person who makes a model write so must not hold everybody up: each tag looked through all that follows it."""
    text = mark * (100_000 // len(mark))
    assert visible(text, finished=True) == text
    assert text.startswith(visible(text, finished=False))
