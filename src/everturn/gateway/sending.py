"""Messages that tools send: committed as owed with the call that wants them, then delivered like every reply."""

from __future__ import annotations

import asyncio
from functools import partial

from everturn import points
from everturn.agent.interface import TurnContext
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.model import SessionSource
from everturn.store.operations.sending import Letter, Posted, post


class Sending:
    """What the send tool is given."""

    def __init__(self, parts: Parts, outbox: Outbox) -> None:
        self._parts = parts
        self._outbox = outbox

    async def send(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str) -> bool:
        """Owe this message, to the turn's own chat where none is named; False when nobody can be reached there yet.

        The same call again sends nothing more.
        """
        letter = self._letter(turn, call_id, to, text)
        posting = self._parts.store.run(post, letter)
        # What follows the commit happens even if this task is cancelled meanwhile.
        posting.add_done_callback(partial(self._posted, letter))
        return await asyncio.shield(posting) is not None

    def _letter(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str) -> Letter:
        parts, target = self._parts, turn.source if to is None else to
        return Letter(
            key=turn.key,
            turn=int(turn.id),
            call_id=call_id,
            number=parts.ids.next(),
            to_key=turn.key if to is None else parts.settings.key_of(target),
            to=target,
            text=text,
            at=parts.clock.now(),
            delivery=parts.delivery(target.platform),
            instance=parts.instance,
        )

    def _posted(self, letter: Letter, posting: asyncio.Future[Posted | None]) -> None:
        if posting.cancelled() or posting.exception() is not None:
            return  # who waits is told
        posted = posting.result()
        if posted is None:
            return
        points.reached("message.owed")
        if letter.delivery.by_event:
            self._parts.hub.publish(letter.to_key, posted.events)
        elif posted.reply is not None:
            self._outbox.send(posted.reply)
        else:
            self._outbox.wake(letter.to_key)
