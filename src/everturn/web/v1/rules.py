"""Rules of /v1: what a request means, and what an answer looks like."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Annotated, Any, Literal, cast

import msgspec

from everturn.model import ClientTool, Json, Message, ToolCall, TurnState, Usage

MOST_TOOLS = 128
MOST_METADATA = 16
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_UNSUPPORTED_PARTS = frozenset({"image_url", "input_image", "input_audio", "file", "input_file", "video_url"})
_NOT_ASKED = frozenset({"stream", "stream_options"})  # how the answer is sent, not what is requested

SEAM = "\n\n"
_ENDED = {
    TurnState.FAILED: ("turn_failed", "the turn failed"),
    TurnState.STOPPED: ("turn_stopped", "the turn was stopped"),
    TurnState.ROLLED_BACK: ("turn_stopped", "the turn was rolled back"),
    TurnState.SUSPENDED: ("session_suspended", "the turn crashed the gateway repeatedly; its session is suspended"),
}
_NOT_RUN = {
    "dead": ("message_dead", "the message could not be answered"),
    "withdrawn": ("message_withdrawn", "the message was withdrawn"),
    "expired": ("message_expired", "the message was queued for too long"),
}


_INSTRUCTING = ("system", "developer")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class MalformedRequest(ValueError):
    """The request is invalid; the text tells its sender what to change, `param` where."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class PlainRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message as nearly all are: a text and whose it is, and nothing else."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[str, msgspec.Meta(min_length=1)]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """It calls nothing."""
        return ()

    @property
    def call_id(self) -> None:
        """It is no result."""
        return


SaidRow = Message | PlainRow
_plain_rows = msgspec.json.Decoder(list[PlainRow]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A parsed request: the whole conversation that came with it, in order, and its options."""

    model: str
    rows: Sequence[SaidRow]
    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    stream: bool = False
    include_usage: bool = False
    session: str | None = None
    previous: str | None = None
    store: bool = True
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionInput:
    """The input of a session: earlier rows, and the user's text, which is empty when only tool results come."""

    rows: tuple[Message, ...]
    text: str


def _unless(fine: Callable[[Any], bool], why: str) -> tuple[Callable[[Any], bool], str]:
    return fine, why


_NOTHING = _unless(lambda value: value in (None, [], {}, "", False, 0), "not supported; leave it out")
# Would change the answer and is not supported: refused, unless the value is the default.
REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": _unless(lambda value: value in (None, 1), "only one answer is supported; leave it out, or send another request"),
    "logprobs": _NOTHING,
    "top_logprobs": _NOTHING,
    "stop": _NOTHING,
    "audio": _NOTHING,
    "modalities": _unless(lambda value: value in (None, ["text"]), "only text output is supported; leave it out"),
    "functions": _unless(lambda value: not value, "deprecated; use tools"),
    "function_call": _unless(lambda value: value in (None, "none", "auto"), "deprecated; use tool_choice"),
    "web_search_options": _unless(lambda value: value is None, "not supported; the owner enables the agent's tools"),
    "response_format": _unless(lambda value: _kind(value) in (None, "text"), "only text is supported; ask for JSON in the prompt"),
    "text": _unless(
        lambda value: not isinstance(value, dict) or _kind(value.get("format")) in (None, "text"),
        "only text is supported; ask for JSON in the prompt",
    ),
    "tool_choice": _unless(
        lambda value: value in (None, "auto", "none"), "the agent decides; use auto, or none to offer no tools"
    ),
    "background": _unless(lambda value: not value, "a turn continues without its client anyway; repeat with your Idempotency-Key"),
    "conversation": _unless(lambda value: value is None, "name the session in the header X-Everturn-Session"),
    "prompt": _unless(lambda value: value is None, "stored prompts are not supported; use instructions"),
}  # fmt: skip


def _kind(value: object) -> object:
    return value.get("type") if isinstance(value, dict) else value


