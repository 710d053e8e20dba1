"""The queue of updates for the bot, as https://core.telegram.org/bots/api#getting-updates describes it.

An update stays until a *later* getUpdates names a higher offset; it is kept for 24 hours at most; of two programs that
poll at once the earlier is ended with 409; the list of allowed updates is remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from everturn.testing.telegram.state import DAY_S, ApiError, Object, PendingUpdate, State

MOST = 100
REMEMBERED = 1000
NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
OTHER_POLLER = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
HOOKED = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


@dataclass
class Queue:
    """The updates of one bot."""

    state: State
    now: Callable[[], float] = time.time
    reorder: bool = False  # on order: a batch comes in the wrong order
    polls: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _poller: asyncio.Event | None = None

    def add(self, kind: str, what: Object) -> int | None:
        """Queue an update; returns its id, None when the bot did not allow this kind.

        The queue holds a copy: an update shows what was so when it happened, whatever becomes of the message.
        """
        state = self.state
        wanted = kind in state.allowed if state.allowed else kind not in NOT_BY_DEFAULT
        if not wanted:
            return None
        update_id = state.next_update
        state.next_update += 1
        state.waiting.append(PendingUpdate({"update_id": update_id, kind: deepcopy(what)}, self.now()))
        self.notify()
        return update_id

    def jump(self, to: int = 1000) -> None:
        """Jump to another update id: after a week without updates the next one is random, and may be a lower one.

        https://core.telegram.org/bots/api#update
        """
        self.state.next_update = to

    def repeat(self, count: int = 1) -> None:
        """Deliver the latest confirmed updates once more, as after a confirmation that was lost."""
        self.state.again += self.state.confirmed[-count:] if count else []
        self.notify()

    def confirm(self, offset: int) -> None:
        """Confirm all updates before this offset; a negative one forgets all but so many.

        https://core.telegram.org/bots/api#getupdates (`offset`)
        """
        state = self.state
        self.forget_old()
        if offset <= 0:
            state.waiting = state.waiting[offset:] if offset else state.waiting
            return
        gone = [each for each in state.waiting if each.update["update_id"] < offset]
        state.waiting = [each for each in state.waiting if each.update["update_id"] >= offset]
        state.confirmed = [*state.confirmed, *gone][-REMEMBERED:]

    def forget_old(self) -> None:
        """Drop updates that are older than 24 hours. https://core.telegram.org/bots/api#getting-updates"""
        self.state.waiting = [each for each in self.state.waiting if self.now() - each.at < DAY_S]

    async def poll(self, offset: int, limit: int, timeout_s: float, allowed: Sequence[str] | None) -> list[Object]:
        """Wait up to `timeout_s` for the first update. https://core.telegram.org/bots/api#getupdates"""
        self.polls += 1
        if self.state.hook is not None:
            raise ApiError(409, HOOKED)
        if allowed is not None:
            self.state.allowed = list(allowed)
        if self._poller is not None:
            self._poller.set()
        sent_away = self._poller = asyncio.Event()
        self.confirm(offset)
        self.notify()
        try:
            return await self._wait(min(max(limit, 1), MOST), timeout_s, sent_away)
        finally:
            self._poller = None if self._poller is sent_away else self._poller

    async def _wait(self, limit: int, timeout_s: float, sent_away: asyncio.Event) -> list[Object]:
        until = asyncio.get_running_loop().time() + timeout_s
        while not (batch := self._batch(limit)):
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await either(self.changed, sent_away, timeout_s=left)
            if sent_away.is_set():
                raise ApiError(409, OTHER_POLLER)
        return batch

    def _batch(self, limit: int) -> list[Object]:
        state = self.state
        again, state.again = state.again[:limit], state.again[limit:]
        batch = [each.update for each in [*again, *state.waiting][:limit]]
        return batch[::-1] if self.reorder else batch

    def notify(self) -> None:
        """Wake everything that waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


async def either(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait for the first of the events, or until the timeout."""
    waits = {asyncio.ensure_future(each.wait()) for each in events}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
