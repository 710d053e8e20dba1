"""Files that were dropped into a conversation, as its words name them (`/files/ID/NAME`), and which models can see one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

_ADDRESS = re.compile(r"/files/([A-Za-z0-9_-]{22})/([^\s/()<>\"'\]]{1,400})")
# The newest families of the large providers see; a model of another name is not given what it may refuse.
_SEEING = re.compile(
    r"^(?:openai(?:-responses|-chat)?:(?:gpt-4o|gpt-4\.1|gpt-4\.5|gpt-[5-9]|o[34]|chatgpt-4o)"
    r"|anthropic:claude-(?:3|[a-z]+-[4-9]|[a-z]+-\d\d)"
    r"|google[a-z-]*:(?:models/)?gemini-)"
)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file by what stands in a message."""

    id: str
    name: str

    @property
    def stored(self) -> str:
        """Its name in the folder of files."""
        return f"{self.id}.{self.name}"


def uploads_in(text: str) -> list[Upload]:
    """The files that some words name, each once, in order."""
    found = (Upload(match[1], unquote(match[2])) for match in _ADDRESS.finditer(text))
    return [each for each in dict.fromkeys(found) if "/" not in each.name and "\x00" not in each.name]


def upload_at(path: str) -> Upload | None:
    """The file whose address this is, and nothing else."""
    return next(iter(uploads_in(path)), None) if _ADDRESS.fullmatch(path) else None


def shown(texts: Sequence[str], most: int) -> frozenset[Upload]:
    """Which files of a conversation are shown: the newest."""
    every = dict.fromkeys(each for text in texts for each in uploads_in(text))
    return frozenset(list(every)[-most:])


def sees(model: str, setting: str) -> bool:
    """Whether a model is given pictures: as its owner says, or by its name."""
    return bool(_SEEING.match(model)) if setting == "auto" else setting == "yes"