def read_chat(body: bytes) -> ParsedRequest:
    """Parse the body of `POST /v1/chat/completions`."""
    asked, plain = _with_plain_rows(body, "messages")
    options = asked.get("stream_options") or {}
    if not isinstance(options, dict):
        raise MalformedRequest("stream_options must be an object", "stream_options")
    if plain:
        instructions = "\n\n".join(row.content for row in plain if row.role in _INSTRUCTING)
        rows: Sequence[SaidRow] = [row for row in plain if row.role not in _INSTRUCTING] if instructions else plain
    else:
        instructions, rows = _messages(_list(asked, "messages"), "messages")
    return ParsedRequest(
        **_shared(asked),
        rows=_ending(rows, "messages"),
        instructions=instructions,
        tools=_tools(asked, lambda tool: tool.get("function")),
        include_usage=options.get("include_usage") is True,
    )


def read_response(body: bytes) -> ParsedRequest:
    """Parse the body of `POST /v1/responses`."""
    asked = _object(body)
    given = asked.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _list(asked, "input")
    instructions, rows = _messages(_items(items), "input")
    own = _optional(asked, "instructions", str, "a string")
    return ParsedRequest(
        **_shared(asked),
        rows=_ending(rows, "input"),
        instructions="\n\n".join(part for part in (own, instructions) if part),
        tools=_tools(asked, lambda tool: tool),
        previous=_optional(asked, "previous_response_id", str, "a string"),
    )


def to_session(asked: ParsedRequest) -> SessionInput:
    """Return the input for an existing session: what came after its last answer. It has the rest already."""
    if asked.previous is not None:
        return _session_input(asked.rows)
    new = list(takewhile(lambda row: row.role != "assistant", reversed(asked.rows)))
    return _session_input(new[::-1])


def to_standalone(asked: ParsedRequest, param: str) -> SessionInput:
    """Return the input for a standalone call: everything."""
    known: set[str | None] = set()
    for row in asked.rows:
        known |= {call.id for call in row.calls}
        if row.role == "tool" and row.call_id not in known:
            raise MalformedRequest(f"the result of the tool call {row.call_id!r} has no such call before it", param)
    return _session_input(asked.rows)


def check_results(said: SessionInput, calls: Collection[str], param: str) -> None:
    """Raise MalformedRequest for results of tool calls that the session did not make."""
    for row in said.rows:
        if row.role == "tool" and row.call_id not in calls:
            raise MalformedRequest(f"this session did not make the tool call {row.call_id!r}", param)


def _session_input(said: Sequence[SaidRow]) -> SessionInput:
    rows = tuple(row if isinstance(row, Message) else Message(role=row.role, content=row.content) for row in said)
    return SessionInput(rows[:-1], rows[-1].content) if rows[-1].role == "user" else SessionInput(rows, "")


def fingerprint(where: str, session: str, body: bytes) -> str:
    """Hash a request: the same for the same request, however its JSON is formatted and whether or not it is streamed."""
    asked = {name: value for name, value in _object(body).items() if name not in _NOT_ASKED}
    text = msgspec.json.encode([where, session, asked], order="sorted")
    return hashlib.sha256(text).hexdigest()


def _object(body: bytes) -> Json:
    try:
        read = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise MalformedRequest("the body must be a JSON object")
    return read


def _with_plain_rows(body: bytes, name: str) -> tuple[Json, list[PlainRow]]:
    """The body's object; where all messages are plain, those, and the object without them. A chat program sends all of a
    conversation with each message: what becomes an object for each field of each of them takes longer than everything else.
    """
    try:
        fields = _fields(body)
        rows = _plain_rows(fields[name])
        asked = {field: msgspec.json.decode(value) for field, value in fields.items() if field != name}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return _object(body), []  # which finds out what is wrong, if anything is
    if b"\\u0000" in body or any(row.content.isspace() for row in rows if row.role == "user"):
        return _object(body), []
    return asked, rows


def _shared(asked: Json) -> dict[str, Any]:
    for name, (fine, why) in REFUSED.items():
        if name in asked and not fine(asked[name]):
            raise MalformedRequest(f"{name}: {why}", name, "unsupported_parameter")
    model = _optional(asked, "model", str, "a string")
    if not model:
        raise MalformedRequest("model is missing; GET /v1/models lists the available models", "model")
    store = _optional(asked, "store", bool, "true or false")
    metadata = _optional(asked, "metadata", dict, "an object") or {}
    if len(metadata) > MOST_METADATA or not all(isinstance(value, str) for value in metadata.values()):
        raise MalformedRequest(f"metadata must have at most {MOST_METADATA} strings", "metadata")
    return {
        "model": model, "stream": bool(_optional(asked, "stream", bool, "true or false")),
        "session": _optional(asked, "user", str, "a string") or None, "store": store is not False, "metadata": metadata,
    }  # fmt: skip


