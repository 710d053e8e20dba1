"""A stream of events, however its bytes are cut: split, decoded, and joined to an answer."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from everturn.agent.llm.chat.deltas import LONGEST_LINE, EventLines, JoinedDeltas
from everturn.agent.llm.failures import CallFailed
from everturn.agent.rules import CallOutcome
from tests.agent.llm.chat.recorded import STREAMS

LINES = b': a comment\ndata: {"a":1}\n\nevent: x\nid: 7\ndata:two\ndata: lines\n\n\n\nretry: 5\n\ndata: last\n\ndata: never ended'
EVENTS = [b'{"a":1}', b"two\nlines", b"last"]


def split(pieces: Iterable[bytes]) -> list[bytes]:
    lines = EventLines()
    return [event for piece in pieces for event in lines.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_as_they_like_and_bytes_are_cut_anywhere(end: bytes) -> None:
    stream = LINES.replace(b"\n", end)
    assert split([stream]) == EVENTS
    assert split(bytes([byte]) for byte in stream) == EVENTS
    for at in range(len(stream)):
        for then in range(at, len(stream), 7):
            assert split([stream[:at], stream[at:then], stream[then:]]) == EVENTS


def test_a_line_may_be_long_and_not_endless() -> None:
    long = b"data: " + b"x" * 1_000_000
    pieces = [long[at : at + 16_384] for at in range(0, len(long), 16_384)]
    assert split([*pieces, b"\n\n"]) == [long[6:]]
    with pytest.raises(CallFailed, match="longer than") as caught:
        split(bytes(65_536) for _ in range(LONGEST_LINE // 65_536 + 2))
    assert caught.value.kind is CallOutcome.UNREADABLE


def test_an_event_may_have_many_lines_and_ends() -> None:
    lines = b"data: " + b"x" * 65_530 + b"\n"
    with pytest.raises(CallFailed, match="longer than"):
        split(lines for _ in range(LONGEST_LINE // 65_536 + 2))
    assert len(split([*[lines, b"\n"] * (LONGEST_LINE // 65_536 + 2)])) == LONGEST_LINE // 65_536 + 2


@pytest.mark.parametrize("name", STREAMS)
def test_an_answer_is_the_same_in_one_piece_and_in_many(name: str) -> None:
    """Whole, and byte by byte; what a stream says before it is cut off is the beginning of what it says whole."""
    answers = []
    for size in (len(STREAMS[name]), 1):
        lines, joined, texts = EventLines(), JoinedDeltas(), [""]
        for at in range(0, len(STREAMS[name]), size):
            for event in lines.feed(STREAMS[name][at : at + size]):
                if not event.startswith(b"[DONE]") and b'"error"' not in event:
                    joined.add(event)
                    texts.append(joined.text())
        answers.append((joined.parts(), joined.finish, joined.refused, joined.usage, joined.text()))
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert answers[0] == answers[1]


def event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("sent", "kind", "detail"),
    [
        (b"{this is not json", CallOutcome.UNREADABLE, "cannot be read"),
        (b"5", CallOutcome.UNREADABLE, "cannot be read"),
        (b'{"choices": [{"delta": {"content": 5}}]}', CallOutcome.UNREADABLE, "cannot be read"),
        (b'{"choices": [{"delta": {"content": "\xff"}}]}', CallOutcome.UNREADABLE, "cannot be read"),
        (event(error={"message": "The engine is overloaded.", "code": 500}), CallOutcome.SERVER, "The engine"),
        (event(error={"message": "slow down", "code": 429}), CallOutcome.LIMITED, "slow down"),
        (event(error={"message": "slow down", "type": "rate_limit_error"}), CallOutcome.LIMITED, "slow down"),
        (event(error={"message": "pay", "code": "insufficient_quota"}), CallOutcome.QUOTA, "pay"),
        (event(error={"message": "exceeds the available context size"}), CallOutcome.OVERFLOW, "context"),
        (event(error="it broke"), CallOutcome.SERVER, "it broke"),
        (event(error={"code": "x"}, choices=[]), CallOutcome.SERVER, "x"),
    ],
)
def test_an_event_that_is_no_part_of_an_answer_says_what_failed(sent: bytes, kind: CallOutcome, detail: str) -> None:
    with pytest.raises(CallFailed, match=detail) as caught:
        JoinedDeltas().add(sent)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    "sent", [b"{}", b'{"choices":null}', b'{"choices":[]}', b'{"choices":[{}]}', b'{"error":null}']
)
def test_an_event_that_says_nothing_is_no_failure(sent: bytes) -> None:
    joined = JoinedDeltas()
    joined.add(sent)
    assert (joined.parts(), joined.finish, joined.text(), joined.events) == ([], None, "", 1)


def test_arguments_may_be_an_object() -> None:
    joined = JoinedDeltas()
    for arguments in ({"a": 1}, {"b": 2}):
        function = {"name": "look" if "a" in arguments else None, "arguments": arguments}
        joined.add(msgspec.json.encode({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": function}]}}]}))
    assert joined.parts()[0]["args"] == {"a": 1, "b": 2}


def called(*deltas: dict[str, Any]) -> JoinedDeltas:
    joined = JoinedDeltas()
    for each in deltas:
        joined.add(msgspec.json.encode({"choices": [{"delta": {"tool_calls": [each]}}]}))
    return joined


def test_calls_with_one_number_and_several_ids_are_several() -> None:
    """As some servers number calls that are made together."""
    joined = called(
        {"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"in":'}},
        {"index": 0, "function": {"arguments": '"Rome"}'}},
        {"index": 0, "id": "b", "function": {"name": "time", "arguments": "{}"}},
    )
    assert [(part["tool_name"], part["args"], part["tool_call_id"]) for part in joined.parts()] == [
        ("weather", '{"in":"Rome"}', "a"), ("time", "{}", "b"),
    ]  # fmt: skip


def test_what_stands_in_fields_that_say_nothing_may_be_anything() -> None:
    joined = JoinedDeltas()
    joined.add(b'{"model":7,"usage":[],"choices":[{"delta":{"content":"hi","refusal":false},"finish_reason":"stop"}]}')
    assert (joined.text(), joined.finish, joined.refused, joined.usage, joined.model) == (
        "hi",
        "stop",
        False,
        None,
        None,
    )
    assert called({"index": 0, "id": 7, "function": {"name": "look"}}).parts()[0]["tool_call_id"] == "7"
