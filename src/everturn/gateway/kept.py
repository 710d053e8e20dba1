"""What a session keeps for its agent beside the transcript: the frozen prompt, the chosen model, compaction."""

from __future__ import annotations

from everturn.agent.interface import NO_USAGE
from everturn.gateway.attempt import Attempt
from everturn.model import Usage
from everturn.store.operations.freezing import freeze, frozen


class KeptSession:
    """The session context of agent/interface.py, on the store."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._store = attempt.parts.store

    @property
    def model(self) -> str | None:
        """The model its user chose for it."""
        return self._attempt.begun.model

    async def frozen(self, prompt: str) -> str:
        """The session's frozen prompt; the given one when it has none yet."""
        known = await self._store.read(frozen, self._attempt.begun.session_id)
        return known if known is not None else await self._store.run(freeze, self._attempt.begun.session_id, prompt)

    async def may_compact(self) -> bool:
        """Whether a compaction may be tried now."""
        return False

    async def compact(self, summary: str, keep: int, usage: Usage = NO_USAGE) -> None:
        """Go on in a child session."""

    async def compaction_failed(self, why: str) -> None:
        """A compaction could not be made."""
