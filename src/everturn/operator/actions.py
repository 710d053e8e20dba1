"""Operator actions: each is committed, then the loops of this process are woken. If the process dies between the two, the
next start finds the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from everturn import points
from everturn.lifecycle.parts import Parts
from everturn.model import Json
from everturn.operator.rows.actions import Act, Acted, Impossible, act_on_message, act_on_reply, act_on_session
from everturn.outbox.sender import ReplySender
from everturn.store.interface import Op
from everturn.turns.scheduler import Scheduler

DOES: dict[str, Callable[[Act], Op[Acted | Impossible]]] = {
    "session": act_on_session,
    "message": act_on_message,
    "reply": act_on_reply,
}


class Operator:
    """Applies operators' actions to sessions, messages and replies."""

    def __init__(self, parts: Parts, turns: Scheduler, outbox: ReplySender) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox

    async def act(self, what: str, action: str, target: str, action_id: str, actor: str) -> Acted | Impossible:
        """Do something to a session, a message or a reply, once for each id; returns after the commit."""
        parts = self._parts
        self._turns.streams.hold(target, held=True)
        act = Act(
            id=action_id, action=action, target=target, actor=actor, at=parts.clock.now(), number=parts.ids.next(),
            session_id=parts.ids.session(), by_event=parts.event_platforms(),
            streamed=self._turns.streams.of(target),
        )  # fmt: skip
        acting = parts.store.run(DOES[what], act)
        # What follows the commit happens even if the request is cancelled meanwhile.
        acting.add_done_callback(self._follow)
        acting.add_done_callback(lambda _: self._turns.streams.hold(target, held=False))
        return await asyncio.shield(acting)

    def platforms(self) -> dict[tuple[str, str], Json]:
        """The platforms of this process, and whether they are connected."""
        return self._parts.contacts.connected()

    def _follow(self, acting: asyncio.Future[Acted | Impossible]) -> None:
        acted = None if acting.cancelled() or acting.exception() else acting.result()
        if not isinstance(acted, Acted):
            return
        points.reached("action.committed")
        if acted.stopped is not None:
            self._turns.stop_turn(acted.key, acted.stopped)
            self._parts.hub.ended(acted.key)
        self._parts.hub.publish(acted.key, acted.events)
        self._turns.wake(acted.key)
        self._outbox.wake(acted.key)
