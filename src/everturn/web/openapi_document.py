"""Descriptions of endpoints, and the OpenAPI 3.1 document made from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from everturn import __version__

Schema = dict[str, Any]
Served = tuple[str, str]  # a method and a path
JSON = "application/json"
STREAM = "text/event-stream"
REF = "#/components/schemas/{name}"
_CONVERTER = re.compile(r"\{(\w+):\w+\}")


class Error(msgspec.Struct, frozen=True):
    """What is wrong, and what to do."""

    error: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path, the query or the headers."""

    name: str
    text: str
    schema: Schema
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """The description of a response: a shape, or bytes of some media type; neither: no body."""

    text: str
    shape: type | None = None
    media: str = JSON
    schema: Schema | None = None  # instead of a shape


@dataclass(frozen=True, slots=True)
class Body:
    """The description of a request body. `limits` are constraints, by field, that the shape's types cannot express."""

    shape: Any  # a type or a union; None: bytes
    limits: Mapping[str, Schema] = field(default_factory=dict)
    media: str = JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The description of one endpoint."""

    summary: str
    tag: str
    answers: Mapping[int, ResponseDoc]
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    everybody: bool = False  # needs no key
    errors: Any = Error


def plain(path: str) -> str:
    """Return a route's path in OpenAPI notation."""
    return _CONVERTER.sub(r"{\1}", path)


def document(served: Iterable[Served], described: Mapping[Served, Operation]) -> Schema:
    """Build the OpenAPI document of all served endpoints. One without a description is listed without details."""
    known = {each: described.get(each, _undescribed(each)) for each in served}
    shapes = _Shapes(shape for operation in known.values() for shape in _shapes(operation))
    paths: dict[str, Schema] = {}
    for (method, path), operation in known.items():
        paths.setdefault(path, {})[method.lower()] = _operation(operation, method, path, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Everturn",
            "version": __version__,
            "description": "A gateway between chat platforms and an AI agent that never loses a turn.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(shapes.components.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


class _Shapes:
    """JSON schemas of types, each once."""

    def __init__(self, shapes: Iterable[Any]) -> None:
        types = list(dict.fromkeys(shapes))
        schemas, self.components = msgspec.json.schema_components(types, ref_template=REF)
        self.refs: dict[Any, Schema] = dict(zip(types, schemas, strict=True))

    def limited(self, shape: Any, limits: Mapping[str, Schema]) -> Schema:
        """Return the schema of a shape with additional constraints."""
        whole = self.components[str(self.refs[shape]["$ref"]).rpartition("/")[2]]
        return {
            **whole,
            "properties": {name: {**each, **limits.get(name, {})} for name, each in whole["properties"].items()},
        }


def _undescribed(served: Served) -> Operation:
    return Operation(
        summary=" ".join(served), tag="other", answers={200: ResponseDoc("See the HTTP reference.", media="*/*")}
    )


def _shapes(operation: Operation) -> Iterable[Any]:
    given = operation.body.shape if operation.body else None
    return [
        each for each in (operation.errors, given, *(answer.shape for answer in operation.answers.values())) if each
    ]


def _operation(operation: Operation, method: str, path: str, shapes: _Shapes) -> Schema:
    told: Schema = {
        "operationId": "_".join([method.lower(), *re.findall(r"[A-Za-z0-9]+", path)]),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {str(status): _answer(each, shapes) for status, each in operation.answers.items()}
        | {"default": _answer(ResponseDoc("An error: what is wrong, and what to do.", operation.errors), shapes)},
    }
    if operation.parameters:
        told["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {operation.body.media: {"schema": _body(operation.body, shapes)}},
        }
    return told | ({"security": []} if operation.everybody else {})


def _parameter(each: Parameter) -> Schema:
    required = each.required or each.place == "path"
    return {"name": each.name, "in": each.place, "required": required, "description": each.text, "schema": each.schema}


def _answer(answer: ResponseDoc, shapes: _Shapes) -> Schema:
    told: Schema = {"description": answer.text}
    if answer.shape is not None:
        told["content"] = {answer.media: {"schema": shapes.refs[answer.shape]}}
    elif answer.schema is not None or answer.media != JSON:
        told["content"] = {answer.media: {"schema": answer.schema or {}}}
    return told


def _body(body: Body, shapes: _Shapes) -> Schema:
    if body.shape is None:
        return {}
    return shapes.limited(body.shape, body.limits) if body.limits else shapes.refs[body.shape]
