"""Schemas of tools go out as pydantic-ai made them, and are enforced exactly where it had them enforced."""

import json
from typing import Any

import pytest
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from everturn.agent.llm.chat.requests import ChatOptions, chat_body
from everturn.agent.llm.chat.schemas import ToolSchema
from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.replies import ModelInput

STRING, OBJECT = {"type": "string"}, {"type": "object"}


def of(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


DEEP: dict[str, Any] = STRING
for _ in range(11):
    DEEP = of(inner=DEEP)
SCHEMAS: dict[str, dict[str, Any]] = {
    "nothing": OBJECT,
    "empty": of(),
    "plain": of(a=STRING, b={"type": "integer", "title": "B"}),
    "named title": of(title=STRING, default=STRING),
    "not required": of([], a=STRING),
    "no list of required": {"type": "object", "properties": {"a": STRING}},
    "default": of(a={"type": "string", "default": "x"}),
    "limits": of(a={"type": "string", "minLength": 1, "maxLength": 5}, b={"type": "integer", "minimum": 0}),
    "formats": of(a={"type": "string", "format": "date-time"}, b={"type": "string", "format": "uri"}),
    "known format": of(a={"type": "string", "format": "uuid"}),
    "look behind": of(a={"type": "string", "pattern": "(?<=a)b"}),
    "look ahead, escaped": of(a={"type": "string", "pattern": "\\(?=b"}),
    "look ahead behind a backslash": of(a={"type": "string", "pattern": "\\\\(?=b)"}),
    "list": of(a={"type": "array", "items": STRING}),
    "list of anything": of(a={"type": "array", "items": {}}),
    "list of described things": of(a={"type": "array", "items": {"description": "x"}}),
    "list of nothing said": of(a={"type": "array"}),
    "old tuple": of(a={"type": "array", "items": [STRING, {"type": "object", "title": "T"}]}),
    "tuple": of(a={"type": "array", "prefixItems": [STRING, STRING]}),
    "unique": of(a={"type": "array", "items": STRING, "uniqueItems": True}),
    "nullable": of(a={"anyOf": [STRING, {"type": "null"}], "title": "A"}),
    "one of": of(a={"oneOf": [STRING, {"type": "integer"}], "description": "x"}),
    "all of one": of(a={"allOf": [{"type": "string", "title": "X"}], "description": "x"}),
    "all of one false": of(a={"allOf": [False]}),
    "typed union": of(a={"type": ["object", "null"], "anyOf": [{"type": "object"}, {"type": "null", "title": "n"}]}),
    "open": of(a={"type": "object", "additionalProperties": True}),
    "closed": {**of(a=STRING), "additionalProperties": False},
    "map": of(a={"type": "object", "additionalProperties": {"type": "object", "title": "x"}}),
    "patterns": of(a={"type": "object", "patternProperties": {"^x": {"type": "object"}}}),
    "enum": of(a={"enum": ["a", "b"]}, b={"const": 5}),
    "boolean": of(a=True),
    "definition": {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "object", "title": "A", "properties": {"x": STRING}}}},
    "definition with a description": {**of(a={"$ref": "#/$defs/A", "description": "d"}), "$defs": {"A": of(x=STRING)}},
    "old definition": {**of(a={"$ref": "#/definitions/A"}), "definitions": {"A": {"type": "object", "title": "A"}}},
    "pointer": of(a=STRING, b={"$ref": "#/properties/a"}),
    "recursive": {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(next={"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]})}},
    "of a library": {"$schema": "http://json-schema.org/draft-07/schema#", "title": "T", **of(a=STRING)},
    "discriminated": of(a={"anyOf": [of(k={"const": 1}), of(k={"const": 2})], "discriminator": {"propertyName": "k"}}),
    "deep": DEEP,
}  # fmt: skip


def made_by_the_library(schema: dict[str, Any]) -> tuple[Any, bool]:
    profile: ModelProfile | None = OpenAIProvider.model_profile("gpt-4o")
    assert profile is not None
    transformer = profile["json_schema_transformer"]
    assert transformer is not None
    made = transformer(schema, strict=None)
    return made.walk(), made.is_strict_compatible


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_goes_out_as_it_did(name: str) -> None:
    schema = ToolSchema(SCHEMAS[name])
    sent, strict = made_by_the_library(SCHEMAS[name])
    assert list(schema.sent.items()) == list(sent.items())
    assert repr(schema.sent) == repr(sent)  # the order of keys, too
    assert schema.strict is strict


def test_what_was_given_stays_as_it_is() -> None:
    given = of(a={"type": "object", "title": "A"})
    ToolSchema(given)
    assert given == of(a={"type": "object", "title": "A"})


ODD: list[Any] = [
    {"$ref": 5},
    {"required": 5, "type": "object"},
    {"anyOf": None},
    {"$defs": []},
    {"prefixItems": True, "type": "array"},
]


@pytest.mark.parametrize("parameters", ODD)
def test_what_is_no_schema_goes_out_all_the_same(parameters: dict[str, Any]) -> None:
    """A program's tools are its own: what is wrong with one its provider says, and no turn fails in our code."""
    asked = ModelInput((), (FrozenTool("look", "", parameters),), "s", b"[]")
    body = json.loads(chat_body(asked, ChatOptions("model", own_server=True)))
    assert body["tools"][0]["function"]["name"] == "look"
