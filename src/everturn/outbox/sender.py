"""Sends the replies of the outbox: each session in order, each part once, and again only where that cannot double it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.commands.rows.commands import ask_about_delivery
from everturn.errors import FenceLost, OutcomeUnknown, PlatformError, Refused, StoreError, TryLater
from everturn.home.files import Media
from everturn.home.rules import Upload
from everturn.ids import Instance
from everturn.inbox import rules
from everturn.lifecycle.settings import Settings
from everturn.model import Bubble, Reply, StoredFile
from everturn.outbox.hub import Hub
from everturn.outbox.late_requests import InFlightRequests, check_claim
from everturn.outbox.rows.outbox import (
    SILENCE,
    DamagedReply,
    claim_next,
    make_dead_letter,
    make_file_dead_letter,
    mark_unknown,
    parts_out,
    record_part,
    record_progress,
    record_sent,
    record_shown,
    record_silence,
    try_later,
)
from everturn.outbox.rows.streaming import PAUSED, REPLY
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import (
    NO_USE,
    DeadLetter,
    UnknownAction,
    after_failure,
    is_ordered,
    is_too_late,
    marked,
    send_key,
)
from everturn.outbox.rules.streaming import Display, Look, answering, may_be_seen, visible
from everturn.outbox.rules.text import LOST, beneath_file, not_here, not_sent, split, storable
from everturn.outbox.streaming import Bubbles, DeliveryHeld, MessageWriter, shape
from everturn.pauses import pause_s
from everturn.people.rules.people_texts import answer_buttons
from everturn.platform.connected import Contacts, Platforms
from everturn.platform.interface import CanAsk, CanEdit, CanReadBack, CanSend, CanSendFiles, Choice, Outgoing
from everturn.platform.screens import MessageScreen
from everturn.sessions.rules.keys import origin_of
from everturn.store.interface import Store
from everturn.telemetry.observing import Observing
from everturn.turns.rows.turns import PROGRESS
from everturn.turns.rules.turn_texts import buttons

log = structlog.get_logger()
T = TypeVar("T")
NOT_CONNECTED_S = 60.0
LATE_CLAIM_S = 0.5  # a claim that took longer may have been taken away since it was committed


class ReplySender:
    """Runs one lane (task) for each session key that has pending replies."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        platforms: Platforms,
        *,
        contacts: Contacts,
        hub: Hub,
        observing: Observing,
        media: Media | None,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._platforms = platforms
        self._hub = hub
        self._observing = observing
        in_flight = InFlightRequests(instance.clock, settings.in_flight_s)
        self.bubbles = Bubbles(store, instance, settings.display, platforms, in_flight)
        self._delivering = Delivering(
            store, instance, settings.display, platforms, contacts=contacts, media=media, bubbles=self.bubbles
        )
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._asleep: dict[str, asyncio.Task[None]] = {}  # lanes whose next reply is not due, by what they wait for
        self._stopping = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._late: set[int] = set()  # replies whose claim is checked before they are sent
        self._busy = 0  # lanes that claim or send; one that waits until its reply is due does not count

    def send(self, reply: Reply, asked_at: float) -> None:
        """Send a reply that this process has claimed with the commit that it asked for at this time."""
        if self._clock.now() - asked_at > LATE_CLAIM_S:
            self._late.add(reply.id)
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

    def knows(self, key: str) -> bool:
        """Whether this process has a lane for the key."""
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
            await self._sleep_until(
                self._clock.now() + pause_s(failures + 1, self._instance.machine.chance.random()), key
            )
            if reply is not None:
                await self._put_back(reply)
            return False
        return True

    async def _put_back(self, reply: Reply) -> None:
        """Release a reply whose outcome could not be recorded: a claim that stayed would block its key until a restart."""
        store, now = self._store, self._clock.now()
        with suppress(FenceLost):
            action = self._platforms.unknown_action(reply.source.platform)
            await _settled(store.run(mark_unknown, reply, action, now, "outcome not recorded"))

    async def _next(self, key: str) -> Reply | None:
        """Claim the key's next reply; waits while it is not due."""
        while True:
            self._again.discard(key)
            if self._settings.on_unknown_delivery_for(origin_of(key)[0]) == UnknownAction.ASK:
                # Queue delivery requests for its replies whose delivery is unknown.
                while await _settled(
                    self._store.run(ask_about_delivery, key, self._instance.ids.next(), self._clock.now())
                ):
                    points.reached("delivery.asked")
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
        clock = self._clock
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
        store, now = self._store, self._clock.now()
        claiming = store.run(claim_next, key, self._instance.number, self._instance.ids.next(), now)
        try:
            found = await _settled(claiming)
        except asyncio.CancelledError:
            # When it is cancelled twice, the claim may still be open; the next process finds it.
            if claiming.done() and claiming.exception() is None and isinstance(reply := claiming.result(), Reply):
                with suppress(FenceLost):
                    await _settled(store.run(try_later, reply, now, "", failed=False))
            raise
        if isinstance(found, Reply) and self._clock.now() - now > LATE_CLAIM_S:
            self._late.add(found.id)
        return found

    async def _deliver(self, reply: Reply) -> bool:
        """Send the unsent parts of a reply; True when the lane should look for more."""
        began, outcome, more = self._clock.monotonic(), "sent", True
        try:
            if reply.id in self._late:  # its receiver may have been revoked while the claim was on its way back
                self._late.discard(reply.id)
                await check_claim(self._store, self._instance, reply.id, reply.claim, LATE_CLAIM_S)
            elif began > self._instance.safe_until:  # others may have taken this process for dead
                await check_claim(self._store, self._instance, reply.id, reply.claim)
            until = reply.valid_until
            if until is not None and is_too_late(until, self._clock.now(), seen=_may_be_seen(reply)):
                outcome = await self._dead_letter(reply, NO_USE, unknown=reply.marked)
            else:
                more = await self._delivering.send(reply)
        except PlatformError as error:
            outcome = await self._failed(reply, error)
        except DeliveryHeld as held:
            await _settled(self._store.run(mark_unknown, reply, held.action, self._clock.now(), str(held)))
            outcome = "unknown"
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  an adapter that raises anything else must not end the lane
            outcome = await self._failed(reply, OutcomeUnknown(f"{type(error).__name__}: {error}"))
        self._observing.delivered(reply, began, outcome)
        self._hub.changes.note("outbox", "platforms")
        return more

    async def _failed(self, reply: Reply, error: PlatformError) -> str:
        """Record a failed send: retry, delivery unknown or dead letter. Returns the outcome for the metrics."""
        store, now, ordered = self._store, self._clock.now(), is_ordered(error)
        reply = replace(reply, sent_parts=await store.read(parts_out, reply.id))  # with the parts that this try sent
        harmless, valid_until = self._harmless(reply, error), None if _may_be_seen(reply) else reply.valid_until
        decision = after_failure(
            error, reply.attempts + 1, reply.failures + 1, now, valid_until=valid_until, harmless=harmless
        )
        told = storable(str(error))  # a stranger wrote it, and it goes into the row
        log.warning("reply not delivered", reply=reply.id, session_key=reply.key, error=told, decision=decision)
        if isinstance(decision, DeadLetter):
            unknown = reply.marked or isinstance(error, OutcomeUnknown)
            return await self._dead_letter(reply, storable(decision.why), unknown=unknown)
        if isinstance(error, OutcomeUnknown) and reply.bubble is None and not self._is_edit(reply):
            self.bubbles.in_flight.unanswered(reply.id)
            action = self._platforms.unknown_action(reply.source.platform)
            await _settled(store.run(mark_unknown, reply, action, decision.at, told))
            return "unknown"
        await _settled(store.run(try_later, reply, decision.at, told, failed=not ordered))
        return "retried"

    async def _dead_letter(self, reply: Reply, why: str, *, unknown: bool) -> str:
        """Make the reply a dead letter; those who wait for a file, or for its text, get a notice as well."""
        store, now = self._store, self._clock.now()
        if reply.file is not None:
            text = not_sent(
                reply.file.name,
                why,
                out=len(reply.sent_parts),
                text=bool(reply.text),
                files=isinstance(self._platforms.senders.get(reply.source.platform), CanSendFiles),
                unknown=unknown,
            )
            await _settled(store.run(make_file_dead_letter, reply, now, why, self._instance.ids.next(), text))
        else:
            await _settled(store.run(make_dead_letter, reply, now, why))
        return "dead"

    def _is_edit(self, reply: Reply) -> bool:
        """Whether sending the reply only edits a sent message."""
        platform = self._platforms.senders.get(reply.source.platform)
        return reply.kind == PROGRESS and bool(reply.sent_parts) and isinstance(platform, CanEdit)

    def _harmless(self, reply: Reply, error: PlatformError) -> bool:
        """Whether a repetition shows nothing twice: it edits a sent message, or the platform recognises it."""
        if isinstance(error, OutcomeUnknown) and not self._is_edit(reply):
            return self._platforms.unknown_action(reply.source.platform) in {UnknownAction.REPEAT, UnknownAction.LOOK}
        return reply.bubble is not None or self._is_edit(reply)


