"""What one attempt of a turn knows about itself while it runs. Nothing here is the only copy of anything."""

from __future__ import annotations

from collections.abc import Callable

from everturn.decide.recovery import is_suspect
from everturn.gateway.parts import Parts
from everturn.store.operations.turn_values import Begun


class Attempt:
    """The turn as it was begun, the place of its next transcript row, and what was already said for it."""

    def __init__(self, parts: Parts, begun: Begun, spoke: Callable[[str], None] = lambda _key: None) -> None:
        self.parts = parts
        self.begun = begun
        self.spoke = spoke  # something is owed to the people of this key: deliver it
        self.suspect = is_suspect(begun.unclean_ends, parts.settings.stuck_after)
        self.called = False  # a model was called: an end is an interruption
        self.seq = begun.seq
        self._acknowledge = begun.note.tail_key if begun.note else None

    def next_seq(self) -> int:
        """The place of the next transcript row; the fence makes us its only writer."""
        self.seq += 1
        return self.seq

    def acknowledge(self) -> str | None:
        """The tail that the model has now answered for, once."""
        tail, self._acknowledge = self._acknowledge, None
        return tail
