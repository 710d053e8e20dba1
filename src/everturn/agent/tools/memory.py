"""The tools of what an agent knows from before: memories, and `search_conversations`.

The scope of a memory comes from the turn's source alone, so nobody reads another's; the search finds past conversations of this
session key only, whatever the model asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from everturn.agent.interface import TurnContext
from everturn.agent.rows import Memory, forget_memory, recall, remember
from everturn.agent.toolbox import Arguments, Text, Tool, ToolError, ToolPlace, says, tool
from everturn.clock import Clock
from everturn.home.search_index import IndexedRow, IndexLost, SearchIndex
from everturn.model import Effect, Message
from everturn.sessions.rows.conversations import rows_after, rows_found, sessions_of_key
from everturn.store.interface import Store
from everturn.turns.rules.turns import storable

Whose = Literal["person", "chat"]
_WHOSE = says("Whose memory: the person you talk with (follows them into other chats), or this chat.")
_NAME = says("A short name for it, such as birthday.")
BATCH = 1_000
SPOKEN = frozenset({"user", "assistant"})
SPEAKERS = {"user": "they said", "assistant": "you said"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How many memories a person or a chat may have, and how long one may be."""

    memories: int = 200
    name_chars: int = 80
    text_chars: int = 2_000


class Remember(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to remember, and for whom."""

    whose: Annotated[Whose, _WHOSE]
    name: Annotated[Text, _NAME]
    text: Annotated[Text, says("What to remember.")]


class Recall(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories to look up."""

    whose: Annotated[Whose, _WHOSE]
    query: Annotated[str, says("Only memories that hold these words; empty for all.")] = ""


class Forget(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memory to forget."""

    whose: Annotated[Whose, _WHOSE]
    name: Annotated[Text, _NAME]


def scope_of(turn: TurnContext, whose: Whose) -> str:
    """The scope in the table: one per agent and person, or agent and chat. With several senders there is no person.

    A direct chat whose key names its person has a memory for each person: the next person in the room reads nothing of it.
    """
    source, agent = turn.source, turn.key.split(":")[1]
    person = source.user_id_alt or source.user_id
    own = turn.key.rpartition(":")[2].startswith("@")  # the key names its person
    if whose == "chat":
        parts: tuple[str | None, ...] = (whose, agent, source.platform, source.account, source.scope_id)
        in_room = source.chat_type == "dm" and source.chat_id and own
        chat = (source.chat_id, person) if in_room else (source.chat_id or person,)
        return msgspec.json.encode((*parts, *chat)).decode()
    if not person:
        raise ToolError("it is not known who speaks here; use the memory of the chat.")
    if source.chat_type != "dm" and not own:
        raise ToolError("several people speak in this conversation; use the memory of the chat.")
    return msgspec.json.encode((whose, agent, source.platform, source.account, person)).decode()


class Memories:
    """The tools `remember`, `recall` and `forget`."""

    def __init__(self, settings: MemorySettings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock

    def tools(self) -> list[Tool]:
        """The three tools."""
        return [
            tool(
                Remember,
                self._remember,
                name="remember",
                description="Remember something beyond this conversation. The same name again replaces it.",
                effect=Effect.IDEMPOTENT,
            ),
            tool(Recall, self._recall, name="recall", description="Look up what was remembered.", effect=Effect.PURE),
            tool(
                Forget,
                self._forget,
                name="forget",
                description="Forget something that was remembered.",
                effect=Effect.IDEMPOTENT,
            ),
        ]

    async def _remember(self, what: Remember, place: ToolPlace) -> str:
        memory = Memory(self._name(what.name), self._text(what.text), self._clock.now())
        scope, turn = scope_of(place.turn, what.whose), place.turn
        if not await self._store.run(
            remember, turn.key, int(turn.id), turn.attempt, scope, memory, self._settings.memories
        ):
            raise ToolError(f"there are {self._settings.memories} memories already; forget one first.")
        return f"Remembered {memory.name!r}."

    async def _recall(self, what: Recall, place: ToolPlace) -> str:
        found = await self._store.read(recall, scope_of(place.turn, what.whose), self._settings.memories)
        query = what.query.casefold().split()
        fits = [each for each in found if all(word in f"{each.name} {each.text}".casefold() for word in query)]
        return "\n".join(f"{each.name}: {each.text}" for each in fits) or "Nothing is remembered about that."

    async def _forget(self, what: Forget, place: ToolPlace) -> str:
        name, turn = self._name(what.name), place.turn
        await self._store.run(forget_memory, turn.key, int(turn.id), turn.attempt, scope_of(turn, what.whose), name)
        return f"Nothing named {name!r} is remembered now."

    def _name(self, text: str) -> str:
        name = " ".join(storable(text).split())
        if not name or len(name) > self._settings.name_chars:
            raise ToolError(f"a name has 1 to {self._settings.name_chars} characters.")
        return name

    def _text(self, text: str) -> str:
        if len(text) > self._settings.text_chars:
            raise ToolError(f"a memory has {self._settings.text_chars} characters at most.")
        return storable(text)


def memory_tools(settings: MemorySettings, store: Store, clock: Clock) -> list[Tool]:
    """The tools of the memory."""
    return Memories(settings, store, clock).tools()


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
