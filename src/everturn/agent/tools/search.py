"""The tool `search_conversations`: past conversations of this session key only, whatever the model asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.agent.tools.arguments import Arguments, Text, says, tool
from everturn.home.search_index import IndexedRow, IndexLost, SearchIndex
from everturn.model import Effect, Message
from everturn.sessions.rows.conversations import rows_after, rows_found, sessions_of_key
from everturn.store.interface import Store

BATCH = 1_000
SPOKEN = frozenset({"user", "assistant"})
SPEAKERS = {"user": "they said", "assistant": "you said"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How much is found and shown at most, and how many rows one search may add to the index."""

    results: int = 10
    excerpt_chars: int = 400
    indexed_rows: int = 100_000
    indexed_chars: int = 20_000  # of one row


class SearchConversations(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to search for."""

    query: Annotated[Text, says("Words that were said, in any order; each may be the beginning of a word.")]


class Search:
    """The tool `search_conversations`. The index is updated by each search, and at no other time."""

    def __init__(self, settings: SearchSettings, store: Store, index: SearchIndex) -> None:
        self._settings = settings
        self._store = store
        self._index = index

    def tools(self) -> list[Tool]:
        """The one tool."""
        return [
            tool(
                SearchConversations,
                self._run,
                name="search_conversations",
                description="Search what was said in earlier conversations here, and earlier in this one.",
                effect=Effect.PURE,
            )
        ]

    async def _run(self, what: SearchConversations, place: ToolPlace) -> str:
        try:
            found = await self._found(what.query, place.turn)
        except IndexLost:
            found = await self._search_again(what.query, place.turn)
        lines = [self._line(row, what.query) for row in found]
        return "\n".join(lines) or "Nothing was found."

    async def _search_again(self, query: str, turn: TurnContext) -> list[Message]:
        """Search again with a new index, after a damaged one."""
        try:
            return await self._found(query, turn)
        except IndexLost as error:
            raise ToolError("past conversations cannot be searched now.") from error

    async def _found(self, query: str, turn: TurnContext) -> list[Message]:
        sessions = await self._store.read(sessions_of_key, turn.key)
        await self._catch_up(sessions, int(turn.id))
        places = await self._index.find(query, sessions, 5 * self._settings.results)
        rows = await self._store.read(rows_found, turn.key, int(turn.id), places)
        distinct = {row.content: row for _, row in reversed(rows)}  # a compaction repeats rows
        return [row for _, row in rows if distinct[row.content] is row][: self._settings.results]

    async def _catch_up(self, sessions: list[str], turn: int) -> None:
        """Index the rows since the last search."""
        known = await self._index.progress(sessions)
        places = {session: known.get(session, 0) for session in sessions}
        for _ in range(max(1, self._settings.indexed_rows // BATCH)):
            rows = await self._store.read(rows_after, places, turn, BATCH)
            if not rows:
                return
            reached = {session: seq for session, seq, _, _ in rows}
            most = self._settings.indexed_chars
            said = [IndexedRow(s, seq, text[:most]) for s, seq, role, text in rows if role in SPOKEN and text.strip()]
            await self._index.add(said, reached)
            places |= reached

    def _line(self, row: Message, query: str) -> str:
        at = datetime.fromtimestamp(row.at, UTC)
        return f"{at:%Y-%m-%d %H:%M} {SPEAKERS.get(row.role, row.role)}: {excerpt(row.content, query, self._settings.excerpt_chars)}"


def excerpt(text: str, query: str, most: int) -> str:
    """A part of the text around the first word of the query, on one line."""
    text = " ".join(text.split())
    folded = text.lower()
    places = [at for word in query.lower().split() if (at := folded.find(word)) >= 0]
    start = max(0, min(places, default=0) - most // 4)
    head, tail = "... " if start else "", " ..." if start + most < len(text) else ""
    return f"{head}{text[start : start + most]}{tail}"


def search_tools(settings: SearchSettings, store: Store, index: SearchIndex) -> list[Tool]:
    """The tool that searches past conversations."""
    return Search(settings, store, index).tools()
