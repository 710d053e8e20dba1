"""The answers of /v1: a turn is followed to its end and written as chat completion or response, whole or as a stream.

Errors are in the OpenAI format, too, which clients turn into their typed exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from starlette.types import Send

from everturn.errors import Conflict, EverturnError, Full, TooLong
from everturn.model import Event, Hint, Json, ToolCall, Usage
from everturn.sessions.rules.keys import agent_of
from everturn.store.interface import Store
from everturn.web.events import HEAD, HEARTBEAT, Delta, EventSource
from everturn.web.v1.rows import RequestRow, request_by_id
from everturn.web.v1.rules import CompletionError, FinishedAnswer, MalformedRequest, Pending, Verdict, grown, verdict
from everturn.web.wire.requests import RETRY_AFTER_S, CompleteResponse, Header, encode, retry_after

NO_RETRY: Header = (b"x-should-retry", b"false")
_INVALID = "invalid_request_error"
_KINDS: dict[int, tuple[str, str | None]] = {
    400: (_INVALID, None),
    401: (_INVALID, "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    404: (_INVALID, "not_found"),
    405: (_INVALID, "method_not_allowed"),
    409: ("conflict_error", "conflict"),
    413: (_INVALID, "request_too_large"),
    421: (_INVALID, "wrong_host"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "unavailable"),
}
_SERVER = ("server_error", "internal_error")
Ended = FinishedAnswer | CompletionError
DONE = b"data: [DONE]\n\n"
_STATUS = {"length": "incomplete"}


class NotPossible(Exception):
    """The request failed; the reply says why."""

    def __init__(self, reply: CompleteResponse) -> None:
        super().__init__(reply.status)
        self.reply = reply


def not_possible(status: int, message: str, param: str | None = None, code: str | None = None) -> NotPossible:
    """Return the exception to raise."""
    return NotPossible(error_reply(status, message, param=param, code=code))


def error_reply(
    status: int, message: str, *headers: Header, param: str | None = None, code: str | None = None
) -> CompleteResponse:
    """Return an error response. A conflict also says that a retry does not help."""
    more = (*headers, NO_RETRY) if status == 409 and NO_RETRY not in headers else headers
    kind, usual = _KINDS.get(status, _SERVER)
    error = {"message": message, "type": kind, "param": param, "code": code or usual}
    return CompleteResponse(status, encode({"error": error}), more)


def to_openai_error(reply: CompleteResponse) -> CompleteResponse:
    """Convert one of the gateway's own error responses to the OpenAI format."""
    try:
        why = str(msgspec.json.decode(reply.body, type=dict[str, object])["error"])
    except (msgspec.MsgspecError, KeyError):
        why = "the request was refused"
    return error_reply(reply.status, why, *reply.headers)


def malformed(error: MalformedRequest) -> CompleteResponse:
    """Return a MalformedRequest as a 400."""
    return error_reply(400, str(error), param=error.param, code=error.code)


def not_accepted(error: EverturnError) -> CompleteResponse:
    """Return the error of a request that was not stored."""
    match error:
        case Conflict():
            why = "this Idempotency-Key was used before, for another request; send this one with a new key"
            return error_reply(409, why, code="idempotency_key_reused")
        case Full():
            return error_reply(429, str(error), retry_after(error.retry_after_s), code="queue_full")
        case TooLong():
            return error_reply(413, str(error), param="messages", code="message_too_long")
        case _:
            return error_reply(
                503, f"the request is not stored yet: {error}; send it again", retry_after(RETRY_AFTER_S)
            )


def problem_reply(problem: CompletionError) -> CompleteResponse:
    """Return the error of a request that has no answer."""
    return error_reply(problem.status, problem.message, NO_RETRY, code=problem.code)


def stopping() -> CompleteResponse:
    """Return the error of a request that waits while the gateway stops."""
    why = "the gateway is stopping; send the request again with its Idempotency-Key"
    return error_reply(503, why, retry_after(1), code="restarting")


