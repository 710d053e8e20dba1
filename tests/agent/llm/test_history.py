"""What is kept of a transcript gives the same bytes as all of its rows, however they came; and it gives way when it is too much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from everturn.agent.llm.chat.requests import PROVIDER, ChatOptions, chat_body, chat_messages
from everturn.agent.llm.history import KnownHistories, KnownHistory
from everturn.agent.llm.rendering import Anchored, rendered
from everturn.agent.llm.replies import ModelInput
from everturn.model import HistoryPosition, Message, RowOutcome, ToolCall, TranscriptPart
from everturn.sessions.rules.transcript import arranged, estimated_tokens

SESSION = "s"


def numbered(rows: Sequence[Message]) -> list[Message]:
    return [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(rows, start=1)]


def drawn(seed: int) -> list[Message]:
    """A conversation of several turns, with parallel calls, results late and missing, thoughts, steers, and a stopped answer."""
    chance, rows = Random(seed), list[Message]()
    if chance.random() < 0.3:
        rows.append(Message(role="summary", content="so far"))
    for turn in range(chance.randint(1, 6)):
        rows += [
            Message(role="user", content=f"m{turn}.{each} é", author=chance.choice((None, "Ann")))
            for each in range(chance.randint(1, 2))
        ]
        for step in range(chance.randint(0, 3)):
            calls = tuple(
                ToolCall(f"c{turn}.{step}.{each}", "look", '{"a": 1}') for each in range(chance.randint(1, 3))
            )
            rows.append(
                Message(
                    role="assistant", content=chance.choice(("", "I look")), calls=calls, extra=thoughts(chance, calls)
                )
            )
            results = [
                Message(role="tool", content="found", call_id=call.id) for call in calls if chance.random() < 0.95
            ]
            chance.shuffle(results)
            rows += results
            if chance.random() < 0.2:
                rows.append(Message(role="user", content="by the way"))
        if chance.random() < 0.85:
            rows.append(
                Message(role="assistant", content="done", outcome=chance.choice((None, None, RowOutcome.STOPPED)))
            )
    return numbered(rows)


def thoughts(chance: Random, calls: Sequence[ToolCall]) -> str | None:
    """The provider's own parts, now and then."""
    if chance.random() < 0.7:
        return None
    kept = [{"part_kind": "thinking", "content": "hm", "id": "reasoning_content", "provider_name": PROVIDER}]
    made = [{"part_kind": "tool-call", "tool_name": c.name, "args": c.arguments, "tool_call_id": c.id} for c in calls]
    return json.dumps({"provider": PROVIDER, "parts": [*kept, *made]})


def after(rows: Sequence[Message], position: HistoryPosition, upto: int) -> TranscriptPart:
    """What the store says of the rows behind a position."""
    newer = [row for row in rows[:upto] if row.seq > position.seq]
    last = newer[-1].seq if newer else position.seq
    return TranscriptPart(
        rows=newer, position=HistoryPosition(SESSION, last, position.revision), whole=position.seq == 0
    )


def whole(rows: Sequence[Message], system: str, note: Anchored | None = None) -> object:
    """The messages of a request that is made of all rows."""
    return json.loads(msgspec.json.encode(chat_messages(rendered(rows, system, PROVIDER, note))))


@pytest.mark.parametrize("seed", range(150))
def test_rows_that_came_one_after_the_other_give_the_bytes_of_all_rows(seed: int) -> None:
    rows, chance, known = drawn(seed), Random(seed), KnownHistory(SESSION)
    upto = 0
    while upto < len(rows):
        upto = min(len(rows), upto + chance.randint(1, 4))
        known.add(after(rows, known.position, upto))
        if chance.random() < 0.7:
            assert json.loads(known.encoded("be kind")) == whole(rows[:upto], "be kind")
    assert json.loads(known.encoded("")) == whole(rows, "")
    assert known.tokens == estimated_tokens(rows)
    assert known.call_ids == {call.id for row in rows for call in row.calls}
    assert known.arranged_rows() == len(arranged(rows))


