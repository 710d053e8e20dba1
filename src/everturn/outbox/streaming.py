"""The streaming message: an answer that is shown while it is written, and becomes the reply in place."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.errors import EverturnError, OutcomeUnknown, Refused, StoreError, TryLater
from everturn.ids import Instance
from everturn.model import Bubble, Reply, SessionSource
from everturn.outbox.late_requests import InFlightRequests, check_claim
from everturn.outbox.rows.outbox import record_bubble
from everturn.outbox.rows.streaming import BROKEN_OFF, PAUSED, Closed, Opening, open_bubble, still_ours
from everturn.outbox.rules.delivery import Surety, UnknownAction, marked, send_key
from everturn.outbox.rules.outbox_texts import NOTHING_SAID, SUPERSEDED, beneath
from everturn.outbox.rules.streaming import (
    Display,
    Growth,
    Look,
    Pace,
    answering,
    growing,
    grown,
    next_place,
    resolved,
    room,
    so_far,
    stated,
    visible,
    wait_s,
    with_marks,
    with_resend_mark,
)
from everturn.outbox.rules.text import split
from everturn.platform.connected import Platforms
from everturn.platform.interface import CanSend
from everturn.platform.screens import MessageScreen, find_sent
from everturn.store.interface import Store
from everturn.turns.rows.turn_values import StartedTurn

log = structlog.get_logger()
LAST_CALL_S = 30.0  # how long to wait for a running change
LOOK_AGAIN_S = 0.2  # the least time until opening a bubble is retried
MOST_REPEATED = 1  # how often streaming repeats a part that may be out, where people see each repetition
KEPT = 1000  # when there are more bubbles, those that have ended and are not being delivered are forgotten


class StreamingMessage:
    """Shows the answer of one turn in chat while it streams."""

    def __init__(
        self,
        bubbles: Bubbles,
        begun: Callable[[], StartedTurn],
        platform: CanSend,
        screen: MessageScreen,
        *,
        pace: Pace,
        look: Look,
    ) -> None:
        self._bubbles = bubbles
        self._clock = bubbles.instance.clock
        self._begun = begun
        self._platform = platform
        self._screen = screen
        self._pace = pace
        self._look = look
        self.text = ""  # the text of the turn so far
        self.before = ""  # the part of it before the last tool call: it stays above what follows
        self.writer: MessageWriter | None = None  # None: the bubble is not opened
        self.began = False  # the bubble is being opened, or was
        self._status = ""  # the progress line beneath the text, until there is more text
        self._seen = ""  # the text that is on the screen
        self._at = self._clock.monotonic()  # when the screen was changed
        self._slow, self._not_before, self._unknown = 1.0, 0.0, 0
        self._boundary = self._closed = self._refused = False
        self._changed, self._urgent = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        """Show the text of the current model response so far; it replaces the earlier text of the same response."""
        if self._task is None:
            self._at = self._clock.monotonic()
        self.text, self._status, self._boundary = so_far(self.before, text, self._look), "", False
        self._go_on()

    def keep_text(self, text: str) -> None:
        """Keep the committed text of a response with tool calls above what follows."""
        self.text = self.before = stated(self.before, text, self._look)
        self.flush()

    def show_status(self, text: str) -> None:
        """Show a progress line until there is more of the answer."""
        self._status = text
        self.flush()

    def flush(self) -> None:
        """Show all of the text soon: the model has ended its text for now."""
        self._boundary = True
        if self.text or self._status:
            self._go_on()
            self._urgent.set()

    def close(self) -> None:
        """Show nothing more; a running change ends."""
        self._closed = True
        self._changed.set()
        self._urgent.set()

    async def settle(self, seconds: float = LAST_CALL_S) -> None:
        """Close, and wait at most `seconds` until the last change has ended."""
        self.close()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """Close, and cancel a running change: the process ends."""
        self.close()
        if self._task is not None:
            self._task.cancel()

    @property
    def hold_s(self) -> float:
        """How many seconds the platform asked us to wait."""
        return max(0.0, self._not_before - self._clock.monotonic())

    @property
    def done(self) -> bool:
        """Whether nothing will be changed any more."""
        return self._closed and (self._task is None or self._task.done())

    def _go_on(self) -> None:
        self._changed.set()
        if self._task is None and not self._closed:
            self.began = True
            self._task = asyncio.create_task(self._run(), name=f"bubble {self._begun().turn}")

    async def _run(self) -> None:
        try:
            while not self._closed and not self._refused:
                await self._changed.wait()
                self._changed.clear()
                await self._until_due()
                if not self._closed:
                    await self._try_to_show()
        except StoreError as error:
            log.debug("streaming ended", session_key=self._begun().key, error=str(error))

    async def _until_due(self) -> None:
        while not self._closed and (wait := wait_s(self._pace, self._growth())) > 0:
            self._urgent.clear()
            await self._pause(wait)

    def _growth(self) -> Growth:
        return Growth(
            since_s=self._clock.monotonic() - self._at,
            grown=grown(self._seen, self.text),
            first=self.writer is None or not self.writer.out,
            boundary=self._boundary,
            slow=self._slow,
            hold_s=self.hold_s,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait until the time is over or a flush is requested."""
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._urgent.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _try_to_show(self) -> None:
        self._at = self._clock.monotonic()
        try:
            await self._show()
        except (TryLater, OutcomeUnknown) as error:
            self._slow *= 2
            self._unknown += isinstance(error, DeliveryUnknown) and self._platform.surety is Surety.NEITHER
            self._refused = self._unknown > MOST_REPEATED  # then only the final delivery repeats: it counts how often
            delay_s = error.delay_s if isinstance(error, TryLater) else 0.0
            if isinstance(error, DeliveryUnknown) and self._platform.surety is not Surety.KEYED:
                delay_s = self._bubbles.in_flight.seconds
            self._not_before = self._clock.monotonic() + delay_s
            self._changed.set()
        except (Refused, DeliveryHeld) as error:
            self._refused = True  # the final delivery finds out what can be done
            log.info("streaming message not shown", session_key=self._begun().key, error=str(error))

    async def _show(self) -> None:
        """Send or edit every part that does not show the current text."""
        text, status = self.text, self._status
        if not self._pieces(text, status) or not await self._ours():
            return
        writer = self.writer
        if writer is None:
            return
        writer.said = text
        for place, piece in enumerate(self._pieces(text, status)):
            if place == len(writer.out) or not writer.out[place]:
                await writer.add(place, piece)
            await writer.change(place, piece)
        self._seen = text

    def _pieces(self, text: str, status: str) -> list[str]:
        limits, replaces = self._platform.limits, self.writer.bubble.replaces if self.writer else ()
        limit = room(limits.text, limits.unit, replaces)
        if status:
            pieces = split(beneath(visible(text, finished=False, look=self._look), status), limit, limits.unit)
        else:
            pieces = growing(text, limit, limits.unit, self._pace.cursor, self._look)
        return with_marks(pieces, replaces)

    async def _ours(self) -> bool:
        """Whether this attempt may show the bubble; opens it before the first text is sent."""
        if self.writer is None:
            return await self._open()
        ours = await self._bubbles.store.read(still_ours, self._begun(), self.writer.bubble.opening)
        self._closed = self._closed or not ours
        return ours

    async def _open(self) -> bool:
        begun = self._begun()
        opening = Opening(
            number=self._bubbles.instance.ids.next(),
            instance=self._bubbles.instance.number,
            at=self._clock.now(),
            on_unknown=self._bubbles.platforms.unknown_action(begun.source.platform),
        )
        self._bubbles.opening[opening.number] = self
        try:
            opened = await self._bubbles.store.run(open_bubble, begun, opening)
        finally:
            del self._bubbles.opening[opening.number]
        points.reached("preview.opened")
        if isinstance(opened, Closed):
            self._refused = opened.for_good
            self._not_before = self._clock.monotonic() + max(LOOK_AGAIN_S, self._pace.interval_s)
            self._changed.set()  # opening is retried then, whether or not there is more text
            return False
        self.writer = MessageWriter(
            self._bubbles, begun.source, self._platform, self._screen,
            row=begun.turn, claim=opening.number, out=opened.parts, bubble=opened.bubble,
        )  # fmt: skip
        self._bubbles.opened(self)
        if self._closed:  # meanwhile: nothing was sent, and the final delivery is the next to write
            self.writer.bubble = replace(opened.bubble, sending=None)
            return False
        bubble, keyed = opened.bubble, self._platform.surety is Surety.KEYED
        left_s = self._bubbles.in_flight.left_s(bubble.unsettled) if bubble.unsettled else 0.0
        # A late edit is repaired in the end. But a part is looked for once, and what replaces another has to stand beneath it.
        if left_s > 0 and not keyed and (bubble.repeats or bubble.replaces):
            self._not_before = self._clock.monotonic() + left_s
            self._changed.set()
            return False
        return True


