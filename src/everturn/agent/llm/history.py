"""What an agent keeps of the transcripts that it works on: rows are read once, encoded once, and sent as the same bytes again.

All of it can be made anew from the rows, and is when they were changed: after an undo, a compaction, or when it had to give way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from everturn.agent.llm.chat.requests import PROVIDER, Sent, chat_messages, earlier_messages, joined, thoughts_in
from everturn.agent.llm.rendering import Anchored, rendered
from everturn.home.rules import uploads_in
from everturn.model import HistoryPosition, Message, TranscriptPart
from everturn.sessions.rules.transcript import arranged, estimated_tokens

MOST_BYTES = 8 * 1024 * 1024  # of all transcripts that an agent keeps
ROW_BYTES = 400  # of a row in memory, beside its texts


class KnownHistory:
    """One transcript up to a position. The older part may be encoded already; its rows are not kept then."""

    def __init__(self, session_id: str) -> None:
        self._forget(HistoryPosition(session_id))

    def _forget(self, position: HistoryPosition) -> None:
        self.position = position
        self.rows: list[Message] = []  # those that are not encoded
        self.tokens = 0  # of all rows, about
        self.call_ids: set[str] = set()  # of all rows
        self.has_uploads = False
        self.compaction_wanted = False
        self._encoded = b""  # the messages before `rows`
        self._encoded_rows = 0  # how many arranged rows they are
        self._thoughts: set[str] = set()  # in which fields they have what a model thought

    def add(self, news: TranscriptPart) -> None:
        """Add newer rows, or begin anew with all of them."""
        if news.whole:
            self._forget(news.position)
        self.position, self.compaction_wanted = news.position, news.compaction_wanted
        self.rows += news.rows
        self.tokens += estimated_tokens(news.rows)
        self.call_ids.update(call.id for row in news.rows for call in row.calls)
        self.has_uploads = self.has_uploads or any(row.role == "user" and uploads_in(row.content) for row in news.rows)

    def arranged_rows(self) -> int:
        """How many rows there are as a provider accepts them."""
        return self._encoded_rows + len(arranged(self.rows))

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in `rows`."""
        return not self._encoded_rows

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self._encoded) + sum(map(_bytes_of, self.rows)) + ROW_BYTES * (1 + len(self.call_ids) // 4)

    def encoded(self, system: str, note: Anchored | None = None) -> bytes:
        """The messages of a request, as JSON."""
        self._encode_older(note)
        here = Anchored(note.text, note.rows - self._encoded_rows) if note is not None else None
        said = chat_messages(rendered(self.rows, "", PROVIDER, here), self._thoughts)
        prompt: list[Sent] = [{"role": "system", "content": system}] if system else []
        return b"[" + b",".join(part for part in (joined(prompt), self._encoded, joined(said)) if part) + b"]"

    def _encode_older(self, note: Anchored | None) -> None:
        """Encode what stands before the last message of a user: nothing that follows changes it any more.

        Only up to a call that has no result yet, and not behind the note, which is in the requests of one attempt only.
        """
        last = _settled(self.rows)
        older = self.rows[:last]
        if not older:
            return
        count = len(arranged(older))
        if note is not None and note.rows <= self._encoded_rows + count:
            return
        messages = earlier_messages(rendered(older, "", PROVIDER))
        self._encoded = b",".join(part for part in (self._encoded, joined(messages)) if part)
        self._encoded_rows += count
        self._thoughts |= thoughts_in(messages)
        del self.rows[:last]


def _settled(rows: Sequence[Message]) -> int:
    """How many of these rows no later one changes: those before the last message of a user, and before any call whose result is
    not among them.
    """
    last = max((place for place, row in enumerate(rows) if row.role == "user"), default=0)
    while last:
        results = {row.call_id for row in rows[:last] if row.role == "tool"}
        opened = (place for place in range(last) if any(call.id not in results for call in rows[place].calls))
        if (first := next(opened, last)) == last:
            break
        last = first
    return last


def _bytes_of(row: Message) -> int:
    """About how many bytes of memory a row takes."""
    calls = sum(len(call.name) + len(call.arguments) + ROW_BYTES for call in row.calls)
    return ROW_BYTES + len(row.content) + len(row.extra or "") + calls


class KnownHistories:
    """Those of one agent, by session; what was used least recently gives way."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[str, tuple[KnownHistory, int]] = OrderedDict()
        self._bytes = 0

    def take(self, session_id: str) -> KnownHistory:
        """What is known of a session: nothing, if it is not kept. It is the caller's: an attempt that has lost its session and
        does not know it yet changes nothing of what the next one works with.
        """
        kept = self._known.pop(session_id, None)
        if kept is None:
            return KnownHistory(session_id)
        self._bytes -= kept[1]
        return kept[0]

    def keep(self, history: KnownHistory) -> None:
        """Keep it for the session's next turn."""
        self.take(history.position.session_id)
        size = history.size
        self._known[history.position.session_id] = history, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            self.take(next(iter(self._known)))
