"""Schemas of tools as OpenAI's API takes them, and whether it can enforce one exactly. Pure.

The form is the one that pydantic-ai gave them, key by key: a session that began with it must keep the prompt that its provider has
cached. An object says that it has no other properties unless it says that it may have; titles are dropped; what stands beside a
reference moves around it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from everturn.model import Json

Schema = dict[str, Any]
# OpenAI's "strict" mode does not know these.
_NOT_STRICT = {
    "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedItems",
    "contains", "minContains", "maxContains", "uniqueItems", "default", "oneOf",
}  # fmt: skip
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_LOOKAROUND = re.compile(r"(?:^|[^\\])(?:\\\\)*\(\?<?[=!]")
_TYPED = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/]+")
_DEEPEST, _MOST_PROPERTIES = 10, 5000


class ToolSchema:
    """One tool's parameters: `sent` is what goes out, `strict` whether the provider can enforce it."""

    def __init__(self, parameters: Json) -> None:
        self.strict = True
        given: Schema = copy.deepcopy(dict(parameters))
        definitions: Schema = given.pop("$defs", {})
        self._root = given.get("$ref")
        sent: Schema = self._walked(given)
        if definitions:
            sent["$defs"] = {name: self._walked(each) for name, each in definitions.items()}
        if older := sent.get("definitions"):
            sent["definitions"] = {name: self._walked(each) for name, each in older.items()}
        if isinstance(self._root, str):  # a schema that is one of its own definitions
            sent.pop("$ref", None)
            sent |= definitions.get(self._root.removeprefix("#/$defs/"), {})
        self.sent = sent
        self.strict = self.strict and not _too_large(sent)

    def _walked(self, schema: Any) -> Any:
        """A schema and all below it."""
        if not isinstance(schema, dict):
            return schema
        kind = schema.get("type")
        if kind == "object":
            self._walk_object(schema)
        elif kind == "array":
            self._walk_array(schema)
        for union in ("allOf", "anyOf", "oneOf"):
            if kind is None:
                schema = self._joined(schema, union)
            elif members := schema.get(union):
                schema[union] = [self._walked(member) for member in members]
        return self._cleaned(schema)

    def _walk_object(self, schema: Schema) -> None:
        for name in ("properties", "patternProperties"):
            if isinstance(named := schema.get(name), dict):
                schema[name] = {key: self._walked(value) for key, value in named.items()}
        if isinstance(others := schema.get("additionalProperties"), dict):
            schema["additionalProperties"] = self._walked(others)

    def _walk_array(self, schema: Schema) -> None:
        if first := schema.get("prefixItems"):
            schema["prefixItems"] = [self._walked(item) for item in first]
        items = schema.get("items")
        if isinstance(items, list):
            schema["items"] = [self._walked(item) for item in items]
        elif items:
            schema["items"] = self._walked(items)

    def _joined(self, schema: Schema, union: str) -> Schema:
        """A schema without a type: a union of one is that one."""
        if union not in schema:
            return schema
        members = [self._walked(member) for member in schema.pop(union)]
        if len(members) == 1 and isinstance(members[0], dict) and members[0].get("not") != {}:
            return members[0] | schema
        return schema | {union: members}

    def _cleaned(self, schema: Schema) -> Schema:
        for name in ("title", "$schema", "discriminator"):
            schema.pop(name, None)
        refers = schema.get("$ref")
        if refers:
            if refers == self._root:
                schema["$ref"] = "#"
            elif refers.startswith("#/") and not _DEFINITION.fullmatch(refers):
                self.strict = False
            if len(schema) > 1:
                inner = schema.pop("$ref")
                schema["anyOf"] = [{"$ref": inner}]
        self.strict = self.strict and _enforceable(schema)
        if schema.get("type") == "object":
            schema.setdefault("properties", {})
            if schema.get("additionalProperties") in (None, False):
                schema["additionalProperties"] = False
            else:
                self.strict = False
            required = schema.get("required")
            self.strict = self.strict and required is not None and all(key in required for key in schema["properties"])
        return schema


def _enforceable(schema: Schema) -> bool:
    """Whether strict mode knows all that this one schema says."""
    pattern, form = schema.get("pattern"), schema.get("format")
    if not _NOT_STRICT.isdisjoint(schema) or (form and form not in _FORMATS):
        return False
    if isinstance(pattern, str) and _LOOKAROUND.search(pattern):
        return False
    if schema.get("type") != "array":
        return True
    items = schema.get("items")
    return isinstance(items, dict) and not _TYPED.isdisjoint(items) and not schema.get("prefixItems")


def _too_large(sent: Schema) -> bool:
    """Whether a schema or one of its definitions is too deep or has too many properties for strict mode."""
    definitions = [each for group in ("$defs", "definitions") for each in (sent.get(group) or {}).values()]
    root = {name: value for name, value in sent.items() if name not in {"$defs", "definitions"}}
    for part in (root, *definitions):
        sizes = list(_objects(part, 1))
        if (
            max((depth for depth, _ in sizes), default=0) > _DEEPEST
            or sum(size for _, size in sizes) > _MOST_PROPERTIES
        ):
            return True
    return False


def _objects(schema: Any, depth: int) -> Iterator[tuple[int, int]]:
    """The depth and the number of properties of each object in a schema."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    below = [schema.get("items"), *schema.get("anyOf", [])]
    if isinstance(properties, dict):
        yield depth, len(properties)
        below += properties.values()
        depth += 1
    for each in below:
        yield from _objects(each, depth)
