"""Operator actions: each is committed, then the loops of this process are woken. If the process dies between the two, the
next start finds the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from everturn import points
from everturn.ids import Instance
from everturn.model import Json
from everturn.operator.rows.actions import Act, Acted, Impossible, act_on_message, act_on_reply, act_on_session
from everturn.outbox.hub import Hub
from everturn.outbox.sender import ReplySender
from everturn.platform.connected import Contacts, Platforms
from everturn.store.interface import Op, Store
from everturn.turns.scheduler import Scheduler

DOES: dict[str, Callable[[Act], Op[Acted | Impossible]]] = {
    "session": act_on_session,
    "message": act_on_message,
    "reply": act_on_reply,
}


class Operator:
    """Applies operators' actions to sessions, messages and replies."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        platforms: Platforms,
        *,
        contacts: Contacts,
        hub: Hub,
        turns: Scheduler,
        outbox: ReplySender,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._platforms = platforms
        self._contacts = contacts
        self._hub = hub
        self._turns = turns
        self._outbox = outbox

    async def act(self, what: str, action: str, target: str, action_id: str, actor: str) -> Acted | Impossible:
        """Do something to a session, a message or a reply, once for each id; returns after the commit."""
        self._turns.streams.hold(target, held=True)
        act = Act(
            id=action_id, action=action, target=target, actor=actor, at=self._clock.now(), number=self._instance.ids.next(),
            session_id=self._instance.ids.session(), by_event=self._platforms.event_platforms(),
            streamed=self._turns.streams.of(target),
        )  # fmt: skip
        acting = self._store.run(DOES[what], act)
        # What follows the commit happens even if the request is cancelled meanwhile.
        acting.add_done_callback(self._follow)
        acting.add_done_callback(lambda _: self._turns.streams.hold(target, held=False))
        return await asyncio.shield(acting)

    def platforms(self) -> dict[tuple[str, str], Json]:
        """The platforms of this process, and whether they are connected."""
        return self._contacts.connected()

    def _follow(self, acting: asyncio.Future[Acted | Impossible]) -> None:
        acted = None if acting.cancelled() or acting.exception() else acting.result()
        if not isinstance(acted, Acted):
            return
        points.reached("action.committed")
        if acted.stopped is not None:
            self._turns.stop_turn(acted.key, acted.stopped)
            self._hub.ended(acted.key)
        self._hub.publish(acted.key, acted.events)
        self._turns.wake(acted.key)
        self._outbox.wake(acted.key)