class Bubbles:
    """The bubbles that this process shows, and those that are not delivered yet. Their writers use its store, settings and
    platforms.
    """

    def __init__(
        self, store: Store, instance: Instance, display: Display, platforms: Platforms, in_flight: InFlightRequests
    ) -> None:
        self.store = store
        self.instance = instance
        self.display = display
        self.platforms = platforms
        self.in_flight = in_flight
        self.opening: dict[int, StreamingMessage] = {}  # by the number of the opening that is being committed
        self._live: dict[str, StreamingMessage] = {}

    def begin(self, begun: Callable[[], StartedTurn]) -> StreamingMessage | None:
        """The streaming message of a turn; None where the platform cannot stream or streaming is off."""
        source = begun().source
        platform, screen = self.platforms.senders.get(source.platform), self.platforms.screens.get(source.platform)
        pace, look = self.display.pace(source), self.display.look(source)
        if platform is None or screen is None or not pace.enabled:
            return None
        return StreamingMessage(self, begun, platform, screen, pace=pace, look=look)

    async def settle(self, bubble: Bubble, row: int, claim: int) -> StreamingMessage | None:
        """End the streaming of a bubble for its delivery; returns what this process knows, None if another showed it last.
        A running change ends under the claim of the delivery.
        """
        live = self.opening.get(bubble.opening) or self._live.get(bubble.name)
        if live is None:
            return None
        writer = None
        for settled in (False, True):  # a change that runs may open the message just now
            if (writer := live.writer) is not None and writer.bubble.opening == bubble.opening:
                writer.row, writer.claim = row, claim
            if not settled:
                await live.settle()
        # A held message that is sent after all was decided elsewhere: the row says how.
        ours = writer is not None and writer.bubble.opening == bubble.opening and writer.bubble.hold is None
        return live if ours else None

    def forget(self, live: StreamingMessage | None) -> None:
        """Drop a bubble whose final text is delivered."""
        name = live.writer.bubble.name if live is not None and live.writer is not None else ""
        if self._live.get(name) is live:
            self._live.pop(name, None)

    def stop(self) -> None:
        """Cancel all streaming: the process ends."""
        for each in self._live.values():
            each.cancel()

    def opened(self, live: StreamingMessage) -> None:
        """Remember a bubble that was opened, until its final text is delivered."""
        if live.writer is not None:
            if len(self._live) >= KEPT:
                self._live = {name: each for name, each in self._live.items() if not each.done}
            self._live[live.writer.bubble.name] = live