class Stream:
    """One streamed response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def open(self) -> None:
        """Send the response head: from then on an error is an event."""
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})

    async def emit(self, chunk: bytes) -> None:
        """Send some bytes."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def beat(self) -> None:
        """Send a comment as heartbeat."""
        await self.emit(HEARTBEAT)

    async def break_off(self, error: bytes) -> None:
        """Send an error, which clients raise, and end the stream."""
        await self.emit(b"data: " + error + b"\n\n")
        await self.close()

    async def close(self) -> None:
        """End the stream."""
        await self._send({"type": "http.response.body", "body": b""})


class Audience(Protocol):
    """Receives the progress of a request."""

    async def show(self, text: str) -> None:
        """Show the answer's text so far."""
        ...

    async def beat(self) -> None:
        """Send a heartbeat."""
        ...


class NoAudience:
    """Ignores progress, for a request that is not streamed."""

    async def show(self, text: str) -> None:
        """Do nothing."""

    async def beat(self) -> None:
        """Do nothing."""


class _Recheck:
    """A signal without an event: check access again."""


class _Quiet:
    """Signals that nothing was shown for a while. One timer for a whole stream: setting one for each token would cost more than
    to show it.
    """

    def __init__(self, watch: object, after_s: float) -> None:
        self._watch = watch
        self._after_s = after_s
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._timer = self._loop.call_later(after_s, self._look)

    def shown(self) -> None:
        """Begin to wait anew."""
        self._at = self._loop.time()

    def _look(self) -> None:
        left_s = self._at + self._after_s - self._loop.time()
        if left_s <= 0:
            self._at += self._after_s - left_s
            left_s = self._after_s
            self._watch.put(self)  # type: ignore[attr-defined]
        self._timer = self._loop.call_later(left_s, self._look)

    def end(self) -> None:
        """Signal no more."""
        self._timer.cancel()


class Following:
    """Follows requests of one platform to their end; many clients may follow one, and all get the same end.

    The store has the state; the hub only signals changes, and has the text that streams.
    """

    def __init__(self, hub: EventSource, store: Store, platform: str, heartbeat_s: float) -> None:
        self._hub = hub
        self._store = store
        self._platform = platform
        self._heartbeat_s = heartbeat_s
        self._watches: set[object] = set()

    @contextmanager
    def watch(self, key: str) -> Iterator[object]:
        """Watch a key. What is read or stored after that misses no change."""
        watch = self._hub.watch(key)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            self._hub.leave(watch, key)

    async def ended(
        self,
        request: RequestRow,
        audience: Audience,
        admitted: Callable[[], Awaitable[bool]] | None,
        watch: object,
    ) -> tuple[RequestRow, Ended]:
        """Wait until there is an answer, or an error. `request` is as it was since the watch began."""
        now, quiet = request, _Quiet(watch, self._heartbeat_s)
        try:
            while isinstance(found := verdict(now.seen), Pending):
                await self._until_news(watch, now, audience, quiet)
                newer = await self._store.read(request_by_id, request.id, self._platform)
                now = newer if newer is not None else now
                if admitted is not None and not await admitted():
                    raise not_possible(401, "this key was revoked")
        finally:
            quiet.end()
        return now, found

    def recheck_access(self) -> None:
        """Let every waiting request check its key again, after a key was revoked."""
        for watch in list(self._watches):
            watch.put(_Recheck())  # type: ignore[attr-defined]

    async def _until_news(self, watch: object, request: RequestRow, audience: Audience, quiet: _Quiet) -> None:
        """Show the streamed text until the store must be read again."""
        await self._show(request, audience)
        while True:
            item = await watch.next()  # type: ignore[attr-defined]
            if isinstance(item, Delta):
                quiet.shown()
                await self._show(request, audience)
            elif item is quiet:
                await audience.beat()
                return
            elif not (isinstance(item, Hint) or (isinstance(item, Event) and item.seq <= request.event)):
                return

    async def _show(self, request: RequestRow, audience: Audience) -> None:
        """Show the newest text of its turn: a slow reader skips older versions."""
        live = self._hub.live(request.key)
        if live is not None and live.turn == str(request.turn):
            await audience.show(live.text)


