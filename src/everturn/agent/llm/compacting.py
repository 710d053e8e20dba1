"""Compaction: before a conversation outgrows the model's window, its older part becomes a summary. It never fails a turn."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.agent.interface import TurnContext
from everturn.agent.llm.asking import ALL_ROWS, Conversation, ModelCaller
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import CallOutcome
from everturn.model import Message
from everturn.sessions.rules.transcript import SUMMARISE, estimated_tokens, rows_to_keep, to_summarise

_CHARS_OF_A_TOKEN = 3
_KEPT_PART = 3  # the newest third stays when nothing else says how much


class Compacting:
    """Makes summaries with the agent's own model."""

    def __init__(self, settings: LlmSettings, asking: ModelCaller) -> None:
        self._settings = settings
        self._asking = asking

    async def before_call(self, turn: TurnContext, tokens: int, *, wanted: bool) -> bool:
        """Compact if it has too many tokens or the user asked for it; True when the session is another one now."""
        settings = self._settings
        if tokens > settings.compact_at * settings.context_tokens:
            rows = await turn.history(ALL_ROWS)
            return await self._compact(
                turn, rows, rows_to_keep(rows, int(settings.compact_keep * settings.context_tokens))
            )
        return wanted and await self.shorten(turn)

    async def shorten(self, turn: TurnContext) -> bool:
        """Compact whatever its size: the user asked for it, or the provider says that it is too long."""
        rows = await turn.history(ALL_ROWS)
        keep = rows_to_keep(rows, estimated_tokens(rows) // _KEPT_PART)
        if not keep:
            await turn.session.compaction_failed("there is nothing to summarise")
        return await self._compact(turn, rows, keep)

    async def _compact(self, turn: TurnContext, rows: Sequence[Message], keep: int) -> bool:
        """Compact, if there is something to summarise and nothing forbids it."""
        if not keep or not await turn.session.may_compact():
            return False
        room = int(self._settings.compact_at * self._settings.context_tokens) * _CHARS_OF_A_TOKEN
        text = SUMMARISE + to_summarise(rows[:-keep], room)
        failure, answer = await self._asking.once(
            turn, Conversation("", [], rows=[Message(role="user", content=text, seq=1)])
        )
        summary = answer.text.strip() if answer is not None else ""
        if answer is None or not summary or failure.kind not in {CallOutcome.ANSWERED, CallOutcome.LENGTH}:
            await turn.session.compaction_failed(failure.detail or failure.kind, failure.used)
            return False
        await turn.session.compact(summary, keep, answer.used)
        return True
