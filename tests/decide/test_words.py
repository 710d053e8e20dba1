"""The texts people see: the words others rely on, and that no text names a command that does not exist."""

import re

import pytest

from everturn.decide import words
from everturn.decide.commands import COMMANDS

RESET_REASONS = ["idle", "daily", "suspended", "resume_pending_expired", "something new"]
EVERY_TEXT = [
    *(words.banner(restarting) for restarting in (True, False)),
    *(words.suspended(held, times) for held in (0, 1, 5) for times in (1, 2, 3, 4)),
    *(words.reset(reason, previous) for reason in RESET_REASONS for previous in (None, "old-1")),
    words.too_old(),
    words.failed("the model gave no answer"),
    *(words.stopped(waiting) for waiting in (0, 1, 5)),
    words.nothing_to_stop(),
    words.cut("half of an"),
    *(words.fresh(withdrawn) for withdrawn in (0, 1, 5)),
    *(words.resumed("old-1", interrupted) for interrupted in (True, False)),
    words.nothing_to_resume(),
    words.earlier({"old-1": "about the garden", "old-2": ""}),
    words.earlier({}),
    words.busy_resume(),
    words.status(None, "active", None, False, 0),
    *(
        words.status("s-1", state, "stuck", running, 2)
        for state in ("active", "suspended")
        for running in (True, False)
    ),
    words.moved(),
    words.back(),
    *(words.queued_limit(limit) for limit in (1, 50)),
    words.too_long(4000),
    words.unknown_command("dance", None),
    words.unknown_command("hlep", "help"),
    words.help_text(COMMANDS),
]


@pytest.mark.parametrize("text", EVERY_TEXT)
def test_no_text_names_a_command_that_does_not_exist(text: str) -> None:
    assert set(re.findall(r"/([a-z]+)", text)) <= set(COMMANDS)
    assert text.strip() == text != ""


def test_the_restart_banner_promises_only_to_try_to_resume() -> None:
    assert "restarting" in words.banner(restarting=True)
    assert "try to resume" in words.banner(restarting=True)
    assert "task will be interrupted" in words.banner(restarting=True)


def test_the_banner_of_a_shutdown_promises_no_resume() -> None:
    assert "shutting down" in words.banner(restarting=False)
    assert "task will be interrupted" in words.banner(restarting=False)
    assert "resume" not in words.banner(restarting=False)


def test_a_suspension_says_why_and_how_to_get_it_back_promise_9() -> None:
    text = words.suspended(0)
    assert all(said in text for said in ("three times in a row", "Nothing is deleted", "/resume", "fresh conversation"))
    assert "held" not in text
    assert "1 message still waiting is held until you write" in words.suspended(1)
    assert "5 messages still waiting are held until you write" in words.suspended(5)


def test_a_suspension_counts_what_was_counted() -> None:
    counts = [words.suspended(0, times) for times in (1, 2, 4)]
    assert [said in text for said, text in zip(("once", "twice", "4 times"), counts, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("reason", "said"),
    list(
        zip(
            RESET_REASONS,
            ["long time", "every day", "repeated interruptions", "too long ago", "something new"],
            strict=True,
        )
    ),
)
def test_a_reset_tells_the_true_reason_promise_13(reason: str, said: str) -> None:
    text = words.reset(reason, "old-1")
    assert said in text
    assert "kept (old-1)" in text
    assert "/resume" in text


def test_a_task_too_old_to_resume_is_told() -> None:
    assert "not continued by itself, because" in words.too_old()
    assert "write to continue" in words.too_old()
    assert "write to continue" not in words.too_old(fresh=True)
    assert "Any other message begins a fresh conversation" in words.too_old(fresh=True)


def test_new_says_how_much_it_withdrew() -> None:
    assert "withdrawn" not in words.fresh(0)
    assert "1 message not yet begun was withdrawn" in words.fresh(1)
    assert "5 messages not yet begun were withdrawn" in words.fresh(5)


def test_stop_says_what_goes_on() -> None:
    assert words.stopped(0) == "Stopped. The conversation is kept."
    assert "2 messages still waiting" in words.stopped(2)


def test_limits_name_their_number_promise_12() -> None:
    assert "50 messages are already waiting" in words.queued_limit(50)
    assert "4000 characters" in words.too_long(4000)


def test_an_unknown_command_offers_the_nearest_and_stays_short() -> None:
    assert "/help?" in words.unknown_command("hlep", "help")
    assert len(words.unknown_command("x" * 9000, None)) < 120


def test_the_reason_of_a_failure_is_repeated() -> None:
    assert "the model gave no answer" in words.failed("the model gave no answer")


def test_we_are_back() -> None:
    assert "I'm back" in words.back()


def test_help_has_a_line_for_each_command() -> None:
    assert [line.split(":")[0] for line in words.help_text(COMMANDS).splitlines()] == [f"/{name}" for name in COMMANDS]


def test_the_list_of_earlier_conversations_shows_how_to_take_one() -> None:
    text = words.earlier({"1": "about the garden", "2": ""})
    assert text.splitlines()[1:3] == ["1  about the garden", "2"]
    assert "/resume 1 " in text


def test_status_says_what_is_true_promise_13() -> None:
    assert "No conversation" in words.status(None, "active", None, running=False, waiting=0)
    assert "s-1: ready. 0 messages" in words.status("s-1", "active", None, running=False, waiting=0)
    assert "a task is running. 1 message " in words.status("s-1", "active", None, running=True, waiting=1)
    pending = words.status("s-1", "resume_pending", "restart_timeout", running=False, waiting=0)
    assert "resume pending (restart_timeout)" in pending
