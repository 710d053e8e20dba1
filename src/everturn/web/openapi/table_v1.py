"""The description of the OpenAI API. Its own documents say more; here is what a program may find at this gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from everturn.web.openapi.describing import Answer, Body, Operation, Parameter, Schema, Served

TAG = "openai"
HEADER: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
SESSION = Parameter("X-Everturn-Session", "The conversation is ours and durable under this name.", HEADER, "header")
REPEAT = Parameter("Idempotency-Key", "The same request again with this key has the same answer.", HEADER, "header")


class Wrong(msgspec.Struct, frozen=True):
    """What is wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """An error in the shape of the OpenAI API."""

    error: Wrong


class Model(msgspec.Struct, frozen=True):
    """An agent of this gateway."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(msgspec.Struct, frozen=True):
    """The agents."""

    object: Literal["list"]
    data: list[Model]


class Asked(msgspec.Struct, frozen=True):
    """What every request has; the rest is as the OpenAI API has it."""

    model: str
    stream: bool = False


class Chat(Asked, frozen=True, kw_only=True):
    """A request for a completion."""

    messages: list[dict[str, Any]]


class Input(Asked, frozen=True, kw_only=True):
    """A request for a response."""

    input: str | list[dict[str, Any]]


class Completion(msgspec.Struct, frozen=True):
    """A completion."""

    id: str
    object: Literal["chat.completion"]
    choices: list[dict[str, Any]]


class Response(msgspec.Struct, frozen=True):
    """A response."""

    id: str
    object: Literal["response"]
    status: str
    output: list[dict[str, Any]]


def _ask(summary: str, body: type, answer: type) -> Operation:
    return Operation(
        summary=summary, tag=TAG, parameters=(SESSION, REPEAT), body=Body(body), errors=Problem,
        answers={200: Answer("The answer; with `stream` as server-sent events.", answer)},
    )  # fmt: skip


def _look(summary: str, shape: type, *parameters: Parameter) -> Operation:
    answers = {200: Answer(shape.__doc__ or "", shape)}
    return Operation(summary=summary, tag=TAG, parameters=parameters, answers=answers, errors=Problem)


_NAME = Parameter("model", "The agent.", {"type": "string", "minLength": 1}, "path")
_ID = Parameter("response_id", "The response.", {"type": "string", "minLength": 1}, "path")
V1: Mapping[Served, Operation] = {
    ("POST", "/v1/chat/completions"): _ask("Talk to an agent.", Chat, Completion),
    ("POST", "/v1/responses"): _ask("Talk to an agent.", Input, Response),
    ("GET", "/v1/responses/{response_id}"): _look("A response that was stored.", Response, _ID),
    ("GET", "/v1/models"): _look("The agents.", Models),
    ("GET", "/v1/models/{model}"): _look("One agent.", Model, _NAME),
}
