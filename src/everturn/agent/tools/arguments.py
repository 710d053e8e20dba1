"""What tools share: their arguments, time limits, and the tool `read_output` for outputs that the transcript shortens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.clock import Clock
from everturn.model import Effect, Json
from everturn.store.interface import Store
from everturn.turns.rows.turns import read_page
from everturn.turns.rules.turns import parse_output_id

Text = Annotated[str, msgspec.Meta(min_length=1)]
T = TypeVar("T")
UNWIND_S = 5.0  # for cancelled work to end; what ignores the cancellation is left to itself


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one tool. They never decide for whom a tool acts: that comes from the turn."""


A = TypeVar("A", bound=Arguments)


def says(text: str) -> msgspec.Meta:
    """The description of a parameter, for the model."""
    return msgspec.Meta(description=text)


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


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await the work with a time limit on this clock; at the limit it is cancelled and TimeoutError raised."""
    limit = asyncio.ensure_future(clock.sleep(seconds))  # first: the time runs before the work does anything
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        limit.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """How much of an output is read at once; less than the transcript takes, so a page is never shortened again."""

    page_chars: int = 15_000


class ReadOutput(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of which output to read."""

    id: Annotated[Text, says("The id that the shortened result names.")]
    start: Annotated[int, says("The first character to read, from 0.")] = 0


def output_tools(settings: OutputSettings, store: Store) -> list[Tool]:
    """The tool `read_output`."""

    async def run(what: ReadOutput, place: ToolPlace) -> str:
        known, start, turn = parse_output_id(what.id), max(0, what.start), place.turn
        reading = (
            store.read(read_page, *known, turn.key, turn.session_id, start, settings.page_chars) if known else None
        )
        page = await reading if reading is not None else None
        if page is None:
            raise ToolError("there is no such output in this conversation, or it is no longer kept.")
        end = start + len(page.text)
        more = f"; go on from {end}" if end < page.length else ""
        return f"[characters {start} to {end} of {page.length}{more}]\n{page.text}"

    description = "Read a part of a tool's output that was too long for one result."
    return [tool(ReadOutput, run, name="read_output", description=description, effect=Effect.PURE)]
