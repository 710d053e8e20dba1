"""Sending a message: to the chat of the conversation, or to one of the chats that the owner named. Delivery does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import Place, Tool, ToolError
from everturn.agent.tools.arguments import Arguments, Text, says, tool
from everturn.decide.outputs import storable
from everturn.model import Effect, SessionSource

HERE = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    """The chats that may be written to, by the names the model uses; and whether the conversation's own chat is one."""

    targets: Mapping[str, SessionSource] = field(default_factory=dict)
    own_chat: bool = True
    text_chars: int = 8_000


class Sender(Protocol):
    """Makes somebody owed a message, once for each call (gateway/sending.py)."""

    async def __call__(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
        """False when nobody can be reached there yet."""
        ...


class SendMessage(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to send where."""

    to: Annotated[Text, says("The name of the chat.")]
    text: Annotated[Text, says("The message.")]


class Send:
    """The tool `send_message`."""

    def __init__(self, settings: SendSettings, sender: Sender) -> None:
        self._settings = settings
        self._sender = sender
        self._names = ([HERE] if settings.own_chat else []) + sorted(settings.targets)

    def tools(self) -> list[Tool]:
        """The one tool; none when there is nobody to write to."""
        if not self._names:
            return []
        chats = ", ".join(self._names)
        description = f"Send a message besides your answer. Chats you may write to: {chats}."
        return [tool(SendMessage, self._run, name="send_message", description=description, effect=Effect.IDEMPOTENT)]

    async def _run(self, what: SendMessage, place: Place) -> str:
        if what.to not in self._names:
            raise ToolError(f"you may write to these chats only: {', '.join(self._names)}.")
        if len(what.text) > self._settings.text_chars:
            raise ToolError(f"a message has {self._settings.text_chars} characters at most.")
        target = None if what.to == HERE and self._settings.own_chat else self._settings.targets[what.to]
        if not await self._sender(place.turn, place.call.id, target, storable(what.text)):
            raise ToolError(f"nobody in {what.to} has written yet, so nobody can be reached there.")
        return f"The message to {what.to} will be delivered."


def send_tools(settings: SendSettings, sender: Sender) -> list[Tool]:
    """The tool that sends messages."""
    return Send(settings, sender).tools()
