"""Pictures that people dropped into the conversation, for models that can see. The transcript has their address only; the bytes
are read from the home's folder for each request, so a request says the same as long as they are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_ai.messages import BinaryContent

from everturn.agent.folder import Folder
from everturn.agent.toolbox import ToolError
from everturn.decide.uploads import Upload, shown
from everturn.model import Message

MOST = 20  # in one request
LARGEST = 5 * 1024 * 1024  # what every provider takes
Pictures = Mapping[Upload, BinaryContent]
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


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
            continue  # gone, or too large: its address stands in the words
        kind = _kind(data)
        if kind is not None:
            found[each] = BinaryContent(data=data, media_type=kind)
    return found


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _KINDS if data.startswith(begin)), None)
