"""From transcript rows to what a model reads, in a form that is no provider's. What was rendered once is rendered the same for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from everturn.home.rules import Upload, uploads_in
from everturn.model import Message, RowOutcome, ToolCall
from everturn.people.rules.access import authored
from everturn.sessions.rules.notes import with_note
from everturn.sessions.rules.transcript import arranged

NO_TEXT = "(a message without text)"
_SUMMARY = "[Summary of the conversation so far, made because it became too long:]\n\n"
# Only here: the transcript has the answer as far as it got, and a mark.
_STOPPED = "[Your answer was stopped here, before it was finished. Go on with it only when you are asked to.]"


@dataclass(frozen=True, slots=True)
class Anchored:
    """The note of this attempt, and its position: behind how many arranged rows, those of the attempt's first request."""

    text: str
    rows: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that a message names."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class SystemSaid:
    """The system prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class UserSaid:
    """A message of a user, with the pictures that it names."""

    text: str
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True)
class ToolSaid:
    """The result of a call."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelSaid:
    """An answer: its text and calls, and the provider's own parts where this provider wrote them."""

    text: str
    calls: Sequence[ToolCall]
    parts: Sequence[Any] = ()


Said = SystemSaid | UserSaid | ToolSaid | ModelSaid


def rendered(
    rows: Sequence[Message],
    system: str,
    provider: str,
    note: Anchored | None = None,
    pictures: Mapping[Upload, Picture] | None = None,
) -> list[Said]:
    """What a request says; the note is in it and nowhere else. Pictures follow the text that names them."""
    names = {call.id: call.name for row in rows for call in row.calls}
    said: list[Said] = [SystemSaid(system)] if system else []
    for row in arranged_with(rows, note):
        if row.role == "assistant":
            said.append(ModelSaid(row.content, row.calls, _own_parts(row, provider)))
        elif row.role == "tool":
            call_id = row.call_id or ""
            said.append(ToolSaid(call_id, names.get(call_id, "tool"), row.content))
        else:
            seen = [pictures[each] for each in uploads_in(row.content) if each in pictures] if pictures else ()
            said.append(UserSaid(row.content, seen))
    return said


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


def _own_parts(row: Message, provider: str) -> Sequence[Any]:
    """The provider's own parts of an answer, if this provider wrote them. Its client finds out whether they can be read."""
    if not row.extra:
        return ()
    try:
        kept = msgspec.json.decode(row.extra, type=dict[str, Any])
    except msgspec.MsgspecError:
        return ()  # damaged: what the transcript itself says is enough
    parts = kept.get("parts")
    return parts if kept.get("provider") == provider and isinstance(parts, list) else ()
