"""The history checker sees what it is for: each planted fault is found, and a right history is not accused."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.history import Post, Seen, Watched, totals, watched_problems


def right() -> Watched:
    """One chat, two messages: a text, and work whose second effect was cut off."""
    facts: list[tuple[str, dict[str, object]]] = [
        ("message", {"id": "m0", "text": "hello"}),
        ("turn", {"turn": "1", "state": "running", "attempt": 1}),
        ("reply", {"turn": "1", "to": "m0", "text": "I see 0 earlier messages of this conversation. You said: hello"}),
        ("turn", {"turn": "1", "state": "answered", "attempt": 1}),
        ("message", {"id": "m1", "text": "work 2 0"}),
        ("turn", {"turn": "2", "state": "running", "attempt": 1}),
        ("turn", {"turn": "2", "state": "interrupted"}),
        ("turn", {"turn": "2", "state": "running", "attempt": 2}),
        ("reply", {"turn": "2", "to": "m1", "text": "done: 2 steps (1 with unknown outcome)"}),
        ("turn", {"turn": "2", "state": "answered", "attempt": 2}),
    ]
    events = [Seen(number, kind, data) for number, (kind, data) in enumerate(facts, start=1)]
    posts = [Post("a", "m0", "hello", 1, 2, [202, 200]), Post("a", "m1", "work 2 0", 3, 4, [503, 202])]
    rows: list[Mapping[str, Any]] = [
        row("user", "hello"),
        row("assistant", facts[2][1]["text"]),
        row("user", "work 2 0"),
    ]
    for step in ("step-1", "step-2"):
        rows += [row("assistant", "", tool_calls=[{"id": step}]), row("tool", "done", tool_call_id=step)]
    rows.append(row("assistant", facts[8][1]["text"]))
    return Watched(
        posts={(post.chat, post.id): post for post in posts},
        events={"a": events},
        kept={"a": list(events)},
        ledger=["2 step-1"],
        transcripts={"a": rows},
    )


def row(role: str, content: object, **more: object) -> dict[str, object]:
    """A line of a transcript."""
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, **more}


def accept_twice(watched: Watched) -> None:
    watched.posts["a", "m0"].answers.append(202)


def accept_never(watched: Watched) -> None:
    watched.posts["a", "m1"].answers.remove(202)


def miss_an_event(watched: Watched) -> None:
    del watched.events["a"][3]


def repeat_an_event(watched: Watched) -> None:
    watched.events["a"].insert(3, watched.events["a"][2])


def keep_other_events(watched: Watched) -> None:
    watched.kept["a"].pop()


def lose_a_message(watched: Watched) -> None:
    watched.posts["a", "m2"] = Post("a", "m2", "lost", 5, 6, [202])


def answer_wrongly(watched: Watched) -> None:
    event = watched.events["a"][2]
    watched.events["a"][2] = replace(event, data={**event.data, "text": "You said: something else"})


def answer_before_an_earlier_one(watched: Watched) -> None:
    watched.posts["a", "m0"].sent, watched.posts["a", "m1"].sent = 3, 1
    watched.posts["a", "m0"].acknowledged, watched.posts["a", "m1"].acknowledged = 4, 2


def run_two_turns_at_once(watched: Watched) -> None:
    event = watched.events["a"][7]
    watched.events["a"][7] = replace(event, data={**event.data, "turn": "3", "attempt": 1})


def count_an_attempt_twice(watched: Watched) -> None:
    event = watched.events["a"][7]
    watched.events["a"][7] = replace(event, data={**event.data, "attempt": 1})


def leave_a_turn_open(watched: Watched) -> None:
    watched.events["a"].pop()


def act_twice(watched: Watched) -> None:
    watched.ledger.append("2 step-1")


def act_too_often(watched: Watched) -> None:
    watched.ledger += ["2 step-2", "2 step-3"]


def hide_an_effect(watched: Watched) -> None:
    watched.ledger.clear()


def act_for_nobody(watched: Watched) -> None:
    watched.ledger.append("7 step-1")


def store_a_note(watched: Watched) -> None:
    watched.transcripts["a"][2] = row("user", "[System note: you were interrupted]\n\nwork 2 0")


def store_a_message_twice(watched: Watched) -> None:
    watched.transcripts["a"].insert(0, row("user", "hello"))


def forget_a_result(watched: Watched) -> None:
    del watched.transcripts["a"][4]


def forget_the_past(watched: Watched) -> None:
    watched.transcripts["a"][0:0] = [row("user", "earlier"), row("assistant", "words")]


FAULTS: list[Callable[[Watched], None]] = [
    accept_twice, accept_never, miss_an_event, repeat_an_event, keep_other_events, lose_a_message, answer_wrongly,
    answer_before_an_earlier_one, run_two_turns_at_once, count_an_attempt_twice, leave_a_turn_open, act_twice,
    act_too_often, hide_an_effect, act_for_nobody, store_a_note, store_a_message_twice, forget_a_result, forget_the_past,
]  # fmt: skip


def test_a_right_history_has_no_problem() -> None:
    watched = right()
    assert watched_problems(watched) == []
    assert str(totals(watched)) == (
        "2 messages, 1 duplicates posted, 2 replies, 1 interruptions, 1 attempts after the first,"
        " 1 effects, 1 with unknown outcome"
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: Callable[[Watched], None]) -> None:
    watched = right()
    fault(watched)
    assert watched_problems(watched) != []
