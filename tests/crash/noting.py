"""Platforms that log the errors of their calls to a file, which outlives the process."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everturn import points
from everturn.errors import PlatformError, Refused
from everturn.model import SessionSource
from everturn.testing import CardPlatform, DeletingPlatform, EditingPlatform, FakePlatform

CALLED = "platform.called"  # a crash point of the platform: it did what it was asked to, or not, and its caller does not know
SEND = "send"


@dataclass(frozen=True)
class Met:
    """An error, and the call that met it; `part` is the id of what was to be changed, or the key of what was to be sent."""

    error: str
    call: str
    part: str


class Noting(FakePlatform):
    """Writes down each error that it raises."""

    def __init__(self, *, notes: Path, **given: Any) -> None:
        super().__init__(**given)
        self._notes = notes
        lines = notes.read_text().splitlines() if notes.exists() else []
        self.met = [Met(**json.loads(line)) for line in lines]

    @property
    def refusals(self) -> Counter[str]:
        """How often a change of each part was refused."""
        return Counter(each.part for each in self.met if each.error == Refused.__name__ and each.call != SEND)

    @property
    def refuses(self) -> bool:
        """Whether anything was refused."""
        return any(each.error == Refused.__name__ for each in self.met)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Put a part on the screen."""
        with self.noted(SEND, key):
            return await super().send(to, text, key)

    @contextmanager
    def noted(self, call: str, part: str) -> Iterator[None]:
        """A call, and what it meets."""
        try:
            yield
        except PlatformError as error:
            self._note(Met(type(error).__name__, call, part))
            raise
        finally:
            points.reached(CALLED)

    def _note(self, met: Met) -> None:
        self.met.append(met)
        number = os.open(self._notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, (json.dumps(asdict(met)) + "\n").encode())
        os.close(number)
        self._notify()


class NotingEdits(Noting, EditingPlatform):
    """Messages that are edited."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace a message on the screen."""
        with self.noted("edit", message_id):
            await super().edit(to, message_id, text)


class NotingDeletions(NotingEdits, DeletingPlatform):
    """Messages that are edited and taken away."""

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Take a message away."""
        with self.noted("delete", message_id):
            await super().delete(to, message_id)


class NotingCards(Noting, CardPlatform):
    """Cards; opening one is sending it."""

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace what an open card shows."""
        with self.noted("update", card_id):
            await super().update(to, card_id, text)

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """End a card."""
        with self.noted("close", card_id):
            await super().close(to, card_id, text)
