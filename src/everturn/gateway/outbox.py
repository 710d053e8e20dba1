"""Delivering: one reply at a time to each key, in order, with its key; retried, looked for, or given up visibly."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.decide.delivery import NO_USE, Doubtful, GiveUp, after_failure, is_ordered, is_too_late
from everturn.decide.keys import origin_of
from everturn.decide.outgoing import not_sent
from everturn.decide.reconnecting import pause_s
from everturn.decide.text import storable
from everturn.errors import FenceLost, OutcomeUnknown, PlatformError, StoreError
from everturn.gateway.bubbles import Bubbles
from everturn.gateway.delivering import Delivering
from everturn.gateway.hands import Held
from everturn.gateway.parts import Parts
from everturn.model import Reply
from everturn.platform.interface import CanEdit, CanSendFiles
from everturn.store.operations.doubts import ask_about_doubt
from everturn.store.operations.outbox import Damaged, claim_next, doubt, give_up, parts_out, try_later
from everturn.store.operations.progress import PROGRESS
from everturn.store.operations.sending import give_up_file

log = structlog.get_logger()


class Outbox:
    """A lane per key that has something to send; no lane, no memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.bubbles = Bubbles(parts)
        self._delivering = Delivering(parts, self.bubbles)
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._asleep: dict[str, asyncio.Task[None]] = {}  # lanes whose next reply is not due, by what they wait for
        self._stopping = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._busy = 0  # lanes that claim or send; one that waits until its reply is due does not count

    def send(self, reply: Reply) -> None:
        """Send a reply that is already ours."""
        self._look_again(reply.key)
        self._open_lane(reply.key, reply)

    def wake(self, key: str) -> None:
        """The key may owe somebody a reply."""
        if not self._look_again(key):
            self._open_lane(key, None)

    def _look_again(self, key: str) -> bool:
        """Let the key's lane look again, if it has one: what it sleeps for may have ended, or be due by now."""
        if key in self._asleep:
            self._asleep[key].cancel()
        if key in self._lanes:
            self._again.add(key)
        return key in self._lanes

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
        try:
            if before is not None:
                await asyncio.wait({before})
            failures = 0
            while not await self._send_all(key, reply, failures):
                failures, reply = failures + 1, None
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

    async def _send_all(self, key: str, reply: Reply | None, failures: int) -> bool:
        """Send until the key has nothing pending. False, after a pause: an operation failed, and the lane looks again, so that
        the key is not forgotten until a restart. Raises StoreError when the store is closing.
        """
        try:
            while reply is not None or (reply := await self._next(key)) is not None:
                more = await self._deliver(reply)
                reply = None
                if not more and key not in self._again:
                    break
                self._again.discard(key)
        except FenceLost:  # recovery or an owner took it from us: nothing more of it leaves here
            log.warning("reply taken over", reply=reply and reply.id, key=key)
            return False
        except StoreError:
            raise
        except Exception as error:
            log.exception("outbox lane failed", key=key, reply=reply and reply.id, error=repr(error))
            await self._sleep_until(self._parts.clock.now() + pause_s(failures + 1, random.random()), key)  # noqa: S311  no secret
            if reply is not None:
                await self._put_back(reply)
            return False
        return True

    async def _put_back(self, reply: Reply) -> None:
        """What came of a send could not be recorded; a reply that stayed ours would keep its key waiting until a restart."""
        store, now = self._parts.store, self._parts.clock.now()
        with suppress(FenceLost):
            await store.run(doubt, reply, self._parts.doubtful(reply.source.platform), now, "it could not be recorded")

    async def _next(self, key: str) -> Reply | None:
        """The key's next reply, waited for while it is not due."""
        while True:
            self._again.discard(key)
            await _ask(self._parts, key)
            found = await self._claim(key)
            if isinstance(found, Damaged):
                log.error(
                    "reply damaged", reply=found.id, key=key, error=found.why,
                    remedy="it is a dead letter: look at it and send it again with `everturn dead`",
                )  # fmt: skip
            elif not isinstance(found, float):
                return found
            elif key not in self._again:
                await self._sleep_until(found, key)

    async def _sleep_until(self, at: float, key: str) -> None:
        """Until then, or until it is roused."""
        clock = self._parts.clock
        sleeping = self._asleep[key] = asyncio.ensure_future(clock.sleep(max(0.0, at - clock.now())))
        self._count(-1)
        try:
            await asyncio.wait({sleeping})
        finally:
            sleeping.cancel()
            del self._asleep[key]
            self._count(1)

    async def _claim(self, key: str) -> Reply | float | Damaged | None:
        """Who is cancelled releases: what was claimed and never sent is simply owed again."""
        store, now = self._parts.store, self._parts.clock.now()
        claiming = store.run(claim_next, key, self._parts.instance, self._parts.ids.next(), now)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait({claiming})
            if claiming.exception() is None and isinstance(reply := claiming.result(), Reply):
                with suppress(FenceLost):
                    await store.run(try_later, reply, now, "", failed=False)
            raise

    async def _deliver(self, reply: Reply) -> bool:
        """Send every part that is not out yet; True when the lane should look for more."""
        began, outcome, more = self._parts.clock.monotonic(), "sent", True
        try:
            until = reply.valid_until
            if until is not None and is_too_late(until, self._parts.clock.now(), seen=_may_be_seen(reply)):
                outcome = await self._given_up(reply, NO_USE, unknown=reply.marked)
            else:
                more = await self._delivering.send(reply)
        except PlatformError as error:
            outcome = await self._failed(reply, error)
        except Held as held:
            await self._parts.store.run(doubt, reply, held.action, self._parts.clock.now(), str(held))
            outcome = "doubtful"
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  an adapter that breaks its word must not end the lane
            outcome = await self._failed(reply, OutcomeUnknown(f"{type(error).__name__}: {error}"))
        self._parts.observing.delivered(reply, began, outcome)
        self._parts.hub.changes.note("outbox", "platforms")
        return more

    async def _failed(self, reply: Reply, error: PlatformError) -> str:
        """Put it where it belongs now; what the try counts as."""
        store, now, ordered = self._parts.store, self._parts.clock.now(), is_ordered(error)
        reply = replace(reply, sent_parts=await store.read(parts_out, reply.id))  # with what this try brought out
        harmless, valid_until = _harmless(reply, error, self._parts), None if _may_be_seen(reply) else reply.valid_until
        decision = after_failure(
            error, reply.attempts + 1, reply.failures + 1, now, valid_until=valid_until, harmless=harmless
        )
        told = storable(str(error))  # a stranger wrote it, and it goes into the row
        log.warning("reply not delivered", reply=reply.id, key=reply.key, error=told, decision=decision)
        if isinstance(decision, GiveUp):
            unknown = reply.marked or isinstance(error, OutcomeUnknown)
            return await self._given_up(reply, storable(decision.why), unknown=unknown)
        if isinstance(error, OutcomeUnknown) and reply.bubble is None and not _is_edit(reply, self._parts):
            action = self._parts.doubtful(reply.source.platform)
            await store.run(doubt, reply, action, decision.at, told)
            return "doubtful"
        await store.run(try_later, reply, decision.at, told, failed=not ordered)
        return "retried"

    async def _given_up(self, reply: Reply, why: str, *, unknown: bool) -> str:
        """A dead letter; who waits for a file, or for the words after it, is told as well."""
        store, now = self._parts.store, self._parts.clock.now()
        if reply.file is not None:
            text = not_sent(
                reply.file.name,
                why,
                out=len(reply.sent_parts),
                words=bool(reply.text),
                files=isinstance(self._parts.sender(reply.source.platform), CanSendFiles),
                unknown=unknown,
            )
            await store.run(give_up_file, reply, now, why, self._parts.ids.next(), text)
        else:
            await store.run(give_up, reply, now, why)
        return "dead"


