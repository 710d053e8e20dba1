"""All tools together: each knows the turn it runs in, names are unique, schemas are as models accept them."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import OutputSettings, Tool, Toolbox, ToolPlace, output_tools, schema
from everturn.agent.tools.fetch import FetchSettings, fetch_tools
from everturn.agent.tools.files import FilesSettings, ListFiles, files_tools
from everturn.agent.tools.memory import MemorySettings, SearchSettings, memory_tools, search_tools
from everturn.agent.tools.send import SendSettings, send_tools
from everturn.agent.tools.shell import ShellSettings, shell_tools
from everturn.clock import SystemClock
from everturn.home.search_index import SearchIndex
from everturn.model import Effect, Json, SessionSource
from everturn.store.open import open_store
from tests.agent.tools.benches import Bench


async def nobody(turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
    raise AssertionError


async def all_tools(folder: Path) -> list[Tool]:
    """Every built-in tool."""
    clock, store = SystemClock(), await open_store(f"sqlite:///{folder / 'everturn.db'}")
    await store.close()
    return [
        *files_tools(FilesSettings(folder=folder)),
        *shell_tools(ShellSettings(folder=folder), {}, clock),
        *fetch_tools(FetchSettings(), clock),
        *memory_tools(MemorySettings(), store, clock),
        *search_tools(SearchSettings(), store, SearchIndex(folder / "search.db")),
        *send_tools(SendSettings(), nobody),
        *output_tools(OutputSettings(), store),
    ]


def tool_named(name: str, says: str) -> Tool:
    async def run(_given: Json, _place: ToolPlace) -> str:
        return says

    return Tool(name=name, description="", parameters={"type": "object"}, run=run, effect=Effect.PURE)


class Source:
    """Offers its tools, or does not know them yet."""

    def __init__(self, *tools: Tool, known: bool = True) -> None:
        self._tools = tools
        self._known = known

    def tools(self) -> Sequence[Tool] | None:
        """Its tools, if they are known."""
        return self._tools if self._known else None


def test_no_source_takes_anothers_name_or_makes_a_turn_wait() -> None:
    ours, other, fake = tool_named("read_file", "ours"), tool_named("b", "b"), tool_named("read_file", "fake")
    toolbox = Toolbox.of([Source(ours), Source(other, fake)])
    assert ([tool.run for tool in toolbox.all()], toolbox.complete) == ([ours.run, other.run], True)
    starting = Toolbox.of([Source(ours), Source(other, known=False)])
    assert ([tool.run for tool in starting.all()], starting.complete) == ([ours.run], False)


def walk(value: object, seen: Callable[[str, object], None]) -> None:
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        seen(name, inner)
        walk(inner, seen)


async def test_schemas_are_plain_objects_that_every_model_takes(tmp_path: Path) -> None:
    for tool in await all_tools(tmp_path):
        found: dict[str, Any] = {}
        walk(tool.parameters, found.__setitem__)
        assert tool.parameters["type"] == "object"
        assert tool.parameters["additionalProperties"] is False
        assert not {"$ref", "$defs", "anyOf"} & found.keys()
        assert re.fullmatch("[a-z_]{1,64}", tool.name)
        assert tool.description.endswith(".")


def test_a_parameter_is_described_by_its_field() -> None:
    (path,) = schema(ListFiles)["properties"].values()  # type: ignore[attr-defined]
    assert path["type"] == "string"
    assert path["description"].startswith("A folder below")


async def who(_given: Json, place: ToolPlace) -> str:
    """Says where it runs, after everybody else has had a chance to."""
    await asyncio.sleep(0)
    return f"{place.turn.source.user_id} in {place.turn.key}, {place.key}"


@pytest.mark.parametrize("people", [20])
async def test_each_call_knows_its_own_turn_whoever_else_is_at_work(store_url: str, people: int) -> None:
    """Behaviour 9: nothing is kept in globals or context variables that another's turn could see."""
    tool = Tool(name="who", description="", parameters={"type": "object"}, run=who, effect=Effect.PURE)
    async with Bench(store_url, lambda _: [tool]) as bench:
        uses = (bench.use_all(("who", {}), ("who", {}), chat=f"c{n}", user=f"u{n}") for n in range(people))
        results = await asyncio.gather(*uses)
    for n, pair in enumerate(results):
        assert [line.partition(",")[0] for line in pair] == [f"u{n} in agent:main:fake:dm:c{n}"] * 2
    assert len({line for pair in results for line in pair}) == 2 * people
