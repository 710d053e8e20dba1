"""From transcript rows to a provider's messages and back. What was rendered once is rendered the same for ever."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from everturn.home.rules import Upload, uploads_in
from everturn.model import Message, RowOutcome, ToolCall
from everturn.people.rules.access import authored
from everturn.sessions.rules.notes import with_note
from everturn.sessions.rules.transcript import arranged

NO_TEXT = "(a message without text)"
_SUMMARY = "[Summary of the conversation so far, made because it became too long:]\n\n"
# Only here: the transcript has the answer as far as it got, and a mark.
_STOPPED = "[Your answer was stopped here, before it was finished. Go on with it only when you are asked to.]"
_LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class Anchored:
    """The note of this attempt, and its position: behind how many arranged rows, those of the attempt's first request."""

    text: str
    rows: int


def rendered(
    rows: Sequence[Message],
    system: str,
    provider: str,
    note: Anchored | None = None,
    pictures: Mapping[Upload, BinaryContent] | None = None,
) -> list[ModelMessage]:
    """The messages of a request; the note is in them and nowhere else. Pictures follow the text that names them."""
    messages: list[ModelMessage] = []
    lead: list[ModelRequestPart] = [SystemPromptPart(content=system)] if system else []
    names = {call.id: call.name for row in rows for call in row.calls}
    for is_response, group in groupby(arranged_with(rows, note), key=lambda each: each.role == "assistant"):
        if is_response:
            messages.extend(_response(row, provider) for row in group)
        else:
            messages.append(ModelRequest(parts=[*lead, *_parts(group, names, pictures or {})]))
            lead = []
    return [ModelRequest(parts=lead), *messages] if lead else messages


def arranged_with(rows: Sequence[Message], note: Anchored | None) -> Iterator[Message]:
    """The arranged rows with their text as the model sees it, and the note at its position."""
    for count, row in enumerate(arranged(rows), start=1):
        here = note.text if note is not None and count == note.rows else None
        if row.role == "user":
            text = authored(row.author, row.content) or NO_TEXT
            yield msgspec.structs.replace(row, content=with_note(here, text))
            continue
        yield msgspec.structs.replace(row, content=_SUMMARY + row.content) if row.role == "summary" else row
        if row.outcome == RowOutcome.STOPPED:
            yield Message(role="user", content=_STOPPED)
        if here:
            yield Message(role="user", content=here)


def _parts(
    group: Iterable[Message], names: Mapping[str, str], pictures: Mapping[Upload, BinaryContent]
) -> Iterator[ModelRequestPart]:
    for row in group:
        if row.role == "tool":
            call_id = row.call_id or ""
            yield ToolReturnPart(tool_name=names.get(call_id, "tool"), content=row.content, tool_call_id=call_id)
        else:
            seen = [pictures[each] for each in uploads_in(row.content) if each in pictures] if pictures else []
            yield UserPromptPart(content=[row.content, *seen] if seen else row.content)


def _response(row: Message, provider: str) -> ModelResponse:
    return ModelResponse(parts=_kept_parts(row, provider) or plain_parts(row.content, row.calls))


def plain_parts(content: str, calls: Sequence[ToolCall]) -> list[ModelResponsePart]:
    """A response of which only the text and the calls are known."""
    text: list[ModelResponsePart] = [TextPart(content=content)] if content else []
    return [
        *text,
        *(ToolCallPart(tool_name=c.name, args=valid_arguments(c.arguments), tool_call_id=c.id) for c in calls),
    ]


def arguments_of(part: ToolCallPart) -> str:
    """The arguments as the model wrote them, be they JSON or not."""
    return part.args if isinstance(part.args, str) else part.args_as_json_str()


def valid_arguments(arguments: str) -> str:
    """The arguments as a JSON object, whatever the model wrote: providers refuse a history with anything else."""
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except msgspec.MsgspecError:
        return json.dumps({"INVALID_JSON": arguments}, ensure_ascii=False)
    return arguments or "{}"


def extra_of(response: ModelResponse, content: str, calls: Sequence[ToolCall]) -> str | None:
    """The provider's own parts of a response as JSON; None when they are just its text and its calls."""
    parts = _dumped(response.parts)
    if parts == _dumped(plain_parts(content, calls)):
        return None
    kept = {"provider": response.provider_name, "parts": parts}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _dumped(parts: Sequence[ModelResponsePart]) -> list[dict[str, Any]]:
    (message,) = json.loads(ModelMessagesTypeAdapter.dump_json([ModelResponse(parts=parts)]))
    return [{name: value for name, value in part.items() if value is not None} for part in message["parts"]]


def _kept_parts(row: Message, provider: str) -> Sequence[ModelResponsePart]:
    """The provider's own parts, if this provider wrote them and they say the same as the row."""
    if not row.extra:
        return ()
    try:
        kept = msgspec.json.decode(row.extra, type=dict[str, Any])
        if kept.get("provider") != provider:
            return ()
        text = msgspec.json.encode([{"kind": "response", "parts": kept["parts"]}])
        (message,) = ModelMessagesTypeAdapter.validate_json(text)
    except (msgspec.MsgspecError, ValidationError, KeyError, ValueError, TypeError):
        return ()  # damaged: what the transcript itself says is enough
    ids = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
    return message.parts if isinstance(message, ModelResponse) and ids == [call.id for call in row.calls] else ()


def as_kept(response: ModelResponse, used: Collection[str], fresh: str) -> ModelResponse:
    """The response as it is stored: its calls have ids that no other call of the conversation has, and valid arguments."""
    taken = set(used)
    parts: list[ModelResponsePart] = []
    for place, part in enumerate(response.parts):
        if not isinstance(part, ToolCallPart):
            parts.append(part)
            continue
        known = part.tool_call_id
        own = known if known and known not in taken and len(known) <= _LONGEST_ID else f"{fresh}-{place}"
        while own in taken:  # a child session counts its rows from the beginning
            own += "_"
        taken.add(own)
        parts.append(replace(part, tool_call_id=own, args=valid_arguments(arguments_of(part))))
    return replace(response, parts=parts)