@pytest.mark.parametrize("seed", range(60))
def test_a_note_stands_where_it_stood_in_the_first_request_of_its_attempt(seed: int) -> None:
    rows, chance, known = drawn(seed), Random(seed), KnownHistory(SESSION)
    first = chance.randint(1, len(rows))
    known.add(after(rows, known.position, first))
    note = Anchored("[note]", known.arranged_rows())
    for upto in range(first, len(rows) + 1):
        known.add(after(rows, known.position, upto))
        assert json.loads(known.encoded("", note)) == whole(rows[:upto], "", note)
    assert json.loads(known.encoded("")) == whole(rows, "")


def test_older_rows_are_encoded_once_and_not_kept() -> None:
    rows = numbered([Message(role=role, content="x" * 100) for _ in range(500) for role in ("user", "assistant")])
    known = KnownHistory(SESSION)
    known.add(after(rows, known.position, len(rows)))
    assert len(known.rows) == 1_000
    known.encoded("")
    assert len(known.rows) == 2
    assert not known.is_whole


def test_rows_before_a_call_without_a_result_are_encoded() -> None:
    call = ToolCall("c", "look")
    said = [Message(role=role, content="x") for _ in range(20) for role in ("user", "assistant")]
    rows = numbered(
        [*said, Message(role="user", content="x"), Message(role="assistant", content="", calls=(call,)), *said]
    )
    known = KnownHistory(SESSION)
    known.add(after(rows, known.position, len(rows)))
    assert json.loads(known.encoded("")) == whole(rows, "")
    assert len(known.rows) == len(said) + 1
    late = [*rows, Message(role="tool", content="found", call_id="c", seq=len(rows) + 1)]
    known.add(after(late, known.position, len(late)))
    assert json.loads(known.encoded("")) == whole(late, "")


def test_arguments_of_calls_take_memory_as_well() -> None:
    calls = tuple(ToolCall(str(number), "write", "x" * 1_000) for number in range(10))
    known = KnownHistory(SESSION)
    known.add(after(numbered([Message(role="assistant", content="", calls=calls)]), known.position, 1))
    assert known.size > 10_000


def test_a_body_with_known_bytes_is_that_with_all_messages() -> None:
    rows, known = drawn(7), KnownHistory(SESSION)
    known.add(after(rows, known.position, len(rows)))
    options = ChatOptions("model")
    one = chat_body(ModelInput((), (), SESSION, known.encoded("be kind")), options)
    assert one == chat_body(ModelInput(rendered(rows, "be kind", PROVIDER), (), SESSION), options)


def test_all_rows_again_replace_what_was_known() -> None:
    rows, known = drawn(3), KnownHistory(SESSION)
    known.add(after(rows, known.position, len(rows)))
    known.encoded("")
    fewer = numbered([Message(role="user", content="again")])
    known.add(TranscriptPart(rows=fewer, position=HistoryPosition(SESSION, 1, 4), whole=True))
    assert json.loads(known.encoded("")) == whole(fewer, "")
    assert known.call_ids == set()
    assert known.position.revision == 4


def talked(session_id: str, size: int) -> KnownHistory:
    known = KnownHistory(session_id)
    rows = [Message(role="user", content="x" * size, seq=1)]
    known.add(TranscriptPart(rows=rows, position=HistoryPosition(session_id, 1), whole=True))
    return known


def test_what_is_taken_belongs_to_who_took_it() -> None:
    kept = KnownHistories()
    first = talked("a", 10)
    kept.keep(first)
    assert kept.take("a") is first
    assert kept.take("a").position == HistoryPosition("a")


def test_what_was_used_least_recently_gives_way() -> None:
    kept = KnownHistories(most_bytes=6_000)
    for name in ("a", "b", "c"):
        kept.keep(talked(name, 1_000))
    kept.keep(kept.take("a"))
    kept.keep(talked("d", 1_000))
    assert [kept.take(name).position.seq for name in ("a", "b", "c", "d")] == [1, 0, 1, 1]


def test_one_that_is_too_large_is_not_kept() -> None:
    kept = KnownHistories(most_bytes=5_000)
    kept.keep(talked("a", 10_000))
    assert kept.take("a").position.seq == 0
