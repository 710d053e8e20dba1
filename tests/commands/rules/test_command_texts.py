"""What commands answer: true, short, and naming only commands that exist."""

import re

import pytest

from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import BY_NAME, COMMANDS, REGISTRY
from everturn.inbox.rules import BusyMode
from everturn.model import SessionSource, Usage
from everturn.people.rules.rights import NO_RIGHTS

USED = Usage(requests=2, input_tokens=1234, output_tokens=56, cached_tokens=1000, cost=0.0123)
EVERY_TEXT = [
    command_texts.help_text(REGISTRY),
    *(command_texts.help_about(each) for each in REGISTRY),
    command_texts.denied(BY_NAME["undo"], NO_RIGHTS, REGISTRY),
    command_texts.whoami(NO_RIGHTS, SessionSource(platform="fake")),
    *(command_texts.unfinished("undo", running) for running in (True, False)),
    *(command_texts.title_is(title) for title in (None, "garden")),
    command_texts.no_session(),
    *(command_texts.gone(suspended) for suspended in (True, False)),
    *(command_texts.listed(here, there) for here in (None, "garden") for there in ({}, {"1": "cats"})),
    *(command_texts.branched(title, rows) for title in (None, "garden") for rows in (0, 1, 7)),
    *(command_texts.undone(said, effects) for said in (["one"], ["one", "two"]) for effects in (0, 1, 3)),
    command_texts.nothing_to_undo(),
    command_texts.undo_how_many(),
    *(command_texts.retrying("words", effects) for effects in (0, 1, 3)),
    command_texts.nothing_to_retry(),
    command_texts.retry_waits(),
    *(command_texts.model_is(name, known) for name in (None, "a:b") for known in ((), ("a:b", "c:d"))),
    *(command_texts.model_chosen(name, known=name is None) for name in (None, "a:b")),
    command_texts.no_such_provider("x", ("openai",)),
    command_texts.no_such_model("x", (), None),
    command_texts.no_such_model("x", ("a:b",), "a:b"),
    command_texts.approve_how(),
    *(command_texts.busy_is(chosen, "steer") for chosen in (None, *BusyMode)),
    *(command_texts.busy_chosen(mode) for mode in BusyMode),
    command_texts.no_such_mode("fast"),
    *(command_texts.text_wanted(name) for name in ("steer", "queue")),
    command_texts.reloaded(),
    command_texts.version("1.2.3"),
    command_texts.usage(Usage(), Usage()),
    *(command_texts.compressing(running) for running in (True, False)),
    command_texts.usage(USED, USED),
    command_texts.context({}, 0, 0, None, 0),
    command_texts.restarting(),
]


@pytest.mark.parametrize("text", EVERY_TEXT)
def test_no_text_names_a_command_that_does_not_exist(text: str) -> None:
    known = set(COMMANDS) | {alias for each in REGISTRY for alias in each.aliases}
    assert set(re.findall(r"/([a-z]+)", text)) <= known
    assert text.strip() == text != ""


def test_help_has_a_line_for_each_command() -> None:
    lines = command_texts.help_text(REGISTRY).splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [each.usage for each in REGISTRY]


def test_help_about_one_says_all_that_is_declared() -> None:
    text = command_texts.help_about(BY_NAME["new"])
    assert text.startswith("/new [title]: start a fresh conversation")
    assert "Also: /reset." in text
    assert "It stops a running task." in text


def test_a_long_text_is_quoted_short_and_on_one_line() -> None:
    assert command_texts.quoted("one\ntwo") == '"one two"'
    assert len(command_texts.quoted("x" * 9000)) < 70


def test_undo_says_what_stays_done() -> None:
    assert command_texts.undone(["a"], 0) == 'Hidden from the agent, with its answer:\n"a"'
    assert "1 tool call did happen and stays done." in command_texts.undone(["a"], 1)
    assert "2 tool calls did happen and stay done." in command_texts.undone(["a", "b"], 2)


def test_usage_shows_tokens_and_the_cost_where_it_is_known() -> None:
    text = command_texts.usage(USED, Usage(requests=1, input_tokens=5, output_tokens=6))
    last, session = text.splitlines()
    assert last == "Last task: 2 model calls, 1,234 tokens in (1,000 of it from the cache), 56 out, $0.0123."
    assert session == "This conversation: 1 model call, 5 tokens in, 6 out."
    assert "No model call has been counted" in command_texts.usage(Usage(), Usage())


@pytest.mark.parametrize(("amount", "shown"), [(0.0, "$0.00"), (0.0004, "$0.0004"), (1.0, "$1.00"), (12.345, "$12.35")])
def test_money_is_shown_with_the_digits_it_needs(amount: float, shown: str) -> None:
    assert command_texts.money(amount) == shown


def test_context_says_how_full_the_window_is_and_with_what() -> None:
    text = command_texts.context({"assistant": 2, "tool": 1, "user": 2}, 900, 100, 3, 10_000)
    assert text.splitlines() == [
        "The agent sees about 1,000 tokens, 10 % of the window of 10,000.",
        "Conversation: 2 from the agent, 1 from tools, 2 from you: about 900 tokens.",
        "Instructions with 3 tools: about 100 tokens.",
    ]
    assert "window" not in command_texts.context({"user": 1}, 1, 0, None, 0)
