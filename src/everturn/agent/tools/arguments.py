"""A tool's parameters as one struct, from which the JSON schema for the model and the check of its arguments are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec

from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.model import Effect, Json


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one tool. They never decide for whom a tool acts: that comes from the turn."""


A = TypeVar("A", bound=Arguments)


def says(text: str) -> msgspec.Meta:
    """The description of a parameter, for the model."""
    return msgspec.Meta(description=text)


Text = Annotated[str, msgspec.Meta(min_length=1)]


def tool(
    arguments: type[A],
    run: Callable[[A, ToolPlace], Awaitable[str]],
    *,
    name: str,
    description: str,
    effect: Effect,
    ask: Callable[[A], str | None] | None = None,
) -> Tool:
    """Make a tool whose parameters are this struct."""

    async def checked(given: Json, place: ToolPlace) -> str:
        return await run(read(arguments, given), place)

    def asked(given: Json) -> str | None:
        return ask(read(arguments, given)) if ask else None

    return Tool(name=name, description=description, parameters=schema(arguments), run=checked, effect=effect, ask=asked)


def read(arguments: type[A], given: Json) -> A:
    """Read the model's arguments as the struct. Raises ToolError, which tells the model what is wrong."""
    try:
        return msgspec.convert(given, arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(f"the arguments do not match the schema: {error}") from None


def schema(arguments: type[Arguments]) -> Json:
    """The JSON schema of a struct as one object, without references."""
    _, parts = msgspec.json.schema_components([arguments])
    inner: Json = dict(parts[arguments.__name__])
    return {name: value for name, value in inner.items() if name not in {"title", "description"}}
