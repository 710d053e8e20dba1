"""What a model server saw, against the transcript: no committed step asked again, nothing but the transcript and a note."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from everturn.model import Message
from everturn.testing.model import LoggedRequest

_NOTE = re.compile(r"\[System note:.*?\](?:\n\n|$)", re.DOTALL)
_BEFORE_A_NOTE = re.compile(r',?\{"role":"user","content":"$')
Line = tuple[Any, ...]


def model_problems(requests: Sequence[LoggedRequest], rows: Sequence[Message]) -> list[str]:
    """Every broken promise, as a sentence."""
    transcript = [_row(row) for row in rows]
    lengths: list[int] = []
    found = []
    for seen in requests:
        notes, lines = _request(seen)
        if lines != transcript[: len(lines)]:
            found.append(f"request {seen.number} is not the transcript: {lines}, wanted {transcript[: len(lines)]}")
        if notes > 1:
            found.append(f"request {seen.number} has {notes} notes")
        lengths.append(len(lines))
    return found + _asked_again(requests, lengths) + _unstable(requests)


def _asked_again(requests: Sequence[LoggedRequest], lengths: Sequence[int]) -> list[str]:
    """A request that follows a committed step contains it."""
    return [
        f"request {later.number} asks for a step again that request {earlier.number} had"
        for (earlier, before), (later, after) in pairwise(zip(requests, lengths, strict=True))
        if after < before
    ]


def _unstable(requests: Sequence[LoggedRequest]) -> list[str]:
    found = []
    for earlier, later in pairwise(requests):
        first, second = _up_to_note(earlier), _up_to_note(later)
        common = min(len(first), len(second))
        if first[:common] != second[:common]:
            found.append(f"request {later.number} does not begin as {earlier.number} did")
        if earlier.rest != later.rest:
            found.append(f"request {later.number} offers other tools or settings than {earlier.number}")
    return found


def _up_to_note(seen: LoggedRequest) -> str:
    before, note, _ = seen.conversation.partition("[System note:")
    return _BEFORE_A_NOTE.sub("", before) if note else before


def _request(seen: LoggedRequest) -> tuple[int, list[Line]]:
    """How many notes are in a request, and its conversation without them."""
    notes, lines = 0, []
    for message in seen.asked.messages:
        if message["role"] == "system":
            continue
        content = message.get("content") or ""
        if message["role"] == "user":
            content, count = _NOTE.subn("", content)
            notes += count
            if count and not content:
                continue
        calls = tuple(_call(each["id"], each["function"]["arguments"]) for each in message.get("tool_calls") or ())
        lines.append((message["role"], content, message.get("tool_call_id"), calls))
    return notes, lines


def _row(row: Message) -> Line:
    return (row.role, row.content, row.call_id, tuple(_call(call.id, call.arguments) for call in row.calls))


def _call(call_id: str, arguments: str) -> tuple[str, str]:
    """A call; how its JSON is spaced is the library's business, which the bytes of the prefix show to be steady."""
    return call_id, json.dumps(json.loads(arguments), sort_keys=True)
