"""What an agent is, and what it is given: a turn through which everything durable goes. Agents keep no session state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.model import Message, SessionSource, ToolCall

RunTool = Callable[[ToolCall, str], Awaitable[str]]
"""Runs one tool call; the second argument is a key that is the same for every repetition of this call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent finally says. An empty text is not an answer: the turn fails visibly."""

    text: str


class TurnContext(Protocol):
    """One attempt of a turn. What `step` and `settle` return is committed; a later attempt never repeats it."""

    @property
    def id(self) -> str:
        """The turn; the same in every attempt."""
        ...

    @property
    def key(self) -> str:
        """The session key."""
        ...

    @property
    def session_id(self) -> str:
        """The session the turn belongs to."""
        ...

    @property
    def attempt(self) -> int:
        """1, or more after an interruption."""
        ...

    @property
    def source(self) -> SessionSource:
        """Where the (last) message came from."""
        ...

    @property
    def words(self) -> str:
        """What the user wrote, unchanged."""
        ...

    @property
    def note(self) -> str | None:
        """Text for the model in this attempt only: put it in front of the last message, never store it."""
        ...

    @property
    def earlier(self) -> int:
        """How many messages the session had before this turn."""
        ...

    async def history(self, last: int = 100) -> list[Message]:
        """The newest rows of the transcript, oldest first, this turn's own included."""
        ...

    async def own(self) -> list[Message]:
        """This turn's committed rows: on a later attempt, what need not be done again."""
        ...

    def calling(self) -> asyncio.Future[None]:
        """Say that a model is about to be called; need not be awaited. From now on a death is an interruption."""
        ...

    async def step(self, content: str, calls: Sequence[ToolCall], run: RunTool) -> list[Message]:
        """Commit a model response, run its calls in order, commit each result; returns the results."""
        ...

    async def settle(self, run: RunTool) -> list[Message]:
        """After an interruption: bring the calls of the last committed response to an end, each by its class."""
        ...

    def stream(self, text: str) -> None:
        """Show the answer's text so far; what is shown is not kept."""
        ...


class Agent(Protocol):
    """Answers one turn."""

    async def run(self, turn: TurnContext) -> Answer:
        """Work until there is an answer. May be cancelled at every await; a later attempt goes on."""
        ...
