"""What an agent is, and what it is given: a turn through which everything durable goes. Agents keep no session state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everturn.model import Brought, Message, SessionSource, ToolCall, Usage

RunTool = Callable[[ToolCall, str], Awaitable[str]]
"""Runs one tool call; the second argument is a key that is the same for every repetition of this call. Raises ToolFailed
(errors.py) with the result of a call that failed."""

JudgeCall = Callable[[ToolCall], ToolCall]


def as_journaled(call: ToolCall) -> ToolCall:
    """The rules that a call was journaled with still hold."""
    return call


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent finally says. An empty text without calls is not an answer: the turn fails visibly."""

    text: str
    extra: str | None = None  # kept with the transcript's row, for the agent itself
    usage: Usage = NO_USAGE
    cut: bool = False  # it is not whole: the user sees it, but the turn does not count as a success
    calls: tuple[
        ToolCall, ...
    ] = ()  # of functions of the program that asks: it runs them, and comes back with the results


class SessionContext(Protocol):
    """What a session keeps for its agent, beside the transcript."""

    @property
    def model(self) -> str | None:
        """The model its user chose for it; None: the configured one."""
        ...

    async def frozen(self, prompt: str, *, keep: bool = True) -> str:
        """The session's system prompt and tool schemas, one text: the given one if none was frozen yet, else that one.

        With `keep` the given one is frozen then.
        """
        ...

    async def compaction_wanted(self) -> bool:
        """Whether the user asked for a compaction: before the next model call, whatever the size."""
        ...

    async def may_compact(self) -> bool:
        """Whether a compaction may be tried now: not while one backs off, and not while an interrupt waits."""
        ...

    async def compact(self, summary: str, keep: int, usage: Usage = NO_USAGE) -> None:
        """Go on in a child session: the summary, then the newest `keep` rows. `session_id` is another one afterwards."""
        ...

    async def used_ids(self) -> set[str]:
        """The ids of all calls of the turn so far, whichever sessions they are in: another call needs another one."""
        ...

    async def called_apart(self, usage: Usage) -> None:
        """Count a model call whose answer is no row of the transcript, such as the description of a picture."""
        ...

    async def compaction_failed(self, why: str, usage: Usage = NO_USAGE) -> None:
        """A compaction could not be made: the turn goes on, the next try waits longer. `usage` is what it used all the same."""
        ...


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
    def session(self) -> SessionContext:
        """What the session keeps beside its transcript."""
        ...

    @property
    def attempt(self) -> int:
        """1, or more after an interruption."""
        ...

    @property
    def source(self) -> SessionSource:
        """Where the (last) message came from, and who asks; nobody is named where several people's words are answered."""
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

    async def brought(self) -> Brought:
        """What the program that asks brought beside its words: instructions and functions of its own, for this turn."""
        ...

    async def joined(self) -> list[Message]:
        """What the user wrote meanwhile and is now part of this turn: committed rows, asked for before each model call."""
        ...

    def calling(self, plan: Usage = NO_USAGE) -> asyncio.Future[None]:
        """Say that a model is about to be called; from now on at the latest a death is an interruption.

        With a plan it must be awaited: what the call may use is counted first. Raises Spent when a limit is reached.
        """
        ...

    async def failed(self, kind: str, why: str, wait_s: float, usage: Usage = NO_USAGE) -> int:
        """Journal a model call that failed; how many failed since the last committed step.

        `usage` is what it used all the same, as far as that is known: an answer that broke off is paid for.
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
        """Commit a model response, run its calls in order, commit each result; returns the results.

        The ids of calls are unique in a turn. Raises Conflict for one that was used for another call.
        """
        ...

    async def settle(self, run: RunTool, judge: JudgeCall = as_journaled) -> list[Message]:
        """After an interruption: bring the calls of the last committed response to an end, each by its class.

        `judge` gives each call the rules that hold for it now, where they may be stricter than those it was journaled with.
        """
        ...

    def stream(self, text: str) -> None:
        """Show the answer's text so far; what is shown is not kept. It counts as activity."""
        ...

    def active(self) -> None:
        """Something moves, though there is nothing to show: a token, a line of a tool's output."""
        ...

    async def tell(self, text: str) -> None:
        """Tell the user how it goes; where the platform can, the last such notice of the turn is replaced."""
        ...


@runtime_checkable
class CanDescribe(Protocol):
    """An agent that may have eyes."""

    def sees(self, turn: TurnContext) -> bool:
        """Whether the model of this turn is given pictures."""
        ...

    async def describe(self, turn: TurnContext, question: str) -> str:
        """What a model says to a question that names a picture, shown to nobody and in no transcript; empty: nothing."""
        ...


@runtime_checkable
class MarksCalls(Protocol):
    """An agent whose code is known to do nothing that may end the process before it calls `turn.calling()`."""

    def marks_calls(self, key: str) -> bool:
        """Whether that holds for this session key. If not, a death counts as soon as the agent has control."""
        ...


class Agent(Protocol):
    """Answers one turn."""

    async def run(self, turn: TurnContext) -> Answer:
        """Work until there is an answer. May be cancelled at every await; a later attempt goes on."""
        ...
