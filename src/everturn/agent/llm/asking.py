"""Asks a model until there is a response: retries are journaled and bounded across crashes, then the fallbacks are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from everturn.agent.interface import NO_USAGE, TurnContext
from everturn.agent.llm.calls import CallWatch, call_model
from everturn.agent.llm.failures import ModelFailure, failure_of
from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.history import KnownHistory
from everturn.agent.llm.pictures import pictures_of
from everturn.agent.llm.providers import AgentModels
from everturn.agent.llm.rendering import Anchored, rendered
from everturn.agent.llm.replies import TEXT, ModelAnswer, ModelClient, ModelInput
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import (
    LONG_WAIT_S,
    OUTCOMES,
    AtLast,
    CallOutcome,
    FailedCall,
    Move,
    Tries,
    next_move,
    no_answer,
    wait_before,
    waiting,
)
from everturn.clock import Clock
from everturn.errors import ConfigError, EverturnError, Unanswerable
from everturn.home.rules import sees
from everturn.model import Message, Usage
from everturn.sessions.rules.transcript import estimated_tokens

log = structlog.get_logger()
ALL_ROWS = 1_000_000  # of a transcript: a window that moves would change the beginning of every request
LIKELY_OUTPUT_TOKENS = 1_000  # what an answer is expected to use where the settings set no limit


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is said to a model: the session's frozen prompt and tools, and what is known of its transcript; or other rows."""

    system: str
    tools: Sequence[FrozenTool]
    frozen: str = ""
    note: Anchored | None = None
    history: KnownHistory | None = None
    rows: Sequence[Message] = ()

    @property
    def tokens(self) -> int:
        """About how long it is."""
        said = self.history.tokens if self.history is not None else estimated_tokens(self.rows)
        return said + estimated_tokens((), self.frozen or self.system)


@dataclass(frozen=True, slots=True)
class Got:
    """An answer and how it was obtained."""

    kind: CallOutcome
    answer: ModelAnswer
    used: Usage  # what is still to be counted of it


@dataclass(slots=True)
class FallbackPosition:
    """The position in the list of models and their tries."""

    names: Sequence[str]
    index: int = 0
    failed: int = 0  # calls of this model that failed
    before: int = 0  # failures that were journaled before this model was asked
    compacted: bool = False

    @property
    def name(self) -> str:
        """The model to be asked."""
        return self.names[self.index]

    def next_model(self, count: int) -> None:
        """Move on to the next model."""
        self.index, self.failed, self.before = self.index + 1, 0, count