def _optional(asked: Json, name: str, kind: type[Any], what: str) -> Any:
    value = asked.get(name)
    if value is not None and not isinstance(value, kind):
        raise MalformedRequest(f"{name} must be {what}", name)
    return value


def _list(asked: Json, name: str) -> list[Any]:
    value = asked.get(name)
    if not isinstance(value, list) or not value:
        raise MalformedRequest(f"{name} must be a list of at least one message", name)
    return value


def _messages(given: Sequence[object], param: str) -> tuple[str, list[Message]]:
    """Split the messages into instructions and rows."""
    instructions, rows = [], []
    for place, each in enumerate(given):
        where = f"{param}[{place}]"
        if not isinstance(each, dict):
            raise MalformedRequest(f"{where} must be an object", where)
        role = each.get("role")
        if role in _INSTRUCTING:
            instructions.append(_text(each.get("content"), f"{where}.content"))
        else:
            rows.append(_row(role, each, where))
    return "\n\n".join(part for part in instructions if part), rows


def _row(role: object, given: Json, where: str) -> Message:
    if role == "user":
        text = _text(given.get("content"), f"{where}.content")
        if not text.strip():
            raise MalformedRequest(f"{where} has no text", f"{where}.content")
        return Message(role="user", content=text)
    if role == "assistant":
        calls = given.get("tool_calls") or []
        text = _text(given.get("content") or given.get("refusal") or "", f"{where}.content")
        if not isinstance(calls, list) or not (calls or text):
            raise MalformedRequest(f"{where} has neither text nor tool_calls", where)
        named = tuple(_call(call, f"{where}.tool_calls[{n}]") for n, call in enumerate(calls))
        return Message(role="assistant", content=text, calls=named)
    if role == "tool":
        content = _text(given.get("content"), f"{where}.content")
        return Message(role="tool", content=content, call_id=_id(given.get("tool_call_id"), f"{where}.tool_call_id"))
    raise MalformedRequest(f"{where}.role must be system, developer, user, assistant or tool", f"{where}.role")


