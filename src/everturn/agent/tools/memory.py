"""The memory tools, for a person or a chat. The scope comes from the turn's source alone, so nobody reads another's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from everturn.agent.interface import TurnContext
from everturn.agent.rows import Memory, forget_memory, recall, remember
from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.agent.tools.arguments import Arguments, Text, says, tool
from everturn.clock import Clock
from everturn.model import Effect
from everturn.store.interface import Store
from everturn.turns.rules.turns import storable

Whose = Literal["person", "chat"]
_WHOSE = says("Whose memory: the person you talk with (follows them into other chats), or this chat.")
_NAME = says("A short name for it, such as birthday.")


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
