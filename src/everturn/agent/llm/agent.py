"""The language model agent: one model call at a time, each response committed before the next. It keeps no session state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from everturn.agent import rules
from everturn.agent.interface import Answer, TurnContext
from everturn.agent.llm.asking import Conversation, ModelCaller
from everturn.agent.llm.compacting import Compacting
from everturn.agent.llm.freezing import Prompt, frozen_prompt, with_extras
from everturn.agent.llm.history import KnownHistories, KnownHistory
from everturn.agent.llm.providers import AgentModels
from everturn.agent.llm.rendering import Anchored
from everturn.agent.llm.replies import ModelAnswer, arguments_of, as_kept, extra_of
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import CallOutcome
from everturn.agent.toolbox import Toolbox, ToolSource
from everturn.clock import Clock, SystemClock
from everturn.errors import Spent
from everturn.home.rules import sees
from everturn.model import Message, ToolCall


@dataclass(slots=True)
class Work:
    """One attempt of a turn: what it works with, and where its note stands."""

    turn: TurnContext
    prompt: Prompt
    toolbox: Toolbox
    steps: int
    used: set[str]  # the ids of this turn's calls: a compaction takes some out of the history
    history: KnownHistory
    fresh: bool  # nothing has happened since the history was read
    freezing: asyncio.Future[str] | None = None  # the prompt, until it is stored
    functions: frozenset[str] = frozenset()  # those of the API client
    anchor: Anchored | None = None
    anchored_in: str = ""  # the session whose rows the anchor counts


class LlmAgent:
    """Answers a turn with a language model and its tools."""

    def __init__(
        self,
        settings: LlmSettings,
        sources: Sequence[ToolSource] = (),
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        models: AgentModels | None = None,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._models = models or AgentModels(settings)
        self._models.get(settings.model)  # a setting that cannot work is found at the start
        self._asking = ModelCaller(settings, self._models, clock or SystemClock(), chance)
        self._compacting = Compacting(settings, self._asking)
        self._histories = KnownHistories()

    def start(self) -> None:
        """Let the MCP servers among the tools begin to start, so that the first turn finds their tools; and the model's client."""
        Toolbox.of(self._sources)
        self._models.get(self._settings.model).start()

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self._models.close()

    async def run(self, turn: TurnContext) -> Answer:
        """Ask, commit, run the tools, and ask again until there is an answer."""
        work = await self._begin(turn)
        try:
            return await self._work(work)
        finally:
            self._histories.keep(work.history)

    async def _work(self, work: Work) -> Answer:
        turn, run = work.turn, work.toolbox.runner(work.turn)
        if turn.attempt > 1:
            await turn.settle(run, work.toolbox.judge)
        while work.steps < self._settings.max_steps:
            got = await self._asking.ask(turn, partial(self._given, work), partial(self._shortened, work))
            if work.freezing is not None:
                await work.freezing
                work.freezing = None
            said, asks = _own_first(got.answer, work.functions)
            answer = as_kept(said, work.history.call_ids | work.used, f"{turn.id}-{work.history.position.seq}")
            calls = _calls(said, answer, work.toolbox)
            text = answer.text
            extra = extra_of(answer, text, calls)
            if asks or not calls:
                cut = got.kind is not CallOutcome.ANSWERED
                return Answer(text, extra, got.used, cut=cut, calls=tuple(calls))
            for call in calls:
                work.used.add(call.id)
            await turn.step(text, calls, run, extra=extra, usage=got.used)
            work.steps += 1
        return Answer(rules.too_many_steps(self._settings.max_steps), cut=True)

    def sees(self, turn: TurnContext) -> bool:
        """Whether the turn's first model is given pictures."""
        return self._settings.uploads is not None and sees(self._asking.names(turn)[0], self._settings.images)

    async def describe(self, turn: TurnContext, question: str) -> str:
        """Ask the model once, outside the conversation; empty when that fails or a spending limit is reached."""
        given = Conversation("", (), rows=[Message(role="user", content=question)])
        try:
            failure, answer = await self._asking.once(turn, given)
        except Spent:
            return ""
        await turn.session.called_apart(failure.used)
        return answer.text if answer is not None else ""

    async def _begin(self, turn: TurnContext) -> Work:
        toolbox = Toolbox.of(self._sources)
        history = self._histories.take(turn.session_id)
        opening = await turn.session.opening(history.position)
        history.add(opening.history)
        prompt = frozen_prompt(turn, self._settings, toolbox, opening.frozen)
        # Stored while the first request is on its way. While an MCP server has not reported its tools the prompt is for this turn
        # alone: a session that kept it would never get them.
        freezing = turn.session.freeze(prompt.text) if opening.frozen is None and toolbox.complete else None
        if freezing is not None:
            freezing.add_done_callback(_retrieved)
        prompt, functions = with_extras(prompt, opening.extras)
        steps = sum(bool(row.calls) for row in await turn.own()) if turn.attempt > 1 else 0
        used = await turn.session.used_ids() if turn.attempt > 1 else set()
        return Work(turn, prompt, toolbox, steps, used, history, turn.attempt == 1, freezing, functions)

    async def _given(self, work: Work) -> Conversation:
        """The next request's input: with the messages that arrived meanwhile, compacted if it became too long."""
        turn, prompt = work.turn, work.prompt
        joined = await turn.joined()
        if joined or not work.fresh or work.history.position.session_id != turn.session_id:
            await self._read_on(work)
        given = Conversation(prompt.system, prompt.tools, prompt.text, None, work.history)
        if await self._compacting.before_call(turn, given.tokens, wanted=work.history.compaction_wanted):
            await self._read_on(work)
        work.fresh = False
        if turn.note and work.anchored_in != turn.session_id:
            work.anchor, work.anchored_in = Anchored(turn.note, work.history.arranged_rows()), turn.session_id
        return replace(given, note=work.anchor, history=work.history)

    async def _read_on(self, work: Work) -> None:
        """Read the rows that came since; all of them where a compaction has begun another session."""
        if work.history.position.session_id != work.turn.session_id:
            work.history = KnownHistory(work.turn.session_id)
        work.history.add(await work.turn.session.history_after(work.history.position))

    async def _shortened(self, work: Work) -> bool:
        """Compact, because the provider says that the conversation is too long."""
        return await self._compacting.shorten(work.turn)


def _retrieved(storing: asyncio.Future[str]) -> None:
    """Look at the error of a prompt that was not stored: the turn may have ended before it asked for it."""
    if not storing.cancelled():
        storing.exception()


def _own_first(answer: ModelAnswer, functions: Collection[str]) -> tuple[ModelAnswer, bool]:
    """The part of an answer that is kept, and whether it calls functions of the API client. Where it also calls our tools,
    those run first: the model calls the client's functions again when it has their results.
    """
    theirs = [part for part in answer.calls if part["tool_name"] in functions]
    if len(theirs) in {0, len(answer.calls)}:
        return answer, bool(theirs)
    return answer.with_only(lambda part: part not in theirs), False


def _calls(said: ModelAnswer, kept: ModelAnswer, toolbox: Toolbox) -> list[ToolCall]:
    """The calls with the ids that are kept, and the arguments as the model wrote them: errors in them become results."""
    pairs = zip(said.calls, kept.calls, strict=True)
    return [toolbox.call(own["tool_call_id"], part["tool_name"], arguments_of(part)) for part, own in pairs]
