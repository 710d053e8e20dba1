"""The sender of the outbox: delivers one reply at a time per session key, in order; retries, or makes a dead letter."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.errors import FenceLost, OutcomeUnknown, PlatformError, StoreError
from everturn.lifecycle.parts import Parts
from everturn.model import Reply
from everturn.outbox.bubbles import Bubbles
from everturn.outbox.delivering import Delivering
from everturn.outbox.rows.outbox import DamagedReply, claim_next, make_dead_letter, mark_unknown, parts_out, try_later
from everturn.outbox.rows.tool_messages import make_file_dead_letter
from everturn.outbox.rows.unknown import ask_about_delivery
from everturn.outbox.rules.delivery import NO_USE, DeadLetter, UnknownAction, after_failure, is_ordered, is_too_late
from everturn.outbox.rules.files import not_sent
from everturn.outbox.rules.text import storable
from everturn.outbox.writer import DeliveryHeld
from everturn.pauses import pause_s
from everturn.platform.interface import CanEdit, CanSendFiles
from everturn.sessions.rules.keys import origin_of
from everturn.turns.rows.progress import PROGRESS

log = structlog.get_logger()
LOOK_AGAIN_S = 0.5


class ReplySender:
    """Runs one lane (task) for each session key that has pending replies."""

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
        """Send a reply that this process has claimed."""
        self._look_again(reply.key)
        self._open_lane(reply.key, reply)

    def wake(self, key: str) -> None:
        """Look for pending replies of the key."""
        if not self._look_again(key):
            self._open_lane(key, None)

    def _look_again(self, key: str) -> bool:
        """Wake the key's lane, if it has one: the reply that it waits for may have ended, or be due by now."""
        if key in self._asleep:
            self._asleep[key].cancel()
        if key in self._lanes:
            self._again.add(key)
        return key in self._lanes

    async def quiet(self) -> None:
        """Wait until no reply is due or being sent."""
        await self._quiet.wait()

    async def stop(self) -> None:
        """End all lanes; the next process delivers what was not confirmed."""
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
        """Send until the key has nothing pending. Waits for a lane that is ending, so that order holds."""
        try:
            if before is not None:
                await asyncio.wait({before})
            failures = 0
            while not await self._send_all(key, reply, failures):
                failures, reply = failures + 1, None
        except StoreError as error:
            log.warning("lane ended", session_key=key, error=str(error))  # the store is closing: replies stay pending
        except asyncio.CancelledError:
            self._again.add(key)  # unless the process stops, another lane goes on with the pending replies
            # What this lane asked of the store may be committed after the next lane has looked, on another connection.
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self.wake, key)
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
            log.warning("reply taken over", reply=reply and reply.id, session_key=key)
            return False
        except StoreError:
            raise
        except Exception as error:
            log.exception("outbox lane failed", session_key=key, reply=reply and reply.id, error=repr(error))
            await self._sleep_until(self._parts.clock.now() + pause_s(failures + 1, random.random()), key)  # noqa: S311  no secret
            if reply is not None:
                await self._put_back(reply)
            return False
        return True

    async def _put_back(self, reply: Reply) -> None:
        """Release a reply whose outcome could not be recorded: a claim that stayed would block its key until a restart."""
        store, now = self._parts.store, self._parts.clock.now()
        with suppress(FenceLost):
            await store.run(
                mark_unknown, reply, self._parts.unknown_action(reply.source.platform), now, "outcome not recorded"
            )

    async def _next(self, key: str) -> Reply | None:
        """Claim the key's next reply; waits while it is not due."""
        while True:
            self._again.discard(key)
            await _ask_about_deliveries(self._parts, key)
            found = await self._claim(key)
            if isinstance(found, DamagedReply):
                log.error(
                    "reply damaged", reply=found.id, session_key=key, error=found.why,
                    remedy="it is a dead letter: see it and send it again with `everturn dead`",
                )  # fmt: skip
            elif not isinstance(found, float):
                return found
            elif key not in self._again:
                await self._sleep_until(found, key)

    async def _sleep_until(self, at: float, key: str) -> None:
        """Sleep until then, or until the lane is woken."""
        clock = self._parts.clock
        sleeping = self._asleep[key] = asyncio.ensure_future(clock.sleep(max(0.0, at - clock.now())))
        self._count(-1)
        try:
            await asyncio.wait({sleeping})
        finally:
            sleeping.cancel()
            del self._asleep[key]
            self._count(1)

    async def _claim(self, key: str) -> Reply | float | DamagedReply | None:
        """Claim the key's next reply; when cancelled, release it: a reply that was claimed and never sent is pending again."""
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
        """Send the unsent parts of a reply; True when the lane should look for more."""
        began, outcome, more = self._parts.clock.monotonic(), "sent", True
        try:
            until = reply.valid_until
            if until is not None and is_too_late(until, self._parts.clock.now(), seen=_may_be_seen(reply)):
                outcome = await self._dead_letter(reply, NO_USE, unknown=reply.marked)
            else:
                more = await self._delivering.send(reply)
        except PlatformError as error:
            outcome = await self._failed(reply, error)
        except DeliveryHeld as held:
            await self._parts.store.run(mark_unknown, reply, held.action, self._parts.clock.now(), str(held))
            outcome = "unknown"
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  an adapter that raises anything else must not end the lane
            outcome = await self._failed(reply, OutcomeUnknown(f"{type(error).__name__}: {error}"))
        self._parts.observing.delivered(reply, began, outcome)
        self._parts.hub.changes.note("outbox", "platforms")
        return more

    async def _failed(self, reply: Reply, error: PlatformError) -> str:
        """Record a failed send: retry, delivery unknown or dead letter. Returns the outcome for the metrics."""
        store, now, ordered = self._parts.store, self._parts.clock.now(), is_ordered(error)
        reply = replace(reply, sent_parts=await store.read(parts_out, reply.id))  # with the parts that this try sent
        harmless, valid_until = _harmless(reply, error, self._parts), None if _may_be_seen(reply) else reply.valid_until
        decision = after_failure(
            error, reply.attempts + 1, reply.failures + 1, now, valid_until=valid_until, harmless=harmless
        )
        told = storable(str(error))  # a stranger wrote it, and it goes into the row
        log.warning("reply not delivered", reply=reply.id, session_key=reply.key, error=told, decision=decision)
        if isinstance(decision, DeadLetter):
            unknown = reply.marked or isinstance(error, OutcomeUnknown)
            return await self._dead_letter(reply, storable(decision.why), unknown=unknown)
        if isinstance(error, OutcomeUnknown) and reply.bubble is None and not _is_edit(reply, self._parts):
            action = self._parts.unknown_action(reply.source.platform)
            await store.run(mark_unknown, reply, action, decision.at, told)
            return "unknown"
        await store.run(try_later, reply, decision.at, told, failed=not ordered)
        return "retried"

    async def _dead_letter(self, reply: Reply, why: str, *, unknown: bool) -> str:
        """Make the reply a dead letter; those who wait for a file, or for its text, get a notice as well."""
        store, now = self._parts.store, self._parts.clock.now()
        if reply.file is not None:
            text = not_sent(
                reply.file.name,
                why,
                out=len(reply.sent_parts),
                text=bool(reply.text),
                files=isinstance(self._parts.sender(reply.source.platform), CanSendFiles),
                unknown=unknown,
            )
            await store.run(make_file_dead_letter, reply, now, why, self._parts.ids.next(), text)
        else:
            await store.run(make_dead_letter, reply, now, why)
        return "dead"


