"""Tools as an agent uses them: what each declares, its arguments, time limits, and how a call runs without breaking its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import structlog

from everturn.agent.interface import RunTool, TurnContext
from everturn.clock import Clock
from everturn.errors import StoreError, ToolFailed
from everturn.model import Effect, Json, ToolCall
from everturn.store.interface import Store
from everturn.turns.rows.turns import read_page
from everturn.turns.rules.approvals import stricter
from everturn.turns.rules.turns import parse_output_id, place_of_turn

log = structlog.get_logger()
Text = Annotated[str, msgspec.Meta(min_length=1)]
T = TypeVar("T")
UNWIND_S = 5.0  # for cancelled work to end; what ignores the cancellation is left to itself


@dataclass(frozen=True, slots=True)
class ToolPlace:
    """The context of a tool call: its turn, the call, and a key that is the same for every repetition of the call."""

    turn: TurnContext
    call: ToolCall
    key: str

    def turn_info(self) -> dict[str, str]:
        """The sender, chat, session and turn for programs; made from this turn now, never from shared state."""
        turn = self.turn
        return place_of_turn(turn.source, turn.key, turn.session_id, turn.id)


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file that a tool has read."""

    name: str
    content: bytes


Run = Callable[[Json, ToolPlace], Awaitable[str]]
Ask = Callable[[Json], str | None]


def no_approval(_arguments: Json) -> str | None:
    """Request no approval: the tool may be used without."""
    return None


class ToolError(Exception):
    """A tool could not do what it was asked; the text is for the model, and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: what the model reads about it, its effect, its approval request (None: no approval), and its code."""

    name: str
    description: str
    parameters: Json  # a JSON schema of an object
    run: Run
    effect: Effect = Effect.ONCE
    ask: Ask = no_approval


class ToolSource(Protocol):
    """Something that offers tools: the built-in ones, or an MCP server. It neither waits nor raises."""

    def tools(self) -> Sequence[Tool] | None:
        """The tools that it offers now; None as long as they are not known."""
        ...


class Toolbox:
    """The tools of one turn, by name."""

    def __init__(self, tools: Iterable[Tool], *, complete: bool = True) -> None:
        self.complete = complete  # every source has reported its tools
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools.setdefault(tool.name, tool)  # no later one takes the name of an earlier one

    @classmethod
    def of(cls, sources: Iterable[ToolSource]) -> Toolbox:
        """Collect the tools of all sources, as far as they are known now."""
        offered = [source.tools() for source in sources]
        return cls((tool for tools in offered for tool in tools or ()), complete=None not in offered)

    def all(self) -> list[Tool]:
        """All tools, in the order in which they were offered."""
        return list(self._tools.values())

    def call(self, call_id: str, name: str, arguments: str) -> ToolCall:
        """A call that the model made, with its tool's effect and approval request. A missing tool cannot run in this attempt;
        `judge` decides again in a later one.
        """
        tool = self._tools.get(name)
        if tool is None:
            return ToolCall(call_id, name, arguments, Effect.PURE)
        try:
            ask = tool.ask(_arguments(arguments))
        except ToolError:
            ask = None  # it will not run: the model gets the error in its arguments as the result
        return ToolCall(call_id, name, arguments, tool.effect, ask)

    def judge(self, call: ToolCall) -> ToolCall:
        """A call of an earlier attempt, under the stricter of the rules it was journaled with and those of its tool now."""
        return stricter(call, self.call(call.id, call.name, call.arguments))

    def runner(self, turn: TurnContext) -> RunTool:
        """A function that runs calls in a turn; every failure becomes a result that the model can read."""

        async def run(call: ToolCall, key: str) -> str:
            tool = self._tools.get(call.name)
            if tool is None:
                raise ToolFailed(f"Error: there is no tool named {call.name!r} now.")
            try:
                return await tool.run(_arguments(call.arguments), ToolPlace(turn, call, key))
            except ToolError as error:
                raise ToolFailed(f"Error: {error}") from error
            except (StoreError, ToolFailed):
                raise
            except Exception as error:  # a tool that breaks must not end its turn
                log.warning("tool failed", tool=call.name, turn_id=turn.id, error=repr(error))
                raise ToolFailed(f"Error: the tool failed ({type(error).__name__}).") from error

        return run


def _arguments(text: str) -> Json:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ToolError(f"the arguments are not a JSON object: {error}") from None


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
