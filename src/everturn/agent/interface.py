"""The interface of an agent: it gets a turn, does everything durable through it, and keeps no session state of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everturn.model import (
    HistoryPosition,
    Message,
    RequestExtras,
    SessionSource,
    ToolCall,
    TranscriptPart,
    TurnOpening,
    Usage,
)

RunTool = Callable[[ToolCall, str], Awaitable[str]]
"""Runs one tool call. The second argument is an idempotency key: the same for every repetition of this call. A call that
failed raises ToolFailed (errors.py) with its result."""

JudgeCall = Callable[[ToolCall], ToolCall]


def as_journaled(call: ToolCall) -> ToolCall:
    """Keep the rules that a call was journaled with."""
    return call


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Answer:
    """The agent's final answer. An empty text without calls is not an answer: the turn fails and the user gets an error."""

    text: str
    extra: str | None = None  # saved with the row of the transcript, for the agent itself
    usage: Usage = NO_USAGE
    cut: bool = False  # the text is incomplete: the user sees it, but the turn does not count as a success
    calls: tuple[
        ToolCall, ...
    ] = ()  # of functions of the API client: it runs them and sends the results with its next request


class SessionContext(Protocol):
    """What a session saves for its agent, beside the transcript."""

    @property
    def model(self) -> str | None:
        """The model that the user chose for this session; None: the configured one."""
        ...

    @property
    def limited(self) -> bool:
        """Whether a spending limit is set: then a call has to be counted before it is made."""
        ...

    async def opening(self, known: HistoryPosition) -> TurnOpening:
        """What an agent that asks a model wants to know before its first request, in one read. `known`: up to where it knows
        the transcript; `HistoryPosition(turn.session_id)` for nothing of it.
        """
        ...

    async def history_after(self, known: HistoryPosition) -> TranscriptPart:
        """The rows of the transcript behind a position, or all of them where what is known is no longer true."""
        ...

    def freeze(self, prompt: str) -> asyncio.Future[str]:
        """Freeze the session's prompt (system prompt and tool schemas as one text), unless one is frozen. The result is the one
        that is, and so is every later result, whatever is given.
        """
        ...

    async def may_compact(self) -> bool:
        """Whether a compaction may be tried now: not while the last failure backs off, and not while an interrupt waits."""
        ...

    async def compact(self, summary: str, keep: int, usage: Usage = NO_USAGE) -> None:
        """Continue in a child session: the summary, then the newest `keep` rows. Changes `turn.session_id`."""
        ...

    async def used_ids(self) -> set[str]:
        """The ids of all calls of the turn so far, in all of its sessions. A new call needs an id that is not among them."""
        ...

    async def called_apart(self, usage: Usage) -> None:
        """Count the usage of a model call whose answer is not in the transcript, such as the description of a picture."""
        ...

    async def compaction_failed(self, why: str, usage: Usage = NO_USAGE) -> None:
        """Report a failed compaction: the turn goes on, and the next try waits longer. `usage` is what the failed try used."""
        ...


class TurnContext(Protocol):
    """One attempt of a turn. What `step` and `settle` return is committed: a later attempt never runs it again."""

    @property
    def id(self) -> str:
        """The id of the turn; the same in every attempt."""
        ...

    @property
    def key(self) -> str:
        """The session key: which agent, platform, chat and (where it counts) thread and person."""
        ...

    @property
    def session_id(self) -> str:
        """The id of the session that the turn belongs to. A compaction during the turn changes it."""
        ...

    @property
    def session(self) -> SessionContext:
        """What the session saves beside its transcript."""
        ...

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1, or more after an interruption."""
        ...

    @property
    def source(self) -> SessionSource:
        """The chat and the sender of the (last) message; without a sender where the turn answers several people."""
        ...

    @property
    def text(self) -> str:
        """The text of the user's message or messages, unchanged."""
        ...

    @property
    def note(self) -> str | None:
        """A note for the model in this attempt only: put it in front of the last message, never store it."""
        ...

    @property
    def earlier(self) -> int:
        """How many messages the session had before this turn."""
        ...

    async def history(self, last: int = 100) -> list[Message]:
        """The newest `last` rows of the transcript, oldest first, this turn's own rows included."""
        ...

    async def own(self) -> list[Message]:
        """The rows that this turn has committed, beginning with the user's message: in a later attempt, where to continue."""
        ...

    async def extras(self) -> RequestExtras:
        """What an API client sent beside the message, for this turn only: instructions and functions of its own."""
        ...

    async def joined(self) -> list[Message]:
        """Add the messages that the user sent meanwhile to this turn; returns their rows. Call it before each model call."""
        ...

    def calling(self, plan: Usage = NO_USAGE) -> asyncio.Future[None]:
        """Announce a model call. Once the result is there, the death of the process counts as an interruption: show nothing of
        an answer before. With a `plan` the usage of the call is counted, and where the session is `limited` the result has to be
        awaited before the call: it raises Spent when a limit is reached.
        """
        ...

    async def failed(self, kind: str, why: str, wait_s: float, usage: Usage = NO_USAGE) -> int:
        """Journal a failed model call; returns how many failed since the last committed step, earlier attempts included.

        `usage` is what the failed call used, as far as that is known: an answer that broke off is paid for.
        """
        ...

    async def step(
        self,
        content: str,
        calls: Sequence[ToolCall],
        run: RunTool,
        *,
        extra: str | None = None,
        usage: Usage = NO_USAGE,
    ) -> list[Message]:
        """Commit a model response, run its calls in order, and commit each result; returns the result rows.

        The ids of calls are unique in a turn. Raises Conflict for an id that was used for another call.
        """
        ...

    async def settle(self, run: RunTool, judge: JudgeCall = as_journaled) -> list[Message]:
        """Finish the calls of the last committed response after an interruption, each by its effect class; returns the results.

        `judge` gives each call the rules that hold for it now, which may be stricter than those it was journaled with.
        """
        ...

    def stream(self, text: str) -> None:
        """Show the whole text of the answer so far. It is a preview, which is not saved. Counts as activity."""
        ...

    def active(self) -> None:
        """Report activity when there is nothing to show: a token, a line of a tool's output. Keeps the watchdog quiet."""
        ...

    async def notify(self, text: str) -> None:
        """Send the user a progress notice; where the platform can, it replaces the last one of the turn."""
        ...


@runtime_checkable
class CanDescribe(Protocol):
    """An agent that can look at pictures."""

    def sees(self, turn: TurnContext) -> bool:
        """Whether the model of this turn gets the pictures that messages name."""
        ...

    async def describe(self, turn: TurnContext, question: str) -> str:
        """Ask a model a question that names a picture, outside the transcript; returns its answer, empty if there is none."""
        ...


@runtime_checkable
class MarksCalls(Protocol):
    """An agent whose code does nothing that may end the process before it calls `turn.calling()`."""

    def marks_calls(self, key: str) -> bool:
        """Whether that holds for this session key. If not, a crash counts as one of the turn as soon as the agent runs."""
        ...


class Agent(Protocol):
    """Answers turns. One object serves all sessions at the same time."""

    async def run(self, turn: TurnContext) -> Answer:
        """Work until there is an answer. May be cancelled at every await; a later attempt continues from the committed rows."""
        ...