class ModelCaller:
    """Asks the models of one agent."""

    def __init__(self, settings: LlmSettings, models: AgentModels, clock: Clock, chance: Callable[[], float]) -> None:
        self._settings = settings
        self._models = models
        self._clock = clock
        self._chance = chance

    async def ask(
        self, turn: TurnContext, current: Callable[[], Awaitable[Conversation]], compact: Callable[[], Awaitable[bool]]
    ) -> Got:
        """Ask until there is a response. Raises Unanswerable, with a text for the user, when there is none."""
        place = FallbackPosition(self.names(turn))
        while True:
            given = await current()
            failure, answer = await self._try(turn, place.name, given)
            if answer is not None and _good(answer):
                return Got(failure.kind, answer, answer.used)
            place.failed += 1
            if not await self._goes_on(turn, place, failure, compact):
                return Got(failure.kind, self._last(place, failure, answer), NO_USAGE)

    async def once(self, turn: TurnContext, given: Conversation) -> tuple[ModelFailure, ModelAnswer | None]:
        """Call the first model once, without streaming to the user and without a retry."""
        return await self._try(turn, self.names(turn)[0], given, show=lambda _: None)

    def names(self, turn: TurnContext) -> list[str]:
        """The session's own model or the configured one, then the fallbacks."""
        first = turn.session.model or self._settings.model
        return list(dict.fromkeys((first, *self._settings.fallback)))

    async def _try(
        self, turn: TurnContext, name: str, given: Conversation, show: Callable[[str], None] | None = None
    ) -> tuple[ModelFailure, ModelAnswer | None]:
        settings, plan, used = self._settings, NO_USAGE, NO_USAGE

        def active() -> None:
            nonlocal used
            used = plan  # an answer that has begun is paid for, however it ends
            turn.active()

        watch = CallWatch(self._clock, settings.stall_s, show or turn.stream, active)
        try:
            async with self._models.using(name, turn.session_id) as model:
                asked = await self._input(turn, name, given, model)
                plan = await model.plan(given.tokens, settings.max_output_tokens or LIKELY_OUTPUT_TOKENS)
                calling = turn.calling(plan)
                if turn.session.limited:  # counted before anything is paid for
                    await calling
                answer = await call_model(model, asked, watch, calling)
        except ConfigError as error:
            return ModelFailure(CallOutcome.MISSING, str(error)), None
        except EverturnError:
            raise  # the store's, or a spending limit: not the model's failure
        except Exception as error:  # noqa: BLE001  whatever a provider or its library does has its row in the table
            return replace(failure_of(error, (settings.api_key,)), used=used), None
        return ModelFailure(answer.outcome, used=answer.used if answer.used.output_tokens else plan), answer

    async def _input(self, turn: TurnContext, name: str, given: Conversation, model: ModelClient) -> ModelInput:
        """What this model is sent: the bytes that are known, unless it takes others or sees pictures, which are read each time."""
        history, seeing = given.history, sees(name, self._settings.images)
        if history is not None and model.takes_encoded and not (seeing and history.has_uploads):
            return ModelInput((), given.tools, turn.session_id, history.encoded(given.system, given.note))
        rows = given.rows
        if history is not None:
            rows = history.rows if history.is_whole else await turn.history(ALL_ROWS)
        pictures = await pictures_of(rows, self._settings.uploads) if seeing else None
        said = rendered(rows, given.system, model.provider, given.note, pictures)
        return ModelInput(said, given.tools, turn.session_id)

    async def _goes_on(
        self, turn: TurnContext, place: FallbackPosition, failure: ModelFailure, compact: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Wait and try again, or move to the next model; False: there is nothing left to try."""
        wait_s = wait_before(
            failure.kind, place.failed, failure.retry_after_s, self._settings.longest_wait_s, self._chance()
        )
        move = self._move(place, failure, wait_s, compacted=False)
        waits = wait_s or 0.0 if move is Move.RETRY else 0.0
        # The last one, too, and before a compaction asks: what it used is counted, the rest of its plan is given back.
        count = await turn.failed(failure.kind, failure.detail or failure.kind, waits, failure.used)
        place.failed = max(place.failed, count - place.before)  # tries of an earlier process count too
        compacted = failure.kind is CallOutcome.OVERFLOW and not place.compacted and await compact()
        place.compacted = place.compacted or compacted
        move = self._move(place, failure, wait_s, compacted=compacted)
        log.warning(
            "model call failed",
            turn_id=turn.id,
            model=place.name,
            kind=failure.kind.value,
            why=failure.detail,
            then=move.value,
        )
        if move is Move.RETRY:
            await self._wait(turn, place, failure.kind, waits)
        elif move is Move.NEXT_MODEL:
            place.next_model(count)
        return move is not Move.GIVE_UP

    def _move(self, place: FallbackPosition, failure: ModelFailure, wait_s: float | None, *, compacted: bool) -> Move:
        left = len(place.names) - place.index - 1
        return next_move(failure.kind, Tries(place.failed, self._settings.retries, left, compacted, wait_s))

    async def _wait(self, turn: TurnContext, place: FallbackPosition, kind: CallOutcome, wait_s: float) -> None:
        if wait_s > LONG_WAIT_S:
            await turn.notify(waiting(kind, wait_s, place.failed, self._settings.retries))
        await self._clock.sleep(wait_s)

    def _last(self, place: FallbackPosition, failure: ModelFailure, answer: ModelAnswer | None) -> ModelAnswer:
        """The incomplete answer where there is one; its calls may be incomplete too, and are left out."""
        if answer is not None and OUTCOMES[failure.kind].last is AtLast.AS_CUT and answer.text.strip():
            return answer.with_only(lambda part: part["part_kind"] == TEXT)
        asked = FailedCall(place.name, place.failed, self._settings.api_key_env, failure.detail)
        raise Unanswerable(no_answer(failure.kind, asked), failure.kind)


def _good(answer: ModelAnswer) -> bool:
    cut = answer.outcome is CallOutcome.LENGTH and bool(answer.text.strip())
    return cut or answer.outcome is CallOutcome.ANSWERED