async def _ask(parts: Parts, key: str) -> None:
    """Where the owner wants people to decide, the chat is asked about what may or may not have arrived."""
    if parts.settings.on_doubt_for(origin_of(key)[0]) == Doubtful.ASK:
        while await parts.store.run(ask_about_doubt, key, parts.ids.next(), parts.clock.now()):
            points.reached("doubt.asked")


def _may_be_seen(reply: Reply) -> bool:
    """Whether something of it is on the screen, or first words that grow there may be."""
    bubble = reply.bubble
    return any(reply.sent_parts) or (bubble is not None and (bubble.sending is not None or bubble.repeats))


def _is_edit(reply: Reply, parts: Parts) -> bool:
    """Whether it only changes what is out."""
    platform = parts.sender(reply.source.platform)
    return reply.kind == PROGRESS and bool(reply.sent_parts) and isinstance(platform, CanEdit)


def _harmless(reply: Reply, error: PlatformError, parts: Parts) -> bool:
    """Whether doing it again shows nothing twice: a change of what is out, or what the platform recognises."""
    if isinstance(error, OutcomeUnknown) and not _is_edit(reply, parts):
        return parts.doubtful(reply.source.platform) in {Doubtful.REPEAT, Doubtful.LOOK}
    return reply.bubble is not None or _is_edit(reply, parts)
