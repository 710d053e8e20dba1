"""Responses as their clients read them: whole, or as events in the documented order."""

from __future__ import annotations

from starlette.types import Send

from everturn.decide.client_answer import Answered, Pending, Problem, Verdict, grown
from everturn.decide.keys import agent_of
from everturn.model import Json, ToolCall, Usage
from everturn.store.operations.requests import Request
from everturn.web.answers import encode
from everturn.web.v1.sending import Stream

_STATUS = {"length": "incomplete"}


def response(request: Request, found: Verdict) -> Json:
    """A `response`."""
    return {
        **_plain(request), "status": status_of(found), "output": _output(request, found),
        "error": {"code": "server_error", "message": found.message} if status_of(found) == "failed" else None,  # type: ignore[union-attr]
        "incomplete_details": {"reason": "max_output_tokens"} if status_of(found) == "incomplete" else None,
        "usage": _usage(found.usage) if isinstance(found, Answered) else None,
    }  # fmt: skip


def status_of(found: Verdict) -> str:
    """How a response stands."""
    if isinstance(found, Answered):
        return _STATUS.get(found.finish, "completed")
    if isinstance(found, Pending):
        return "in_progress" if found.running else "queued"
    return "failed" if found.final else "in_progress"


def _plain(request: Request) -> Json:
    brought = request.brought
    tools = [
        {"type": "function", "name": each.name, "description": each.description, "parameters": each.parameters, "strict": False}
        for each in brought.tools
    ]  # fmt: skip
    return {
        "id": f"resp_{request.id}", "object": "response", "created_at": int(request.at), "background": False,
        "model": agent_of(request.key), "instructions": brought.instructions or None, "tools": tools,
        "metadata": brought.about.get("metadata", {}), "previous_response_id": brought.about.get("previous"),
        "store": brought.about.get("store", True), "parallel_tool_calls": True, "tool_choice": "auto",
        "max_output_tokens": None, "temperature": None, "top_p": None, "truncation": "disabled", "user": None,
        "reasoning": {"effort": None, "summary": None}, "text": {"format": {"type": "text"}},
    }  # fmt: skip


def _output(request: Request, found: Verdict) -> list[Json]:
    if not isinstance(found, Answered):
        return []
    words = [_message(request, found.text, status_of(found))] if found.text else []
    return [*words, *(_call(call, "completed") for call in found.calls)]


def _message(request: Request, text: str | None, status: str) -> Json:
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
    """Numbered events. The message is opened with its first words: an answer may be calls alone."""

    def __init__(self, send: Send, request: Request) -> None:
        super().__init__(send)
        self._request = request
        self._item = f"msg_{request.id}"
        self._number = 0
        self._shown: str | None = None

    async def begin(self) -> None:
        """It exists, and is worked on."""
        await self.open()
        now = response(self._request, Pending(running=True))
        await self._event("response.created", response=now)
        await self._event("response.in_progress", response=now)

    async def show(self, text: str) -> None:
        """What was added."""
        if self._shown is None:
            await self._open_message()
        more = grown(self._shown or "", text)
        self._shown = text
        if more:
            await self._text("response.output_text.delta", delta=more, logprobs=[])

    async def end(self, request: Request, answer: Answered) -> None:
        """What is left of the answer, its calls, and the whole."""
        if answer.text:
            await self.show(answer.text)
        if self._shown is not None:
            await self._close_message(answer)
        for place, call in enumerate(answer.calls, self._shown is not None):
            await self._tool_call(place, call)
        whole = response(request, answer)
        await self._event(f"response.{whole['status']}", response=whole)
        await self.close()

    async def failed(self, request: Request, problem: Problem) -> None:
        """There is no answer, and will be none."""
        await self._event("response.failed", response=response(request, problem))
        await self.close()

    async def _open_message(self) -> None:
        item = _message(self._request, None, "in_progress")
        await self._event("response.output_item.added", output_index=0, item=item)
        await self._text("response.content_part.added", part=_part(""))

    async def _close_message(self, answer: Answered) -> None:
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
