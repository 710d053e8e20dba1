"""Responses in the OpenAI format: whole, or as events in the documented order."""

from __future__ import annotations

from starlette.types import Send

from everturn.model import Json, ToolCall, Usage
from everturn.sessions.rules.keys import agent_of
from everturn.web.v1.rows.requests import RequestRow
from everturn.web.v1.rules.answers import CompletionError, FinishedAnswer, Pending, Verdict, grown
from everturn.web.v1.sending import Stream
from everturn.web.wire.answers import encode

_STATUS = {"length": "incomplete"}


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
    return [*text, *(_call(call, "completed") for call in found.calls)]


def _message(request: RequestRow, text: str | None, status: str) -> Json:
    content = [] if text is None else [_part(text)]
    return {"id": f"msg_{request.id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: ToolCall, status: str) -> Json:
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
        await self._event("response.output_item.added", **about, item=_call(call, "in_progress"))
        await self._event("response.function_call_arguments.delta", **about, item_id=item, delta=call.arguments)
        await self._event(
            "response.function_call_arguments.done", **about, item_id=item, name=call.name, arguments=call.arguments
        )
        await self._event("response.output_item.done", **about, item=_call(call, "completed"))

    async def _text(self, kind: str, **data: object) -> None:
        await self._event(kind, item_id=self._item, output_index=0, content_index=0, **data)

    async def _event(self, kind: str, **data: object) -> None:
        body = encode({"type": kind, "sequence_number": self._number, **data})
        self._number += 1
        await self.emit(b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n")
