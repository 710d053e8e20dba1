"""The session resources of an agent beside the transcript: frozen prompt, chosen model, compaction."""

from __future__ import annotations

from everturn import points
from everturn.agent.interface import NO_USAGE
from everturn.model import ToolCall, Usage
from everturn.sessions.rows.compaction import Compaction, compact, compaction_failed, compaction_wanted, may_compact
from everturn.sessions.rows.freezing import freeze, frozen
from everturn.sessions.rows.transcripts import calls_of_turn
from everturn.turns.attempt import Attempt
from everturn.turns.rows.turns import called_apart


class SessionResources:
    """The session context of agent/interface.py, on the store."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._parts = attempt.parts
        self._store = attempt.parts.store

    @property
    def model(self) -> str | None:
        """The model that /model chose for the session."""
        return self._attempt.begun.model

    async def frozen(self, prompt: str, *, keep: bool = True) -> str:
        """The session's frozen prompt; the given one when it has none yet, which is frozen with `keep`."""
        known = await self._store.read(frozen, self._attempt.begun.session_id)
        if known is not None or not keep:
            return prompt if known is None else known
        return await self._store.run(freeze, self._attempt.begun.session_id, prompt)

    async def compaction_wanted(self) -> bool:
        """Whether the user asked for a compaction."""
        return await self._store.read(compaction_wanted, self._attempt.begun.session_id)

    async def may_compact(self) -> bool:
        """Whether a compaction may be tried now; an interrupt or a command that waits comes first."""
        return await self._store.read(may_compact, self._attempt.begun, self._parts.clock.now())

    async def compact(self, summary: str, keep: int, usage: Usage = NO_USAGE) -> None:
        """Move to a child session with the summary; from the commit on this attempt writes there."""
        move = Compaction(
            session_id=self._parts.ids.session(), summary=summary, keep=keep, at=self._parts.clock.now(), usage=usage
        )
        moved = await self._store.run(compact, self._attempt.begun, move)
        points.reached("session.compacted")
        self._parts.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        self._attempt.begun, self._attempt.seq = moved.begun, moved.last

    async def used_ids(self) -> set[str]:
        """The ids of the turn's calls, also of those that a compaction left in another session."""
        return set(await used_calls(self._attempt))

    async def called_apart(self, usage: Usage) -> None:
        """Count a model call whose answer is no row of the transcript."""
        self._parts.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        await self._store.run(called_apart, self._attempt.begun, usage)

    async def compaction_failed(self, why: str, usage: Usage = NO_USAGE) -> None:
        """Store that a compaction failed: the next try waits longer."""
        if (asked_at := self._attempt.pop_asked_at()) is not None:
            self._parts.observing.model_failed(self._attempt.begun, asked_at, usage)
        number, now = self._parts.ids.next(), self._parts.clock.now()
        await self._store.run(compaction_failed, self._attempt.begun, number, why, now, usage)


async def used_calls(attempt: Attempt) -> dict[str, ToolCall]:
    """The turn's calls by their ids; those of earlier attempts are read once."""
    if attempt.used is None:
        attempt.used = await attempt.parts.store.read(calls_of_turn, attempt.begun.session_id, attempt.begun.turn)
    return attempt.used