async def _ask_about_deliveries(parts: Parts, key: str) -> None:
    """Queue delivery requests for the key's replies whose delivery is unknown, where the policy is to ask the chat."""
    if parts.settings.on_unknown_delivery_for(origin_of(key)[0]) == UnknownAction.ASK:
        while await parts.store.run(ask_about_delivery, key, parts.ids.next(), parts.clock.now()):
            points.reached("delivery.asked")


def _may_be_seen(reply: Reply) -> bool:
    """Whether people see a part of the reply, or may see the first text of its streaming message."""
    bubble = reply.bubble
    return any(reply.sent_parts) or (bubble is not None and (bubble.sending is not None or bubble.repeats))


def _is_edit(reply: Reply, parts: Parts) -> bool:
    """Whether sending the reply only edits a sent message."""
    platform = parts.sender(reply.source.platform)
    return reply.kind == PROGRESS and bool(reply.sent_parts) and isinstance(platform, CanEdit)


def _harmless(reply: Reply, error: PlatformError, parts: Parts) -> bool:
    """Whether a repetition shows nothing twice: it edits a sent message, or the platform recognises it."""
    if isinstance(error, OutcomeUnknown) and not _is_edit(reply, parts):
        return parts.unknown_action(reply.source.platform) in {UnknownAction.REPEAT, UnknownAction.LOOK}
    return reply.bubble is not None or _is_edit(reply, parts)
