"""Pictures that people sent, for models that can see. The transcript has their address only; the bytes
are read from the home's folder for each request, so a request says the same as long as they are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from everturn.agent.folder import Folder
from everturn.agent.llm.rendering import Picture
from everturn.agent.toolbox import ToolError
from everturn.home.rules import HEAD_BYTES, Upload, shown, sniffed
from everturn.model import Message

MOST = 20  # in one request
LARGEST = 5 * 1024 * 1024  # what every provider takes
Pictures = Mapping[Upload, Picture]


async def pictures_of(rows: Sequence[Message], folder: Path | None) -> Pictures:
    """The newest pictures that the rows name and that are there."""
    named = shown([row.content for row in rows if row.role == "user"], MOST)
    if folder is None or not named:
        return {}
    return await asyncio.to_thread(_read, folder, named)


def _read(folder: Path, named: frozenset[Upload]) -> Pictures:
    found = {}
    for each in named:
        try:
            data = Folder(folder).read(each.stored, LARGEST)
        except ToolError:
            continue  # gone, or too large: its address is in the text
        kind = sniffed(data[:HEAD_BYTES])
        if kind.startswith("image/"):
            found[each] = Picture(data, kind)
    return found
