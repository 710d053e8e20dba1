"""The tool `read_output`: results in the transcript are shortened, the whole output is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.agent.tools.arguments import Arguments, Text, says, tool
from everturn.model import Effect
from everturn.store.interface import Store
from everturn.turns.rows.turns import read_page
from everturn.turns.rules.turns import parse_output_id


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
