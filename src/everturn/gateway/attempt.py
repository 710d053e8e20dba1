"""What one attempt of a turn knows about itself while it runs. Nothing here is the only copy of anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from everturn.decide.patience import Told
from everturn.decide.recovery import is_suspect
from everturn.decide.text import storable
from everturn.gateway.bubbles import Live
from everturn.gateway.parts import Parts
from everturn.model import Message, Settled, ToolCall
from everturn.store.operations.beginning import with_settled
from everturn.store.operations.joining import Joined
from everturn.store.operations.turn_values import Begun, Streamed


class Attempt:
    """The turn as it was begun, the place of its next transcript row, and what was already said for it."""

    def __init__(self, parts: Parts, begun: Begun, spoke: Callable[[str], None] = lambda _key: None) -> None:
        self.parts = parts
        self.begun = begun
        self.spoke = spoke  # something is owed to the people of this key: deliver it
        self.suspect = is_suspect(begun.unclean_ends, parts.settings.stuck_after)
        self.called = begun.called  # an end is an interruption: a model was called, or the agent is not ours
        self.marked = begun.called  # and that is stored
        self.seq = begun.seq
        self.waiting = begun.waiting  # messages and commands behind it, as the last commit saw
        self.called_on = False  # somebody wrote since it last looked
        self.unheard: list[Message] = []  # what joined the turn and was not handed to its agent yet
        self.began = self.active_at = parts.clock.monotonic()
        self.asked_at: float | None = None  # when a model was asked that has not answered yet
        self.outcome: str | None = None  # what became of it, once that is committed
        self.tool: str | None = None  # the one that runs now
        self.bubble: Live | None = None  # what shows its answer while it grows
        # The turn's calls by their ids; None: earlier attempts may have made some, and nobody looked yet.
        self.used: dict[str, ToolCall] | None = {} if begun.attempt == 1 else None
        self.has_files = False  # what came with earlier attempts' messages was looked for here
        self.look = parts.settings.display.look(begun.source)
        self.told = Told()  # what was said about how long it takes
        self.stream_held = (
            False  # what was streamed is being committed, if the turn ends with it: nothing more is shown
        )
        self._streamed, self._streamed_after = "", 0
        self._acknowledge = begun.note.tail_key if begun.note else None

    def next_seq(self) -> int:
        """The place of the next transcript row; the fence makes us its only writer."""
        self.seq += 1
        return self.seq

    def close_bubble(self) -> None:
        """Nothing more is shown: what it shows at last comes with the end of the turn."""
        if self.bubble is not None:
            self.bubble.close()

    def streams(self, text: str) -> bool:
        """The answer's text so far; False when it must not be shown now. What follows it says all of it again."""
        if not self.stream_held:
            self._streamed, self._streamed_after = text, self.seq
        return not self.stream_held

    def streamed(self) -> Streamed | None:
        """What was streamed of the answer that is being written; whether a row has it by now, the store decides."""
        if not self._streamed:
            return None
        return Streamed(
            turn=self.begun.turn,
            session_id=self.begun.session_id,
            after=self._streamed_after,
            text=storable(self._streamed),
            shown=storable(self.bubble.text) if self.bubble is not None else "",
        )

    def moves(self) -> None:
        """A sign of life."""
        self.active_at = self.parts.clock.monotonic()

    def uses(self, tool: str | None) -> None:
        """A tool begins, or has ended."""
        self.tool = tool
        self.moves()

    def asks(self) -> None:
        """A model is about to be called."""
        self.called = True
        self.asked_at = self.parts.clock.monotonic()

    def answered(self) -> float | None:
        """When the model was asked whose answer is here, once."""
        asked_at, self.asked_at = self.asked_at, None
        return asked_at

    def somebody_waits(self) -> bool:
        """Whether it is worth a look into the database."""
        return self.called_on or self.waiting > 0

    def joined(self, joined: Joined) -> None:
        """More of the user's messages are part of the turn now."""
        self.begun = joined.begun
        self.seq = max(self.seq, joined.begun.seq)
        self.waiting = joined.begun.waiting
        self.unheard += joined.messages

    def settled(self, settled: Mapping[int, Settled]) -> None:
        """Files that came with its messages are part of their words now."""
        carried = [replace(each, settled=settled.get(each.inbox, each.settled)) for each in self.begun.carried]
        texts = {each.seq: each.settled.text for each in carried if each.settled and each.inbox in settled}
        self.begun = with_settled(self.begun, settled, carried)
        self.unheard = [replace(each, content=texts.get(each.seq, each.content)) for each in self.unheard]

    def heard(self) -> list[Message]:
        """What joined, once."""
        messages, self.unheard = self.unheard, []
        return messages

    def acknowledge(self) -> str | None:
        """The tail that the model has now answered for, once."""
        tail, self._acknowledge = self._acknowledge, None
        return tail
