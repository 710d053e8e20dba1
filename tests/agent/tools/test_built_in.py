"""All tools together: off unless switched on, known by the turn they run in, and their schemas as models take them."""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import Place, Tool
from everturn.agent.tools.arguments import schema
from everturn.agent.tools.built_in import ToolParts, Tools, ToolSettings
from everturn.agent.tools.fetch import FetchSettings
from everturn.agent.tools.files import FilesSettings, ListFiles
from everturn.agent.tools.mcp import McpSettings
from everturn.agent.tools.memory import MemorySettings
from everturn.agent.tools.search import SearchSettings
from everturn.agent.tools.send import SendSettings
from everturn.agent.tools.shell import ShellSettings
from everturn.clock import SystemClock
from everturn.model import Effect, Json, SessionSource
from everturn.store.open import open_store
from tests.agent.tools.benches import Bench

NAMES = [
    "list_files",
    "read_file",
    "search_files",
    "write_file",
    "edit_file",
    "run_command",
    "fetch_page",
    "remember",
    "recall",
    "forget",
    "search_conversations",
    "send_message",
    "read_output",
]


async def nobody(turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
    raise AssertionError


async def offered(folder: Path, settings: ToolSettings) -> list[Tool]:
    """The tools of a gateway with these settings."""
    store = await open_store(f"sqlite:///{folder / 'everturn.db'}")
    parts = ToolParts(store=store, clock=SystemClock(), environ={}, search_file=folder / "search.db", sender=nobody)
    tools = Tools(settings, parts)
    try:
        return list(await tools.tools())
    finally:
        await tools.close()
        await store.close()


def everything(folder: Path) -> ToolSettings:
    return ToolSettings(
        files=FilesSettings(folder=folder),
        shell=ShellSettings(folder=folder),
        fetch=FetchSettings(),
        memory=MemorySettings(),
        search=SearchSettings(),
        send=SendSettings(),
    )


async def test_nothing_is_on_by_itself(tmp_path: Path) -> None:
    assert await offered(tmp_path, ToolSettings()) == []
    assert not (tmp_path / "search.db").exists()


async def test_what_is_switched_on_is_offered_in_the_same_order_always(tmp_path: Path) -> None:
    assert [tool.name for tool in await offered(tmp_path, everything(tmp_path))] == NAMES


async def test_a_dead_server_takes_nothing_away(tmp_path: Path) -> None:
    dead = tuple(McpSettings(name=f"dead{n}", command=("/bin/sh", "-c", "exit 1"), folder=tmp_path) for n in range(3))
    settings = ToolSettings(memory=MemorySettings(), mcp=dead)
    names = [tool.name for tool in await offered(tmp_path, settings)]
    assert names == ["remember", "recall", "forget", "read_output"]


def walk(value: object, seen: Callable[[str, object], None]) -> None:
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        seen(name, inner)
        walk(inner, seen)


async def test_schemas_are_plain_objects_that_every_model_takes(tmp_path: Path) -> None:
    for tool in await offered(tmp_path, everything(tmp_path)):
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


async def who(_given: Json, place: Place) -> str:
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