def completion(request: RequestRow, answer: FinishedAnswer, model: str) -> Json:
    """Return a `chat.completion`."""
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.calls:
        message["tool_calls"] = [_tool_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {
        **_head(request, model), "object": "chat.completion", "choices": [choice], "usage": usage_json(answer.usage),
    }  # fmt: skip


class ChatStream(Stream):
    """Streams chunks; the last one before `[DONE]` has the usage, if requested."""

    def __init__(self, send: Send, request: RequestRow, model: str, *, include_usage: bool) -> None:
        super().__init__(send)
        self._head = {**_head(request, model), "object": "chat.completion.chunk"}
        self._usage = include_usage
        self._shown = ""
        # Of the frames only the text differs: what stands around it is made once. The choice is first: its text is the first empty one.
        self._before, self._after = self._frame({"content": ""}, None).split(b'""', 1)

    async def begin(self) -> None:
        """Send the response head, and the role."""
        await self.open()
        await self._chunk({"role": "assistant", "content": "", "refusal": None})

    async def show(self, text: str) -> None:
        """Send the added text."""
        more = grown(self._shown, text)
        self._shown = text
        if more:
            await self.emit(self._before + encode(more) + self._after)

    async def end(self, _request: RequestRow, answer: FinishedAnswer) -> None:
        """Send the rest of the answer, its calls, and the finish reason."""
        if answer.text:
            await self.show(answer.text)
        for place, call in enumerate(answer.calls):
            await self._chunk({"tool_calls": [{"index": place, **_tool_call(call)}]})
        await self._chunk({}, answer.finish)
        if self._usage:
            await self.emit(_data({**self._head, "choices": [], "usage": usage_json(answer.usage)}))
        await self.emit(DONE)
        await self.close()

    async def _chunk(self, delta: Json, finish: str | None = None) -> None:
        await self.emit(self._frame(delta, finish))

    def _frame(self, delta: Json, finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({"choices": [choice], **self._head, **({"usage": None} if self._usage else {})})


def _data(value: Json) -> bytes:
    """One event."""
    return b"data: " + encode(value) + b"\n\n"


def _head(request: RequestRow, model: str) -> Json:
    return {"id": f"chatcmpl-{request.id}", "created": int(request.at), "model": model, "system_fingerprint": None}


def _tool_call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage_json(usage: Usage) -> Json:
    """Return the usage of the turn, summed over its model calls."""
    return {
        "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }  # fmt: skip


def response(request: RequestRow, found: Verdict) -> Json:
    """Return a `response`."""
    return {
        **_plain(request), "status": status_of(found), "output": _output(request, found),
        "error": {"code": "server_error", "message": found.message} if status_of(found) == "failed" else None,  # type: ignore[union-attr]
        "incomplete_details": {"reason": "max_output_tokens"} if status_of(found) == "incomplete" else None,
        "usage": _usage(found.usage) if isinstance(found, FinishedAnswer) else None,
    }  # fmt: skip


def status_of(found: Verdict) -> str:
    """Return the status of a response."""
    if isinstance(found, FinishedAnswer):
        return _STATUS.get(found.finish, "completed")
    if isinstance(found, Pending):
        return "in_progress" if found.running else "queued"
    return "failed" if found.final else "in_progress"


def _plain(request: RequestRow) -> Json:
    extras = request.extras
    tools = [
        {"type": "function", "name": each.name, "description": each.description, "parameters": each.parameters, "strict": False}
        for each in extras.tools
    ]  # fmt: skip
    return {
        "id": f"resp_{request.id}", "object": "response", "created_at": int(request.at), "background": False,
        "model": agent_of(request.key), "instructions": extras.instructions or None, "tools": tools,
        "metadata": extras.about.get("metadata", {}), "previous_response_id": extras.about.get("previous"),
        "store": extras.about.get("store", True), "parallel_tool_calls": True, "tool_choice": "auto",
        "max_output_tokens": None, "temperature": None, "top_p": None, "truncation": "disabled", "user": None,
        "reasoning": {"effort": None, "summary": None}, "text": {"format": {"type": "text"}},
    }  # fmt: skip


def _output(request: RequestRow, found: Verdict) -> list[Json]:
    if not isinstance(found, FinishedAnswer):
        return []
    text = [_message(request, found.text, status_of(found))] if found.text else []
    return [*text, *(_function_call(call, "completed") for call in found.calls)]


def _message(request: RequestRow, text: str | None, status: str) -> Json:
    content = [] if text is None else [_part(text)]
    return {"id": f"msg_{request.id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function_call(call: ToolCall, status: str) -> Json:
    arguments = call.arguments if status == "completed" else ""
    return {
        "id": f"fc_{call.id}", "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments,
        "status": status,
    }  # fmt: skip


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens, "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }  # fmt: skip


class ResponseStream(Stream):
    """Streams numbered events. The message starts with its first text: an answer may consist of calls alone."""

    def __init__(self, send: Send, request: RequestRow) -> None:
        super().__init__(send)
        self._request = request
        self._item = f"msg_{request.id}"
        self._number = 0
        self._shown: str | None = None

    async def begin(self) -> None:
        """Send response.created and response.in_progress."""
        await self.open()
        now = response(self._request, Pending(running=True))
        await self._event("response.created", response=now)
        await self._event("response.in_progress", response=now)

    async def show(self, text: str) -> None:
        """Send the added text."""
        if self._shown is None:
            await self._open_message()
        more = grown(self._shown or "", text)
        self._shown = text
        if more:
            await self._text("response.output_text.delta", delta=more, logprobs=[])

    async def end(self, request: RequestRow, answer: FinishedAnswer) -> None:
        """Send the rest of the answer, its calls, and the whole response."""
        if answer.text:
            await self.show(answer.text)
        if self._shown is not None:
            await self._close_message(answer)
        for place, call in enumerate(answer.calls, self._shown is not None):
            await self._tool_call(place, call)
        whole = response(request, answer)
        await self._event(f"response.{whole['status']}", response=whole)
        await self.close()

    async def failed(self, request: RequestRow, problem: CompletionError) -> None:
        """Send response.failed."""
        await self._event("response.failed", response=response(request, problem))
        await self.close()

    async def _open_message(self) -> None:
        item = _message(self._request, None, "in_progress")
        await self._event("response.output_item.added", output_index=0, item=item)
        await self._text("response.content_part.added", part=_part(""))

    async def _close_message(self, answer: FinishedAnswer) -> None:
        text = answer.text or self._shown or ""
        item = _message(self._request, text, status_of(answer))
        await self._text("response.output_text.done", text=text, logprobs=[])
        await self._text("response.content_part.done", part=_part(text))
        await self._event("response.output_item.done", output_index=0, item=item)

    async def _tool_call(self, place: int, call: ToolCall) -> None:
        item, about = f"fc_{call.id}", {"output_index": place}
        await self._event("response.output_item.added", **about, item=_function_call(call, "in_progress"))
        await self._event("response.function_call_arguments.delta", **about, item_id=item, delta=call.arguments)
        await self._event(
            "response.function_call_arguments.done", **about, item_id=item, name=call.name, arguments=call.arguments
        )
        await self._event("response.output_item.done", **about, item=_function_call(call, "completed"))

    async def _text(self, kind: str, **data: object) -> None:
        await self._event(kind, item_id=self._item, output_index=0, content_index=0, **data)

    async def _event(self, kind: str, **data: object) -> None:
        body = encode({"type": kind, "sequence_number": self._number, **data})
        self._number += 1
        await self.emit(b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n")
