"""Chat completions in the OpenAI format: whole, or as a stream of chunks."""

from __future__ import annotations

from starlette.types import Send

from everturn.model import Json, ToolCall, Usage
from everturn.web.v1.rows.requests import RequestRow
from everturn.web.v1.rules.answers import FinishedAnswer, grown
from everturn.web.v1.sending import Stream
from everturn.web.wire.answers import encode

DONE = b"data: [DONE]\n\n"


def completion(request: RequestRow, answer: FinishedAnswer, model: str) -> Json:
    """Return a `chat.completion`."""
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
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

    async def begin(self) -> None:
        """Send the response head, and the role."""
        await self.open()
        await self._chunk({"role": "assistant", "content": "", "refusal": None})

    async def show(self, text: str) -> None:
        """Send the added text."""
        more = grown(self._shown, text)
        self._shown = text
        if more:
            await self._chunk({"content": more})

    async def end(self, _request: RequestRow, answer: FinishedAnswer) -> None:
        """Send the rest of the answer, its calls, and the finish reason."""
        if answer.text:
            await self.show(answer.text)
        for place, call in enumerate(answer.calls):
            await self._chunk({"tool_calls": [{"index": place, **_call(call)}]})
        await self._chunk({}, answer.finish)
        if self._usage:
            await self.data({**self._head, "choices": [], "usage": usage_json(answer.usage)})
        await self.emit(DONE)
        await self.close()

    async def _chunk(self, delta: Json, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        await self.data({**self._head, "choices": [choice], **({"usage": None} if self._usage else {})})

    async def data(self, value: Json) -> None:
        """Send one event."""
        await self.emit(b"data: " + encode(value) + b"\n\n")


def _head(request: RequestRow, model: str) -> Json:
    return {"id": f"chatcmpl-{request.id}", "created": int(request.at), "model": model, "system_fingerprint": None}


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage_json(usage: Usage) -> Json:
    """Return the usage of the turn, summed over its model calls."""
    return {
        "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }  # fmt: skip