async def _settled(writing: asyncio.Future[T]) -> T:
    """Await a write about a reply. A lane that is cancelled ends after it: the next lane, maybe on another connection, sees it."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing})
        raise


def _may_be_seen(reply: Reply) -> bool:
    """Whether people see a part of the reply, or may see the first text of its streaming message."""
    if reply.bubble is None:
        return any(reply.sent_parts)
    return may_be_seen(reply.bubble, reply.sent_parts)


class Delivering:
    """Sends one reply: its unsent parts, the final text of a streaming message, or a file; records each part when it is sent."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        display: Display,
        platforms: Platforms,
        *,
        contacts: Contacts,
        media: Media | None,
        bubbles: Bubbles,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._display = display
        self._platforms = platforms
        self._contacts = contacts
        self._media = media
        self._bubbles = bubbles

    async def send(self, reply: Reply) -> bool:
        """Send and record every unsent part; True when there is more to send. Raises PlatformError, DeliveryHeld."""
        platform = self._platforms.senders.get(reply.source.platform)
        if platform is None:
            raise TryLater(f"{reply.source.platform} is not connected", NOT_CONNECTED_S)
        if reply.file is not None:
            return await self._send_file(platform, reply, reply.file)
        if reply.kind == PROGRESS and reply.sent_parts and isinstance(platform, CanEdit):
            return await self._edit(platform, reply)
        if reply.bubble is not None and (screen := self._platforms.screens.get(reply.source.platform)) is not None:
            return await self._shape(platform, screen, reply, reply.bubble)
        look = self._display.look(reply.source)
        said = visible(reply.text, finished=True, look=look) if reply.kind == REPLY else reply.text
        if not said and reply.kind == REPLY:
            return await self._silent(reply)
        text = marked(said) if reply.marked else said
        return await self._send_each(platform, reply, split(text, platform.limits.text, platform.limits.unit), look)

    async def _send_each(self, platform: CanSend, reply: Reply, pieces: list[str], look: Look) -> bool:
        """Send the unsent parts, each with its key, and record each when it is sent. No part of a request has markup; the last
        one has the buttons, where the platform has them.
        """
        out, choices = reply.sent_parts, [] if reply.kind in {REPLY, PROGRESS} else _choices(reply)
        for place in range(len(out), len(pieces)):
            key, piece = send_key(reply.id, place), pieces[place]
            points.reached("send.before")
            number = None
            if reply.look and place == len(reply.sent_parts) and isinstance(platform, CanReadBack):
                self._wait_for(reply.id)
                number = await platform.find(reply.source, key, piece)  # it may be out since the send that was cut off
                await self._check(reply)
            last = place + 1 == len(pieces)
            to = answering(reply.source, look, place)
            if number is None and place == 0 and reply.file is not None and isinstance(platform, CanSendFiles):
                number = await platform.send_file(to, await self._outgoing(reply.file, piece), key)
            if number is None and choices and isinstance(platform, CanAsk):  # asked last: it is slow
                number = await platform.ask(to, piece, choices if last else [], key)
            out = (*out, number or await platform.send(to, piece, key))
            points.reached("send.after")
            if not last:
                await _settled(self._store.run(record_part, reply, out))
                await self._check(reply)
        return await self._sent(reply, out)

    async def _shape(self, platform: CanSend, screen: MessageScreen, reply: Reply, bubble: Bubble) -> bool:
        """Deliver the final text of a streaming message, with what this process knows of its parts."""
        live = await self._bubbles.settle(bubble, reply.id, reply.claim)
        if live is not None and live.hold_s > 0:
            raise TryLater(f"{reply.source.platform} asked us to wait", live.hold_s)
        writer = live.writer if live is not None else None
        if bubble.unsettled and reply.kind != PAUSED and not (live is not None and bubble.unsettled == bubble.opening):
            self._wait_for(bubble.unsettled)  # an edit that arrives after ours would stay
        if reply.id in self._bubbles.in_flight.since:
            self._wait_for(reply.id)
        if writer is None:  # from now on, what another process knows of its parts is no longer true
            writer = MessageWriter(
                self._bubbles, reply.source, platform, screen,
                row=reply.id, claim=reply.claim, out=reply.sent_parts, bubble=replace(bubble, opening=reply.claim),
            )  # fmt: skip
        try:
            spoken = await shape(writer, reply, live, self._display.look(reply.source))
        except DeliveryHeld:
            await writer.mark_for_resend()
            raise
        kind = reply.kind if spoken or reply.kind != REPLY else SILENCE
        more = await _settled(self._store.run(record_shown, reply, kind, writer.out, writer.known, self._clock.now()))
        self._bubbles.forget(live)
        points.reached("send.committed")
        return more

    def _wait_for(self, number: int) -> None:
        """Raise TryLater while a request that was not answered may still be in flight."""
        if (left_s := self._bubbles.in_flight.left_s(number)) > 0:
            raise TryLater("an earlier request may be in flight", left_s)

    async def _check(self, reply: Reply) -> None:
        """Raise FenceLost where others have taken the reply over while this process stood still."""
        if self._clock.monotonic() > self._instance.safe_until:
            await check_claim(self._store, self._instance, reply.id, reply.claim)

    async def _silent(self, reply: Reply) -> bool:
        """Record, without sending, an answer that only says that there is nothing to say."""
        more = await _settled(self._store.run(record_silence, reply, self._clock.now()))
        points.reached("send.committed")
        return more

    async def _send_file(self, platform: CanSend, reply: Reply, file: StoredFile) -> bool:
        """Send one file with its text as the caption or after it; only its name where the platform takes no files."""
        limits = platform.limits
        if isinstance(platform, CanSendFiles):
            caption = limits.text if limits.caption is None else limits.caption
            pieces = beneath_file(reply.text, caption, limits.text, limits.unit, unknown=reply.marked)
        else:
            text = marked(reply.text) if reply.marked else reply.text
            pieces = split(not_here(file.name, text), limits.text, limits.unit)
        return await self._send_each(platform, reply, pieces, self._display.look(reply.source))

    async def _outgoing(self, file: StoredFile, text: str) -> Outgoing:
        media, upload = self._media, Upload(file.id, file.name)
        if media is None or not await asyncio.to_thread(media.touch, upload):
            raise Refused(LOST)
        return Outgoing(media.path_of(upload), file.name, file.type, text)

    async def _edit(self, platform: CanEdit, reply: Reply) -> bool:
        """Edit the message that was sent; repeating the edit does no harm."""
        points.reached("send.before")
        await platform.edit(reply.source, reply.sent_parts[0], reply.text)
        points.reached("send.after")
        return await self._sent(reply, reply.sent_parts)

    async def _sent(self, reply: Reply, out: tuple[str, ...]) -> bool:
        store, now = self._store, self._clock.now()
        if reply.kind == PROGRESS:
            more = await _settled(store.run(record_progress, reply, out, now))
        else:
            more = await _settled(store.run(record_sent, reply, out, now))
        points.reached("send.committed")
        self._contacts.sent(reply.source.platform, reply.source.account)
        return more


def _choices(reply: Reply) -> list[Choice]:
    """The buttons of a request; none for other replies."""
    match reply.kind:
        case rules.BACKLOG_REQUEST | rules.BACKLOG_REQUEST_OF_ONE:
            shown = answer_buttons(several=reply.kind == rules.BACKLOG_REQUEST)
        case "approval_request":
            shown = buttons(reply.id)
        case "delivery_request" if reply.turn is not None:
            shown = outbox_texts.buttons(reply.turn)
        case _:
            return []
    return [Choice(label, command) for label, command in shown]