# The only writer of a streaming message, for previews and final delivery.
# A new part is recorded, sent, recorded: a crash in between is seen in the row, and decided by the platform's class.


class DeliveryHeld(EverturnError):
    """The delivery of a part is unknown, and the owner's policy is not to repeat it: to ask, or to drop it."""

    def __init__(self, action: UnknownAction) -> None:
        super().__init__("a part of the message may have been sent")
        self.action = action


class DeliveryUnknown(OutcomeUnknown):
    """The delivery of a new part is unknown."""


def digest(text: str) -> str:
    """A short hash of the text of a part."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_end(out: tuple[str, ...]) -> tuple[str, ...]:
    """The parts up to the last that was sent."""
    return out[: max((place + 1 for place, part in enumerate(out) if part), default=0)]


class MessageWriter:
    """Writes the parts of one bubble; knows their ids and, where possible, the text that each shows."""

    def __init__(
        self,
        bubbles: Bubbles,
        to: SessionSource,
        platform: CanSend,
        screen: MessageScreen,
        *,
        row: int,
        claim: int,
        out: tuple[str, ...],
        bubble: Bubble,
    ) -> None:
        self.row = row
        self.claim = claim  # the number under which the row is ours to write
        self.to = to
        self.out = out
        self.bubble = replace(bubble, shown=())  # while it writes, only it knows what its parts show
        self.screen = screen
        self.platform = platform
        self.said = bubble.said
        self._bubbles = bubbles
        self._instance = bubbles.instance
        known = bubble.shown[: len(out)]
        self._shown = [*known, *[""] * (len(out) - len(known))]

    @property
    def known(self) -> Bubble:
        """The bubble, with the hashes of what its parts show."""
        return replace(self.bubble, shown=tuple(self._shown), said=self.said)

    def shows(self, place: int, piece: str) -> bool:
        """Whether a part is known to show this text."""
        return self._shown[place] == digest(piece)

    async def change(self, place: int, piece: str) -> None:
        """Replace the text of a part, unless it shows it already."""
        if not self.shows(place, piece):
            if self._instance.clock.monotonic() > self._instance.safe_until:
                await self._check()
            self._shown[place] = ""
            await self.screen.change(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)

    async def end(self, place: int, piece: str) -> None:
        """Set the final text of a part; a card is closed whatever it shows."""
        if self.screen.closes:
            await self._check()
            await self.screen.end(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)
        else:
            await self.change(place, piece)

    async def remove(self, place: int) -> bool:
        """Delete a part that the answer does not need; False where it has to stay."""
        await self._check()
        if not await self.screen.remove(self.to, self.out[place]):
            return False
        points.reached("preview.removed")
        self.out = _without_end((*self.out[:place], "", *self.out[place + 1 :]))
        await self._keep(self.bubble)
        return True

    async def add(self, place: int, piece: str) -> None:
        """Send a new part, or one in the place of a part that is gone."""
        if self.bubble.sending != place:
            await self._keep(replace(self.bubble, sending=place))
            points.reached("preview.opened")
        repeats = self.bubble.repeats
        number = await self._sent(place, piece)
        points.reached("preview.sent")
        self.out = (*self.out[:place], number, *self.out[place + 1 :])
        self._shown[place:] = ["" if repeats else digest(piece), *self._shown[place + 1 :]]
        await self._keep(replace(self.bubble, sending=None, repeats=False, said=self.said))
        points.reached("preview.committed")

    async def find(self, place: int, piece: str) -> None:
        """Look for the next part, which may be out, and record it. Where looking proves nothing, it is sent under its key."""
        key = send_key(self.bubble.name, place, self.bubble.replaces)
        found = await find_sent(self.platform, self.to, key, piece)
        if found is None and self.platform.surety is Surety.KEYED:
            await self.add(place, piece)
            return
        if found is not None:
            self.out = (*self.out[:place], found, *self.out[place + 1 :])
            self._shown[place:] = ["", *self._shown[place + 1 :]]
        await self._keep(replace(self.bubble, repeats=False))

    async def _sent(self, place: int, piece: str) -> str:
        key = send_key(self.bubble.name, place, self.bubble.replaces)
        try:
            found = await find_sent(self.platform, self.to, key, piece) if self.bubble.repeats else None
            to = answering(self.to, self._bubbles.display.look(self.to), place)
            if found is None and self._instance.clock.monotonic() > self._instance.safe_until:
                await self._check()
            return found or await self.screen.show(to, piece, key)
        except (TryLater, Refused):
            await self._keep(replace(self.bubble, sending=None))
            raise
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever an adapter raises, the part may be out
            await self._mark_unknown(error)

    async def _mark_unknown(self, error: Exception) -> NoReturn:
        if self.platform.surety is not Surety.KEYED:
            self._bubbles.in_flight.unanswered(self.row)
        await self.resolve()
        raise DeliveryUnknown(f"{type(error).__name__}: {error}") from error

    async def resolve(self) -> None:
        """Decide about a part whose delivery is unknown: repeat, look for or mark it; or, by policy, raise DeliveryHeld."""
        if self.bubble.sending is not None:
            await self._keep(resolved(self.bubble, self._bubbles.platforms.unknown_action(self.to.platform)))
        if (hold := self.bubble.hold) is not None:
            raise DeliveryHeld(UnknownAction(hold))

    async def mark_for_resend(self) -> None:
        """Record that the held part is marked as a possible repetition, should somebody send it after all."""
        await self._keep(with_resend_mark(self.bubble, self.out))

    async def lose(self, place: int) -> None:
        """Record that a part cannot be edited any more: another one replaces it, and says so."""
        self.out = (*self.out[:place], "", *self.out[place + 1 :])
        self._shown[place] = ""
        await self._keep(replace(self.bubble, replaces=(*self.bubble.replaces, place)))

    async def _check(self) -> None:
        """Raise FenceLost where others have taken the message over while this process stood still."""
        if self._instance.clock.monotonic() > self._instance.safe_until:
            await check_claim(self._bubbles.store, self._instance, self.row, self.claim)

    async def _keep(self, bubble: Bubble) -> None:
        self.bubble = bubble
        await self._bubbles.store.run(record_bubble, self.row, self.claim, self.out, bubble)


# The final delivery of a streaming message: the chat shows the text of the outbox row, once, without a cursor.


MOST_TIMES = 3  # how often a part that cannot be edited is replaced


async def shape(writer: MessageWriter, reply: Reply, live: StreamingMessage | None, look: Look) -> bool:
    """Bring every part to the final text, by content; may be repeated from the start. False: there is nothing to say.

    Raises what the platform raises, and DeliveryHeld where a part may be out that must not be sent again.
    """
    await writer.resolve()
    text = _text(writer, reply, live, look)
    points.reached("send.before")
    while not await _repaired(writer, text, final=reply.kind != PAUSED):
        pass
    points.reached("send.after")
    return bool(text)


def _text(writer: MessageWriter, reply: Reply, live: StreamingMessage | None, look: Look) -> str:
    if reply.kind not in {BROKEN_OFF, PAUSED}:
        text = visible(reply.text, finished=True, look=look)
    else:
        said = live.text if live is not None and live.text else writer.bubble.said
        text = beneath(visible(said, finished=False, look=look), reply.text)
    return marked(text) if reply.marked and text else text


async def _repaired(writer: MessageWriter, text: str, *, final: bool) -> bool:
    """Edit, add and remove parts; False when a part was found to be gone, so that its place has to be filled again."""
    limits, replaces = writer.platform.limits, writer.bubble.replaces
    pieces = with_marks(split(text, room(limits.text, limits.unit, replaces), limits.unit), replaces)
    for place, piece in enumerate(pieces):
        if place == len(writer.out) or not writer.out[place]:
            await writer.add(place, piece)
        try:
            await (writer.end if final else writer.change)(place, piece)
        except Refused:
            if replaces.count(place) >= MOST_TIMES:
                raise
            await writer.lose(place)
            return False
    text = SUPERSEDED if pieces else NOTHING_SAID
    if final and (writer.bubble.repeats or writer.bubble.replaces):
        await _resolve_extra_part(writer, text)
    for place in reversed(range(len(pieces), len(writer.out))):
        await _clear(writer, place, text, final=final)
    return True


async def _resolve_extra_part(writer: MessageWriter, text: str) -> None:
    """Find or replace a next part that may be out and that the answer does not need, so that no stray text is left."""
    place = next_place(writer.out)
    if writer.bubble.repeats:
        await writer.find(place, text)
    elif place in writer.bubble.replaces:
        await writer.add(place, _replacing(text))


def _replacing(text: str) -> str:
    return with_marks([text], (0,))[0]


async def _clear(writer: MessageWriter, place: int, text: str, *, final: bool) -> None:
    """Remove a part that the answer does not need; where that cannot be, its text says why it is there. A part that
    replaces another stays: the other may still be above it.
    """
    if place in writer.bubble.replaces:
        text = _replacing(text)
    elif final and writer.out[place] and await writer.remove(place):
        return
    if not writer.out[place]:
        return
    with suppress(Refused):  # what is left there is no part of the answer
        await (writer.end if final else writer.change)(place, text)
