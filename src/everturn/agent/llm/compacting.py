"""Compaction: before a conversation outgrows the model's window, its older part becomes a summary. It never fails a turn."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.agent.interface import TurnContext
from everturn.agent.llm.asking import Asking, Given
from everturn.agent.llm.calls import usage_of
from everturn.agent.llm.settings import LlmSettings
from everturn.decide.conversation import SUMMARISE, estimated_tokens, rows_to_keep, to_summarise
from everturn.decide.outcomes import Kind
from everturn.model import Message

_CHARS_OF_A_TOKEN = 3


class Compacting:
    """Makes summaries with the agent's own model."""

    def __init__(self, settings: LlmSettings, asking: Asking) -> None:
        self._settings = settings
        self._asking = asking

    async def before_call(self, turn: TurnContext, rows: Sequence[Message], frozen: str) -> bool:
        """Compact if the request would pass its share of the window; True when the session is another one now."""
        if estimated_tokens(rows, frozen) <= self._settings.compact_at * self._settings.context_tokens:
            return False
        return await self.compact(turn, rows)

    async def compact(self, turn: TurnContext, rows: Sequence[Message]) -> bool:
        """Compact now, if there is something to summarise and nothing forbids it."""
        keep = rows_to_keep(rows, int(self._settings.compact_keep * self._settings.context_tokens))
        if not keep or not await turn.session.may_compact():
            return False
        room = int(self._settings.compact_at * self._settings.context_tokens) * _CHARS_OF_A_TOKEN
        text = SUMMARISE + to_summarise(rows[:-keep], room)
        given = Given([Message(role="user", content=text, seq=1)], "", [])
        failure, response = await self._asking.once(turn, given)
        summary = (response.text or "").strip() if response is not None else ""
        if response is None or not summary or failure.kind not in {Kind.ANSWERED, Kind.LENGTH}:
            await turn.session.compaction_failed(failure.detail or failure.kind)
            return False
        before = turn.session_id
        await turn.session.compact(summary, keep, usage_of(response))
        return turn.session_id != before
