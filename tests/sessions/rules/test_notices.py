"""The texts people see: the phrases others rely on, and that no text names a command that does not exist."""

import re

import pytest

from everturn.commands.rules.registry import COMMANDS
from everturn.sessions.rules import notices

RESET_REASONS = ["idle", "daily", "suspended", "resume_pending_expired", "something new"]
EVERY_TEXT = [
    *(notices.banner(restarting) for restarting in (True, False)),
    *(notices.suspended(queued, times) for queued in (0, 1, 5) for times in (1, 2, 3, 4)),
    *(notices.reset(reason, previous) for reason in RESET_REASONS for previous in (None, "old-1")),
    notices.too_old(),
    notices.failed("the model gave no answer"),
    *(notices.stopped(waiting) for waiting in (0, 1, 5)),
    notices.nothing_to_stop(),
    notices.cut("half of an"),
    *(notices.fresh(withdrawn) for withdrawn in (0, 1, 5)),
    *(notices.resumed("old-1", interrupted) for interrupted in (True, False)),
    notices.nothing_to_resume(),
    notices.earlier({"old-1": "about the garden", "old-2": ""}),
    notices.earlier({}),
    notices.busy_resume(),
    notices.status(None, "active", None, False, 0),
    *(
        notices.status("s-1", state, "stuck", running, 2)
        for state in ("active", "suspended")
        for running in (True, False)
    ),
    notices.back(),
    *(notices.queued_limit(limit) for limit in (1, 50)),
    notices.too_long(4000),
    notices.unknown_command("dance", None),
    notices.unknown_command("hlep", "help"),
]


@pytest.mark.parametrize("text", EVERY_TEXT)
def test_no_text_names_a_command_that_does_not_exist(text: str) -> None:
    assert set(re.findall(r"/([a-z]+)", text)) <= set(COMMANDS)
    assert text.strip() == text != ""


def test_the_restart_banner_promises_only_to_try_to_resume() -> None:
    assert "restarting" in notices.banner(restarting=True)
    assert "try to resume" in notices.banner(restarting=True)
    assert "task will be interrupted" in notices.banner(restarting=True)


def test_the_banner_of_a_shutdown_promises_no_resume() -> None:
    assert "shutting down" in notices.banner(restarting=False)
    assert "task will be interrupted" in notices.banner(restarting=False)
    assert "resume" not in notices.banner(restarting=False)


def test_a_suspension_says_why_and_how_to_get_it_back_promise_9() -> None:
    text = notices.suspended(0)
    assert all(said in text for said in ("three times in a row", "Nothing is deleted", "/resume", "fresh conversation"))
    assert "held" not in text
    assert "1 queued message is held until you write" in notices.suspended(1)
    assert "5 queued messages are held until you write" in notices.suspended(5)


def test_a_suspension_counts_what_was_counted() -> None:
    counts = [notices.suspended(0, times) for times in (1, 2, 4)]
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
    text = notices.reset(reason, "old-1")
    assert said in text
    assert "kept (old-1)" in text
    assert "/resume" in text


def test_a_task_too_old_to_resume_gets_a_notice() -> None:
    assert "not continued by itself, because" in notices.too_old()
    assert "write to continue" in notices.too_old()
    assert "write to continue" not in notices.too_old(fresh=True)
    assert "Any other message begins a fresh conversation" in notices.too_old(fresh=True)


def test_new_says_how_much_it_withdrew() -> None:
    assert "withdrawn" not in notices.fresh(0)
    assert "1 queued message was withdrawn" in notices.fresh(1)
    assert "5 queued messages were withdrawn" in notices.fresh(5)


def test_stop_says_what_goes_on() -> None:
    assert notices.stopped(0) == "Stopped. The conversation is kept."
    assert "2 queued messages will" in notices.stopped(2)


def test_limits_name_their_number_promise_12() -> None:
    assert "50 messages are already queued" in notices.queued_limit(50)
    assert "4000 characters" in notices.too_long(4000)


def test_an_unknown_command_offers_the_nearest_and_stays_short() -> None:
    assert "/help?" in notices.unknown_command("hlep", "help")
    assert len(notices.unknown_command("x" * 9000, None)) < 120


def test_the_reason_of_a_failure_is_repeated() -> None:
    assert "the model gave no answer" in notices.failed("the model gave no answer")


def test_we_are_back() -> None:
    assert "I'm back" in notices.back()


def test_the_list_of_earlier_conversations_shows_how_to_take_one() -> None:
    text = notices.earlier({"1": "about the garden", "2": ""})
    assert text.splitlines()[1:3] == ["1  about the garden", "2"]
    assert "/resume 1 " in text


def test_status_says_what_is_true_promise_13() -> None:
    assert "No conversation" in notices.status(None, "active", None, running=False, waiting=0)
    assert "s-1: ready. 0 messages" in notices.status("s-1", "active", None, running=False, waiting=0)
    assert "a task is running. 1 message " in notices.status("s-1", "active", None, running=True, waiting=1)
    pending = notices.status("s-1", "resume_pending", "restart_timeout", running=False, waiting=0)
    assert "resume pending (restart_timeout)" in pending
