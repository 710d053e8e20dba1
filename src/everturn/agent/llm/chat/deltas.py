"""A streamed chat completion: split into events, decoded, and joined to an answer. Pure.

What a server may do with the bytes: CR, LF or both end a line, also between two packets; comments keep a connection alive; a
stream may carry an error, and may end at any byte. Which parts deltas join to is what pydantic-ai makes of them, so that
a session reads the same whichever client wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from everturn.agent.llm.chat.requests import PROVIDER, THINKING
from everturn.agent.llm.failures import CallFailed, refused_by
from everturn.agent.llm.replies import CALL, TEXT, Part
from everturn.agent.rules import CallOutcome

LONGEST_LINE = 16 * 1024 * 1024
LONGEST_STREAM = 256 * 1024 * 1024  # a token takes some hundred bytes of it
DONE = b"[DONE]"
_BEGINS, _ENDS = "<think>", "</think>"  # a token of its own each


class EventLines:
    """Splits bytes into the data of events. An event without its blank line at the end does not count."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended
        self._rest_bytes = 0
        self._after_cr = False  # the LF that comes next ends no line of its own
        self._data: list[bytes] = []  # lines of an event that has not ended
        self._data_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are complete now. Raises CallFailed for a line without an end."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        if len(lines) > 1 and self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest, self._rest_bytes = [], 0
        if last := lines.pop():
            self._rest.append(last)
            self._rest_bytes += len(last)
            if self._rest_bytes > LONGEST_LINE:
                raise CallFailed(CallOutcome.UNREADABLE, f"a line of the stream is longer than {LONGEST_LINE} bytes")
        return self._events(lines) if lines else []

    def _events(self, lines: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for line in lines:
            if not line:
                if self._data:
                    found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data, self._data_bytes = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._data_bytes += len(line)
                if self._data_bytes > LONGEST_LINE:
                    raise CallFailed(
                        CallOutcome.UNREADABLE, f"an event of the stream is longer than {LONGEST_LINE} bytes"
                    )
        return found


class CallFunction(msgspec.Struct, gc=False):
    """A part of a call's name and arguments."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(msgspec.Struct):
    """A part of a tool call."""

    index: int | None = None
    id: Any = None
    function: CallFunction | None = None
    extra_content: Any = None


class ChatDelta(msgspec.Struct):
    """A part of an answer; a whole one where the server does not stream."""

    content: str | list[Any] | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    refusal: Any = None
    tool_calls: list[CallDelta] | None = None


class ChatChoice(msgspec.Struct):
    """One answer; we ask for one."""

    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    finish_reason: str | None = None


class ChatChunk(msgspec.Struct):
    """An event of the stream."""

    choices: list[ChatChoice] | None = None
    model: Any = None
    usage: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(ChatChunk)
_NOTHING = ChatDelta()


@dataclass(slots=True)
class OpenPart:
    """A part that grows."""

    kind: str
    pieces: list[str] = field(default_factory=list)
    id: str = ""
    name: str | None = None
    arguments: dict[str, Any] | None = None  # of a server that sends them as an object
    extra: Any = None

    def part(self) -> Part:
        """The part as it is stored."""
        content = "".join(self.pieces)
        if self.kind == TEXT:
            return {"part_kind": TEXT, "content": content}
        if self.kind == THINKING:
            return {"part_kind": THINKING, "content": content, "id": self.id, "provider_name": PROVIDER}
        args: Part = {"args": content} if self.arguments is None else {"args": self.arguments}
        details = {"provider_name": PROVIDER, "provider_details": {"extra_content": self.extra}} if self.extra else {}
        return {"part_kind": CALL, "tool_name": self.name, "tool_call_id": self.id, **args, **details}


class JoinedDeltas:
    """The answer so far."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.refused = False
        self.events = 0  # how many of them could be read
        self._parts: list[OpenPart] = []
        self._open: OpenPart | None = None  # where the next text goes
        self._thoughts: dict[str, OpenPart] = {}  # where the next thought goes, by the field it comes in
        self._calls: dict[int, OpenPart] = {}
        self._size = 0

    def add(self, event: bytes) -> None:
        """Add an event. Raises CallFailed for one that says that something failed, or that cannot be read."""
        try:
            chunk = _decoder.decode(event)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CallFailed(CallOutcome.UNREADABLE, f"a part of the stream cannot be read: {error}") from None
        if chunk.error:
            raise refused_by(None, chunk.error)
        self.events += 1
        self._size += len(event)
        if self._size > LONGEST_STREAM:
            raise CallFailed(CallOutcome.UNREADABLE, f"the stream is longer than {LONGEST_STREAM} bytes")
        self.model = chunk.model if chunk.model and isinstance(chunk.model, str) else self.model
        self.usage = chunk.usage if chunk.usage and isinstance(chunk.usage, dict) else self.usage
        if chunk.choices:
            choice = chunk.choices[0]
            self.finish = choice.finish_reason or self.finish
            self._add(choice.delta or choice.message or _NOTHING)

    def _add(self, delta: ChatDelta) -> None:
        if delta.refusal:
            self.refused = True
            return
        if isinstance(delta.reasoning, str) and delta.reasoning:
            self._think("reasoning", delta.reasoning)
        elif isinstance(delta.reasoning_content, str) and delta.reasoning_content:
            self._think("reasoning_content", delta.reasoning_content)
        if delta.content:
            self._say(delta.content if isinstance(delta.content, str) else _texts(delta.content))
        for call in delta.tool_calls or ():
            self._call(call)

    def text(self) -> str:
        """The text so far, as the user sees it."""
        texts: list[str] = []
        before = ""
        for part in self._parts:
            if part.kind == TEXT:
                if len(part.pieces) > 1:  # what is joined once is not joined again with the next token
                    part.pieces = ["".join(part.pieces)]
                texts.append("\n\n" if texts and before != TEXT else "")
                texts += part.pieces
            before = part.kind
        return "".join(texts)

    def parts(self) -> list[Part]:
        """The parts, in the order in which they began. A call without a name is none."""
        return [part.part() for part in self._parts if part.kind != CALL or part.name is not None]

    def _begin(self, kind: str, part_id: str = "") -> OpenPart:
        part = OpenPart(kind, id=part_id)
        self._parts.append(part)
        return part

    def _think(self, name: str, thought: str) -> None:
        part = self._thoughts.get(name)
        if part is None:
            part = self._thoughts[name] = self._begin(THINKING, name)
            self._end_text()
        part.pieces.append(thought)

    def _say(self, content: str) -> None:
        part = self._open
        if part is not None and part.kind == THINKING:
            if content == _ENDS:
                self._open = None
            else:
                part.pieces.append(content)
            return
        if content == _BEGINS:
            self._open = self._begin(THINKING, "content")
            self._thoughts.clear()
            return
        if not content:
            return
        if part is None:
            part = self._open = self._begin(TEXT)
            self._thoughts.clear()
        part.pieces.append(content)

    def _call(self, delta: CallDelta) -> None:
        given = delta.function or CallFunction()
        part = self._calls.get(delta.index) if delta.index is not None else self._unnumbered(given.name)
        other = given.name is not None and part is not None and delta.id and part.id not in {"", str(delta.id)}
        if part is None or other:  # some servers give parallel calls the same number
            part = self._begin(CALL)
            if delta.index is not None:
                self._calls[delta.index] = part
        if given.name is not None:
            if part.name is None:  # only now it is known to be a call
                self._thoughts.clear()
                self._end_text()
            part.name = (part.name or "") + given.name
        part.id = str(delta.id) if delta.id else part.id
        if isinstance(given.arguments, str):
            part.pieces.append(given.arguments)
        elif given.arguments is not None:
            part.arguments = (part.arguments or {}) | given.arguments
        if delta.extra_content:
            part.extra = delta.extra_content

    def _unnumbered(self, name: str | None) -> OpenPart | None:
        """The call that a delta without a number goes on with: the last part, unless it has a name and so is another one."""
        last = self._parts[-1] if self._parts else None
        return last if name is None and last is not None and last.kind == CALL else None

    def _end_text(self) -> None:
        if self._open is not None and self._open.kind == TEXT:
            self._open = None


def _texts(content: Sequence[Any]) -> str:
    """The text of a content that is a list: some servers stream it so, with references between."""
    found = []
    for each in content:
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict) and each.get("type") == "text" and isinstance(text := each.get("text"), str):
            found.append(text)
    return "".join(found)
