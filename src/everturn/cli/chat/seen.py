"""Stores how far a chat was read from this home: the id of the last event, in an owner-only file."""

from __future__ import annotations

import os
from urllib.parse import quote

from everturn.home.folder import Home


class ReadPosition:
    """The last event of a chat that was shown; 0 when there was none."""

    def __init__(self, home: Home, chat: str) -> None:
        self._file = home.path / f"chat-{quote(chat, safe='')}.last"
        self.last = self._read()

    def _read(self) -> int:
        try:
            return max(0, int(self._file.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return 0

    def move(self, number: int) -> None:
        """Save the last event shown. If the disk refuses, events are shown again after the next start."""
        self.last = number
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
                stream.write(f"{number}\n")
            draft.replace(self._file)
        except OSError:
            draft.unlink(missing_ok=True)
