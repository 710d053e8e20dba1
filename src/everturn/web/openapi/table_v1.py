"""Descriptions of the OpenAI API, as far as this gateway has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from everturn.web.openapi.describing import Body, Operation, Parameter, ResponseDoc, Schema, Served

TAG = "openai"
HEADER: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
SESSION = Parameter("X-Everturn-Session", "The gateway keeps the conversation under this name.", HEADER, "header")
REPEAT = Parameter("Idempotency-Key", "A repeated request with the same key gets the same answer.", HEADER, "header")


class ErrorDetail(msgspec.Struct, frozen=True):
    """What is wrong, and where."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in the OpenAI format."""

    error: ErrorDetail


class Model(msgspec.Struct, frozen=True):
    """An agent of this gateway."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(msgspec.Struct, frozen=True):
    """The agents of this gateway."""

    object: Literal["list"]
    data: list[Model]


class RequestBase(msgspec.Struct, frozen=True):
    """Fields of every request; the rest is as in the OpenAI API."""

    model: str
    stream: bool = False


class CompletionRequest(RequestBase, frozen=True, kw_only=True):
    """A request for a completion."""

    messages: list[dict[str, Any]]


class Input(RequestBase, frozen=True, kw_only=True):
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
        summary=summary, tag=TAG, parameters=(SESSION, REPEAT), body=Body(body), errors=ErrorBody,
        answers={200: ResponseDoc("The answer; with `stream` as server-sent events.", answer)},
    )  # fmt: skip


def _look(summary: str, shape: type, *parameters: Parameter) -> Operation:
    answers = {200: ResponseDoc(shape.__doc__ or "", shape)}
    return Operation(summary=summary, tag=TAG, parameters=parameters, answers=answers, errors=ErrorBody)


_NAME = Parameter("model", "The agent.", {"type": "string", "minLength": 1}, "path")
_ID = Parameter("response_id", "The response.", {"type": "string", "minLength": 1}, "path")
V1: Mapping[Served, Operation] = {
    ("POST", "/v1/chat/completions"): _ask("Talk to an agent.", CompletionRequest, Completion),
    ("POST", "/v1/responses"): _ask("Talk to an agent.", Input, Response),
    ("GET", "/v1/responses/{response_id}"): _look("A stored response.", Response, _ID),
    ("GET", "/v1/models"): _look("The agents.", ModelList),
    ("GET", "/v1/models/{model}"): _look("One agent.", Model, _NAME),
}
