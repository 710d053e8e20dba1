"""The in-memory state of one running attempt of a turn. Nothing here is the only copy of anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from everturn.inbox.rows.joining import JoinedTurn
from everturn.lifecycle.parts import Parts
from everturn.model import Message, SettledFiles, ToolCall
from everturn.outbox.bubbles import StreamingMessage
from everturn.outbox.rules.text import storable
from everturn.turns.rows.beginning import with_settled
from everturn.turns.rows.turn_values import StartedTurn, Streamed
from everturn.turns.rules.patience import NoticesSent
from everturn.turns.rules.recovery import is_suspect


class Attempt:
    """The started turn, the number of its next transcript row, its streamed text and its model and tool activity."""

    def __init__(self, parts: Parts, begun: StartedTurn, deliver: Callable[[str], None] = lambda _key: None) -> None:
        self.parts = parts
        self.begun = begun
        self.deliver = deliver  # a reply is pending for this key: deliver it
        self.suspect = is_suspect(begun.unclean_ends, parts.settings.stuck_after)
        self.called = begun.called  # an end is an interruption: a model was called, or the agent is not ours
        self.marked = begun.called  # and that is stored
        self.seq = begun.seq
        self.waiting = begun.waiting  # messages and commands behind it, as the last commit saw
        self.woken = False  # a message arrived since the attempt last read the queue
        self.unread: list[Message] = []  # what joined the turn and was not handed to its agent yet
        self.began = self.active_at = parts.clock.monotonic()
        self.asked_at: float | None = None  # when a model was asked that has not answered yet
        self.outcome: str | None = None  # how the attempt ended, once that is committed
        self.tool: str | None = None  # the one that runs now
        self.bubble: StreamingMessage | None = None  # its streaming message
        # The turn's calls by their ids; None: earlier attempts may have made some, and nobody looked yet.
        self.used: dict[str, ToolCall] | None = {} if begun.attempt == 1 else None
        self.has_files = False  # what came with earlier attempts' messages was looked for here
        self.look = parts.settings.display.look(begun.source)
        self.notices = NoticesSent()  # the progress notices sent so far
        self.stream_held = False  # what was streamed may be committed as the turn's end: nothing more is shown
        self._streamed, self._streamed_after = "", 0
        self._tail_key = begun.note.tail_key if begun.note else None

    def next_seq(self) -> int:
        """Take the number of the next transcript row; the fence makes this attempt its only writer."""
        self.seq += 1
        return self.seq

    def close_bubble(self) -> None:
        """Stop the previews of the streaming message: its final text comes with the end of the turn."""
        if self.bubble is not None:
            self.bubble.close()

    def record_stream(self, text: str) -> bool:
        """Record the answer's text so far; False when it must not be shown now. The next call brings all of it again."""
        if not self.stream_held:
            self._streamed, self._streamed_after = text, self.seq
        return not self.stream_held

    def streamed(self) -> Streamed | None:
        """The streamed text of the answer in progress; the store decides whether a row has it by now."""
        if not self._streamed:
            return None
        return Streamed(
            turn=self.begun.turn,
            session_id=self.begun.session_id,
            after=self._streamed_after,
            text=storable(self._streamed),
            shown=storable(self.bubble.text) if self.bubble is not None else "",
        )

    def mark_active(self) -> None:
        """Record activity, for the inactivity limits."""
        self.active_at = self.parts.clock.monotonic()

    def set_tool(self, tool: str | None) -> None:
        """Record the tool that runs now; None when it has ended."""
        self.tool = tool
        self.mark_active()

    def start_model_call(self) -> None:
        """Record that a model is about to be called, and when."""
        self.called = True
        self.asked_at = self.parts.clock.monotonic()

    def pop_asked_at(self) -> float | None:
        """Return once when the answered model call was made."""
        asked_at, self.asked_at = self.asked_at, None
        return asked_at

    def has_waiting(self) -> bool:
        """Whether messages may be queued behind the turn, so that reading the database is worth it."""
        return self.woken or self.waiting > 0

    def add_joined(self, joined: JoinedTurn) -> None:
        """Add messages that joined the turn."""
        self.begun = joined.begun
        self.seq = max(self.seq, joined.begun.seq)
        self.waiting = joined.begun.waiting
        self.unread += joined.messages

    def add_settled(self, settled: Mapping[int, SettledFiles]) -> None:
        """Add the fetched files to the texts of the messages that they came with."""
        carried = [replace(each, settled=settled.get(each.inbox, each.settled)) for each in self.begun.carried]
        texts = {each.seq: each.settled.text for each in carried if each.settled and each.inbox in settled}
        self.begun = with_settled(self.begun, settled, carried)
        self.unread = [replace(each, content=texts.get(each.seq, each.content)) for each in self.unread]

    def pop_joined(self) -> list[Message]:
        """Return the messages that joined and were not given to the agent yet, once."""
        messages, self.unread = self.unread, []
        return messages

    def pop_tail_key(self) -> str | None:
        """Return the transcript tail that the model has now acknowledged, once."""
        tail, self._tail_key = self._tail_key, None
        return tail
