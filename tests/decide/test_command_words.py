"""What commands answer: true, short, and naming only commands that exist."""

import re

import pytest

from everturn.decide import command_words
from everturn.decide.busy import BusyMode
from everturn.decide.commands import BY_NAME, COMMANDS, REGISTRY
from everturn.decide.rights import NO_RIGHTS
from everturn.model import SessionSource, Usage

USED = Usage(requests=2, input_tokens=1234, output_tokens=56, cached_tokens=1000, cost=0.0123)
EVERY_TEXT = [
    command_words.help_text(REGISTRY),
    *(command_words.help_about(each) for each in REGISTRY),
    command_words.denied(BY_NAME["undo"], NO_RIGHTS, REGISTRY),
    command_words.whoami(NO_RIGHTS, SessionSource(platform="fake")),
    *(command_words.unfinished("undo", running) for running in (True, False)),
    *(command_words.title_is(title) for title in (None, "garden")),
    command_words.no_session(),
    *(command_words.gone(suspended) for suspended in (True, False)),
    *(command_words.listed(here, there) for here in (None, "garden") for there in ({}, {"1": "cats"})),
    *(command_words.branched(title, rows) for title in (None, "garden") for rows in (0, 1, 7)),
    *(command_words.undone(said, effects) for said in (["one"], ["one", "two"]) for effects in (0, 1, 3)),
    command_words.nothing_to_undo(),
    command_words.undo_how_many(),
    *(command_words.retrying("words", effects) for effects in (0, 1, 3)),
    command_words.nothing_to_retry(),
    command_words.retry_waits(),
    *(command_words.model_is(name, known) for name in (None, "a:b") for known in ((), ("a:b", "c:d"))),
    *(command_words.model_chosen(name, known=name is None) for name in (None, "a:b")),
    command_words.no_such_provider("x", ("openai",)),
    command_words.no_such_model("x", (), None),
    command_words.no_such_model("x", ("a:b",), "a:b"),
    command_words.approve_how(),
    *(command_words.busy_is(chosen, "steer") for chosen in (None, *BusyMode)),
    *(command_words.busy_chosen(mode) for mode in BusyMode),
    command_words.no_such_mode("fast"),
    *(command_words.words_wanted(name) for name in ("steer", "queue")),
    command_words.reloaded(),
    command_words.version("1.2.3"),
    command_words.usage(Usage(), Usage()),
    *(command_words.compressing(running) for running in (True, False)),
    command_words.usage(USED, USED),
    command_words.context({}, 0, 0, None, 0),
    command_words.restarting(),
]


@pytest.mark.parametrize("text", EVERY_TEXT)
def test_no_text_names_a_command_that_does_not_exist(text: str) -> None:
    known = set(COMMANDS) | {alias for each in REGISTRY for alias in each.aliases}
    assert set(re.findall(r"/([a-z]+)", text)) <= known
    assert text.strip() == text != ""


def test_help_has_a_line_for_each_command() -> None:
    lines = command_words.help_text(REGISTRY).splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [each.usage for each in REGISTRY]


def test_help_about_one_says_all_that_is_declared() -> None:
    text = command_words.help_about(BY_NAME["new"])
    assert text.startswith("/new [title]: start a fresh conversation")
    assert "Also: /reset." in text
    assert "A task that runs is ended by it." in text


def test_long_words_are_quoted_short_and_on_one_line() -> None:
    assert command_words.quoted("one\ntwo") == '"one two"'
    assert len(command_words.quoted("x" * 9000)) < 70


def test_undo_says_what_stays_done() -> None:
    assert command_words.undone(["a"], 0) == 'Hidden from the agent, with its answer:\n"a"'
    assert "1 tool call did happen and stays done." in command_words.undone(["a"], 1)
    assert "2 tool calls did happen and stay done." in command_words.undone(["a", "b"], 2)


def test_usage_shows_tokens_and_the_cost_where_it_is_known() -> None:
    text = command_words.usage(USED, Usage(requests=1, input_tokens=5, output_tokens=6))
    last, session = text.splitlines()
    assert last == "Last task: 2 model calls, 1,234 tokens in (1,000 of it from the cache), 56 out, $0.0123."
    assert session == "This conversation: 1 model call, 5 tokens in, 6 out."
    assert "No model call has been counted" in command_words.usage(Usage(), Usage())


@pytest.mark.parametrize(("amount", "shown"), [(0.0, "$0.00"), (0.0004, "$0.0004"), (1.0, "$1.00"), (12.345, "$12.35")])
def test_money_is_shown_with_the_digits_it_needs(amount: float, shown: str) -> None:
    assert command_words.money(amount) == shown


def test_context_says_how_full_the_window_is_and_with_what() -> None:
    text = command_words.context({"assistant": 2, "tool": 1, "user": 2}, 900, 100, 3, 10_000)
    assert text.splitlines() == [
        "The agent sees about 1,000 tokens, 10 % of the window of 10,000.",
        "Conversation: 2 from the agent, 1 from tools, 2 from you: about 900 tokens.",
        "Instructions with 3 tools: about 100 tokens.",
    ]
    assert "window" not in command_words.context({"user": 1}, 1, 0, None, 0)