def _text(content: object, where: str) -> str:
    if isinstance(content, list):
        return "\n".join(_part(part, f"{where}[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise MalformedRequest(f"{where} must be a string or a list of text parts", where)
    if "\x00" in content:
        raise MalformedRequest(f"{where} contains a NUL character, which cannot be stored; remove it", where)
    return content


def _part(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict) and kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return _text(part["text"], where)
    if kind in _UNSUPPORTED_PARTS:
        raise MalformedRequest(
            f"{where}: parts of type {kind} are not supported; send text", where, "unsupported_content"
        )
    raise MalformedRequest(f"{where} must be a text part", where)


def _call(call: object, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise MalformedRequest(f"{where} must be a function call", where)
    return _named_call(call.get("id"), function, where)


def _named_call(call_id: object, function: Json, where: str) -> ToolCall:
    name, arguments = function.get("name"), function.get("arguments", "")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise MalformedRequest(f"{where} needs a name, and its arguments as a string", where)
    return ToolCall(_id(call_id, f"{where}.id"), name, _text(arguments, where))


def _id(value: object, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200 or "\x00" in value:
        raise MalformedRequest(f"{where} must be the id of a tool call", where)
    return value


def _items(items: Iterable[object]) -> list[object]:
    """Convert the input of a response to messages, also its calls and their results. Positions stay the same."""
    return [_item(item, f"input[{place}]") for place, item in enumerate(items) if _kind(item) != "reasoning"]


def _item(item: object, where: str) -> object:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if not isinstance(item, dict) or kind == "message":
        return item
    if kind == "function_call":
        call = {"id": item.get("call_id"), "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    raise MalformedRequest(f"{where}: items of type {kind} are not supported", where)


def _ending(rows: Sequence[SaidRow], param: str) -> Sequence[SaidRow]:
    """Check that there is something to answer, and merge calls that were made together into one row."""
    if not rows or rows[-1].role not in {"user", "tool"}:
        raise MalformedRequest(f"the last of {param} must be from the user, or the result of a tool call", param)
    if isinstance(rows[0], PlainRow):
        return rows
    found: list[Message] = []
    for row in cast("Sequence[Message]", rows):
        if found and found[-1].calls and row.calls and not row.content:
            found[-1] = msgspec.structs.replace(found[-1], calls=found[-1].calls + row.calls)
        else:
            found.append(row)
    return tuple(found)


def _tools(asked: Json, function_of: Callable[[Json], object]) -> tuple[ClientTool, ...]:
    tools = _optional(asked, "tools", list, "a list") or []
    if len(tools) > MOST_TOOLS:
        raise MalformedRequest(f"at most {MOST_TOOLS} tools are supported", "tools")
    read = tuple(_tool(tool, function_of, f"tools[{place}]") for place, tool in enumerate(tools))
    return () if asked.get("tool_choice") == "none" else read


def _tool(tool: object, function_of: Callable[[Json], object], where: str) -> ClientTool:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise MalformedRequest(
            f"{where}.type must be function; the owner enables the agent's own tools", f"{where}.type"
        )
    function = function_of(tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise MalformedRequest(f"{where} needs a name of 1 to 64 letters, digits, _ or -", f"{where}.name")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise MalformedRequest(f"{where}.parameters must be a JSON schema of an object", f"{where}.parameters")
    return ClientTool(name, _text(function.get("description") or "", f"{where}.description"), parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgress:
    """The state of a request in the store."""

    inbox: str  # the state of its message
    turn: str | None = None  # the state of its turn
    why: str | None = None  # why the turn ended
    text: str = ""  # the answer; or the notice in its place
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()  # noqa: RUF009  frozen
    approval: str | None = None  # what a person must approve first
    suspended: bool = False  # its session is suspended, and it waits there
    too_old: bool = False  # its turn was interrupted too long ago to resume by itself


@dataclass(frozen=True, slots=True)
class Pending:
    """The request runs, or is queued."""

    running: bool


@dataclass(frozen=True, slots=True)
class FinishedAnswer:
    """The answer; `finish` as chat completions name it."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class CompletionError:
    """Why there is no answer. A `final` error does not change when the request is repeated."""

    status: int
    code: str
    message: str
    final: bool = True


Verdict = Pending | FinishedAnswer | CompletionError


def verdict(seen: RequestProgress) -> Verdict:
    """Return the reply for this state. Only the stored rows count, so a repeated request gets the same."""
    if seen.turn == TurnState.ANSWERED:
        return FinishedAnswer(seen.text, seen.calls, _finish(seen), seen.usage)
    if seen.turn in _ENDED:
        code, text = _ENDED[TurnState(seen.turn)]
        return CompletionError(500, code, seen.text or text)
    if seen.inbox in _NOT_RUN:
        return CompletionError(500, *_NOT_RUN[seen.inbox])
    if seen.approval is not None:
        return CompletionError(409, "approval_required", _approval_message(seen.approval), final=False)
    if seen.suspended:
        return CompletionError(
            409, "session_suspended", "the session is suspended; the next message starts a new one", final=False
        )
    if seen.too_old:
        return CompletionError(
            409,
            "turn_interrupted",
            "the turn was interrupted too long ago to resume by itself; send another message to continue",
            final=False,
        )
    return Pending(running=seen.turn == TurnState.RUNNING)


def _finish(seen: RequestProgress) -> str:
    if seen.calls:
        return "tool_calls"
    return "length" if seen.why == "cut" else "stop"


def _approval_message(request: str) -> str:
    return f"a person must approve first: {request} Repeat this request with its Idempotency-Key after the approval was answered."


def grown(current: str, shown: str) -> str:
    """Return what to send after `current`, so that the client's text ends with `shown`. Sent text cannot be taken back: text
    that does not continue it starts a new paragraph.
    """
    return shown[len(current) :] if shown.startswith(current) else SEAM + shown
