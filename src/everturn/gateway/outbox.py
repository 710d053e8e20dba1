"""Delivering: one reply at a time to each key, in order, with its key; retried, looked for, or given up visibly."""

from __future__ import annotations

import asyncio

import structlog

from everturn import points
from everturn.decide.approval_words import buttons
from everturn.decide.delivery import GiveUp, after_failure, marked, when_uncertain
from everturn.decide.streaming import visible
from everturn.decide.text import split
from everturn.errors import OutcomeUnknown, PlatformError, StoreError, TryLater
from everturn.gateway.bubbles import Bubbles
from everturn.gateway.hands import Hand, Held
from everturn.gateway.parts import Parts
from everturn.gateway.screens import Screen
from everturn.gateway.shaping import shape
from everturn.model import Bubble, Reply
from everturn.platform.interface import CanAsk, CanEdit, CanReadBack, CanSend, Choice
from everturn.store.operations.bubbles import REPLY
from everturn.store.operations.outbox import (
    claim_next,
    doubt,
    give_up,
    record_part,
    record_progress,
    record_sent,
    record_shown,
    try_later,
)
from everturn.store.operations.progress import PROGRESS

log = structlog.get_logger()
NOT_CONNECTED_S = 60.0
QUESTION = "question"


class Outbox:
    """A lane per key that has something to send; no lane, no memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.bubbles = Bubbles(parts)
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._asleep: set[str] = set()
        self._stopping = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._busy = 0  # lanes that claim or send; one that waits until its reply is due does not count

    def send(self, reply: Reply) -> None:
        """Send a reply that is already ours."""
        self._open_lane(reply.key, reply)

    def wake(self, key: str) -> None:
        """The key may owe somebody a reply."""
        if key in self._lanes:
            self._again.add(key)
        else:
            self._open_lane(key, None)

    def hurry(self, key: str) -> None:
        """The key owes a reply that is due now: a lane that sleeps until a later one is due looks again."""
        if key in self._asleep:
            self._lanes[key].cancel()
        else:
            self.wake(key)

    async def quiet(self) -> None:
        """Wait until nothing is due or being sent."""
        await self._quiet.wait()

    async def stop(self) -> None:
        """Let go; what was not confirmed is the next life's."""
        self._stopping = True
        self.bubbles.stop()
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)

    def _open_lane(self, key: str, reply: Reply | None) -> None:
        if self._stopping:
            return
        waiting = self._lanes.get(key)
        self._count(1)
        task = asyncio.create_task(self._run_lane(key, reply, waiting), name=f"outbox {key}")
        task.add_done_callback(lambda _: self._count(-1))
        self._lanes[key] = task

    def _count(self, change: int) -> None:
        self._busy += change
        self._quiet.clear() if self._busy else self._quiet.set()

    async def _run_lane(self, key: str, reply: Reply | None, before: asyncio.Task[None] | None) -> None:
        """Send until the key owes nothing. A lane that is ending is waited for, so that order holds."""
        if before is not None:
            await asyncio.wait({before})
        try:
            while reply is not None or (reply := await self._next(key)) is not None:
                more = await self._deliver(reply)
                reply = None
                if not more and key not in self._again:
                    break
                self._again.discard(key)
        except StoreError as error:
            log.warning("lane ended", key=key, error=str(error))  # the store is closing: what is owed stays so
        except asyncio.CancelledError:
            self._again.add(key)  # unless all of us stop, another lane goes on with what is owed
            raise
        finally:
            if self._lanes.get(key) is asyncio.current_task():
                del self._lanes[key]
                if key in self._again:
                    self._again.discard(key)
                    self.wake(key)

    async def _next(self, key: str) -> Reply | None:
        """The key's next reply, waited for while it is not due."""
        while True:
            found = await self._claim(key)
            if not isinstance(found, float):
                return found
            self._count(-1)
            self._asleep.add(key)
            try:
                await self._parts.clock.sleep(max(0.0, found - self._parts.clock.now()))
            finally:
                self._asleep.discard(key)
                self._count(1)

    async def _claim(self, key: str) -> Reply | float | None:
        """Who is cancelled releases: what was claimed and never sent is simply owed again."""
        store, now = self._parts.store, self._parts.clock.now()
        claiming = store.run(claim_next, key, self._parts.instance, now)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait({claiming})
            if claiming.exception() is None and isinstance(reply := claiming.result(), Reply):
                await store.run(try_later, reply.id, now, "")
            raise

    async def _deliver(self, reply: Reply) -> bool:
        """Send every part that is not out yet; True when the lane should look for more."""
        began, outcome, more = self._parts.clock.monotonic(), "sent", True
        try:
            more = await self._send_parts(reply)
        except PlatformError as error:
            outcome = await self._failed(reply, error)
        except Held as held:
            await self._parts.store.run(doubt, reply.id, held.action, self._parts.clock.now(), str(held))
            outcome = "doubtful"
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  an adapter that breaks its word must not end the lane
            outcome = await self._failed(reply, OutcomeUnknown(f"{type(error).__name__}: {error}"))
        self._parts.observing.delivered(reply, began, outcome)
        self._parts.hub.changes.note("outbox", "platforms")
        return more

    async def _send_parts(self, reply: Reply) -> bool:
        platform = self._parts.sender(reply.source.platform)
        if platform is None:
            raise TryLater(f"{reply.source.platform} is not connected", NOT_CONNECTED_S)
        if reply.kind == PROGRESS and reply.sent_parts and isinstance(platform, CanEdit):
            return await self._edit(platform, reply)
        if reply.bubble is not None and (screen := self._parts.screen(reply.source.platform)) is not None:
            return await self._shape(platform, screen, reply, reply.bubble)
        said = visible(reply.text, finished=True) if reply.kind == REPLY else reply.text
        text = marked(said) if reply.marked and said else said
        pieces = split(text, platform.limits.text, platform.limits.unit)
        out = reply.sent_parts
        for place in range(len(out), len(pieces)):
            key = f"{reply.id}-{place}"
            points.reached("send.before")
            found = await _look(platform, reply, key, pieces[place]) if place == len(reply.sent_parts) else None
            last = place + 1 == len(pieces)
            out = (*out, found or await _send(platform, reply, pieces[place], key, last=last))
            points.reached("send.after")
            if place + 1 < len(pieces):
                await self._parts.store.run(record_part, reply.id, out)
        return await self._sent(reply, out)

    async def _shape(self, platform: CanSend, screen: Screen, reply: Reply, bubble: Bubble) -> bool:
        """The last step of what was shown while it grew; what this process knows of its screen is taken over."""
        live = await self.bubbles.settled(bubble)
        hand = live.hand if live is not None else None
        if hand is None:
            hand = Hand(self._parts, reply.source, platform, screen, row=reply.id, out=reply.sent_parts, bubble=bubble)
        hand.row = reply.id
        try:
            await shape(hand, reply, live)
        except Held:
            await hand.give_up()
            raise
        more = await self._parts.store.run(record_shown, reply, hand.out, hand.known, self._parts.clock.now())
        self.bubbles.forget(live)
        points.reached("send.committed")
        return more

    async def _edit(self, platform: CanEdit, reply: Reply) -> bool:
        """Replace what is on the screen; doing so again does no harm."""
        points.reached("send.before")
        await platform.edit(reply.source, reply.sent_parts[0], reply.text)
        points.reached("send.after")
        return await self._sent(reply, reply.sent_parts)

    async def _sent(self, reply: Reply, out: tuple[str, ...]) -> bool:
        store, now = self._parts.store, self._parts.clock.now()
        if reply.kind == PROGRESS:
            more = await store.run(record_progress, reply, out, now)
        else:
            more = await store.run(record_sent, reply.id, out, now, reply.key)
        points.reached("send.committed")
        self._parts.contacts.sent(reply.source.platform, reply.source.account)
        return more

    async def _failed(self, reply: Reply, error: PlatformError) -> str:
        """Put it where it belongs now; what the try counts as."""
        store, now = self._parts.store, self._parts.clock.now()
        platform = self._parts.sender(reply.source.platform)
        decision = after_failure(error, reply.attempts + 1, now, valid_until=reply.valid_until)
        log.warning("reply not delivered", reply=reply.id, key=reply.key, error=str(error), decision=decision)
        if isinstance(decision, GiveUp):
            await store.run(give_up, reply.id, now, decision.why)
            return "dead"
        if isinstance(error, OutcomeUnknown) and platform is not None and not _harmless(reply, platform):
            action = when_uncertain(platform.surety, self._parts.settings.on_doubt_for(reply.source.platform))
            await store.run(doubt, reply.id, action, decision.at, str(error))
            return "doubtful"
        await store.run(try_later, reply.id, decision.at, str(error))
        return "retried"


def _harmless(reply: Reply, platform: object) -> bool:
    """Whether doing it again changes nothing: an edit."""
    return reply.kind == PROGRESS and bool(reply.sent_parts) and isinstance(platform, CanEdit)


async def _send(platform: CanSend, reply: Reply, piece: str, key: str, *, last: bool) -> str:
    """A part; beneath the last one of a question stand its buttons, where the platform has them."""
    if last and reply.kind == QUESTION and isinstance(platform, CanAsk):
        choices = [Choice(label, command) for label, command in buttons(reply.id)]
        return await platform.ask(reply.source, piece, choices, key)
    return await platform.send(reply.source, piece, key)


async def _look(platform: object, reply: Reply, key: str, piece: str) -> str | None:
    """Whether the part that was being sent when we were cut off is out already."""
    if reply.look and isinstance(platform, CanReadBack):
        return await platform.find(reply.source, key, piece)
    return None
