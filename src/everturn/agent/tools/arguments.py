"""A tool's parameters as one struct: the schema the model is told, and the check of what it sends, are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec

from everturn.agent.toolbox import Place, Tool, ToolError
from everturn.model import Effect, Json


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one tool. What a tool may do never depends on who they say they are: that is in the turn."""


A = TypeVar("A", bound=Arguments)


def says(text: str) -> msgspec.Meta:
    """What a parameter means, for the model."""
    return msgspec.Meta(description=text)


Text = Annotated[str, msgspec.Meta(min_length=1)]


def tool(
    arguments: type[A],
    run: Callable[[A, Place], Awaitable[str]],
    *,
    name: str,
    description: str,
    effect: Effect,
    ask: Callable[[A], str | None] | None = None,
) -> Tool:
    """A tool whose parameters are this struct."""

    async def checked(given: Json, place: Place) -> str:
        return await run(read(arguments, given), place)

    def asked(given: Json) -> str | None:
        return ask(read(arguments, given)) if ask else None

    return Tool(name=name, description=description, parameters=schema(arguments), run=checked, effect=effect, ask=asked)


def read(arguments: type[A], given: Json) -> A:
    """What the model sent, as the struct; it is told what is wrong with it."""
    try:
        return msgspec.convert(given, arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(f"the arguments do not fit: {error}") from None


def schema(arguments: type[Arguments]) -> Json:
    """The JSON schema of an object, without references."""
    _, parts = msgspec.json.schema_components([arguments])
    inner: Json = dict(parts[arguments.__name__])
    return {name: value for name, value in inner.items() if name not in {"title", "description"}}
