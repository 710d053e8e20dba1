"""The table of outcomes: retries, fallback models, and what the user gets at last."""

import pytest

from everturn.agent.rules import (
    OUTCOMES,
    AtLast,
    CallOutcome,
    FailedCall,
    Move,
    Tries,
    next_move,
    no_answer,
    wait_before,
    waiting,
)
from tests.house import ROOT

OFTEN = (
    CallOutcome.CUT,
    CallOutcome.LIMITED,
    CallOutcome.SERVER,
    CallOutcome.CONNECTION,
    CallOutcome.STALLED,
    CallOutcome.UNREADABLE,
)
NEVER = (
    CallOutcome.REFUSED,
    CallOutcome.DENIED,
    CallOutcome.MISSING,
    CallOutcome.QUOTA,
    CallOutcome.REJECTED,
    CallOutcome.UNKNOWN,
    CallOutcome.LENGTH,
)
NO_OTHER = (CallOutcome.ANSWERED, CallOutcome.LENGTH, CallOutcome.REFUSED, CallOutcome.UNKNOWN)


def outcome_table() -> str:
    """The table of outcomes in Markdown, as the documents show it."""
    head = "| outcome | it means | asked again | fallback model | at last |\n|---|---|---|---|---|\n"
    rows = (
        f"| `{kind}` | {each.means} | {each.again} | {'yes' if each.other else 'no'} | {each.last} |"
        for kind, each in OUTCOMES.items()
    )
    return head + "\n".join(rows) + "\n"


def test_every_kind_has_its_row() -> None:
    assert set(OUTCOMES) == set(CallOutcome)
    assert all(f"| `{kind}` |" in outcome_table() for kind in CallOutcome)


@pytest.mark.parametrize("kind", OFTEN)
def test_what_may_pass_is_tried_up_to_the_limit(kind: CallOutcome) -> None:
    moves = [next_move(kind, Tries(failed, limit=2, models_left=0)) for failed in (1, 2, 3)]
    assert moves == [Move.RETRY, Move.RETRY, Move.GIVE_UP]


@pytest.mark.parametrize("kind", NEVER)
def test_what_will_not_pass_is_not_tried_again(kind: CallOutcome) -> None:
    assert next_move(kind, Tries(1, limit=5, models_left=0)) is Move.GIVE_UP


def test_an_empty_answer_is_tried_once_more() -> None:
    assert [next_move(CallOutcome.EMPTY, Tries(n, 5, 0)) for n in (1, 2)] == [Move.RETRY, Move.GIVE_UP]
    assert next_move(CallOutcome.EMPTY, Tries(1, 0, 0)) is Move.GIVE_UP


def test_an_overflow_is_tried_again_only_after_a_compaction() -> None:
    assert next_move(CallOutcome.OVERFLOW, Tries(1, 5, 0, compacted=True)) is Move.RETRY
    assert next_move(CallOutcome.OVERFLOW, Tries(1, 5, 0)) is Move.GIVE_UP


@pytest.mark.parametrize("kind", CallOutcome)
def test_another_model_is_asked_where_that_may_help(kind: CallOutcome) -> None:
    move = next_move(kind, Tries(failed=9, limit=2, models_left=1))
    assert move is (Move.GIVE_UP if kind in NO_OTHER else Move.NEXT_MODEL)


def test_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    assert wait_before(CallOutcome.LIMITED, 1, 301, 300, 0) is None
    assert next_move(CallOutcome.LIMITED, Tries(1, 5, 0, wait_s=None)) is Move.GIVE_UP
    assert next_move(CallOutcome.LIMITED, Tries(1, 5, 1, wait_s=None)) is Move.NEXT_MODEL


@pytest.mark.parametrize(
    ("kind", "failed", "server", "chance", "wait"),
    [
        (CallOutcome.LIMITED, 1, 7.5, 0.9, 7.5),
        (CallOutcome.LIMITED, 1, -1, 0.9, 0),
        (CallOutcome.SERVER, 1, None, 0.0, 0.5),
        (CallOutcome.SERVER, 2, None, 0.0, 1.0),
        (CallOutcome.SERVER, 3, None, 0.5, 3.0),
        (CallOutcome.CONNECTION, 100, None, 1.0, 60.0),
        (CallOutcome.EMPTY, 1, None, 0.5, 0.0),
    ],
)
def test_the_wait_is_the_servers_or_doubles(
    kind: CallOutcome, failed: int, server: float | None, chance: float, wait: float
) -> None:
    assert wait_before(kind, failed, server, 300, chance) == wait


@pytest.mark.parametrize("kind", [kind for kind in CallOutcome if OUTCOMES[kind].last is not AtLast.ANSWER])
def test_every_failure_has_words(kind: CallOutcome) -> None:
    text = no_answer(kind, FailedCall("openai:x", 3, "MY_KEY", "the\nprovider's words"))
    assert text
    assert not text.endswith(".")
    assert "\n" not in text


def test_words_name_the_remedy() -> None:
    assert "MY_KEY" in no_answer(CallOutcome.DENIED, FailedCall("m", key_env="MY_KEY"))
    assert "agent.api_key_env" in no_answer(CallOutcome.DENIED, FailedCall("m"))
    assert "/compress" in no_answer(CallOutcome.OVERFLOW, FailedCall("m"))
    assert "agent.model" in no_answer(CallOutcome.MISSING, FailedCall("openai:gone"))
    assert waiting(CallOutcome.LIMITED, 30, 1, 5) == (
        "The model's provider asks us to wait. I'll try again in about 30 seconds (try 2 of 6)."
    )
    assert "5 minutes" in waiting(CallOutcome.SERVER, 299, 1, 5)


def test_the_documents_show_the_table() -> None:
    assert outcome_table() in (ROOT / "docs/howto/model.md").read_text(encoding="utf-8")
