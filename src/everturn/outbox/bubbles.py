"""Bubble: the internal name of a streaming message, i.e. one chat message that is edited while the answer streams.

One task per bubble makes its changes serial. The outbox row is the truth: the delivery of the answer uses what is known
here, and where nothing is known (another process streamed) it corrects every part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from everturn import points
from everturn.errors import OutcomeUnknown, Refused, StoreError, TryLater
from everturn.lifecycle.parts import Parts
from everturn.model import Bubble
from everturn.outbox.rows.previews import Closed, Opening, open_bubble, still_ours
from everturn.outbox.rules.bubble_texts import beneath
from everturn.outbox.rules.delivery import Surety
from everturn.outbox.rules.streaming import (
    Growth,
    Look,
    Pace,
    growing,
    grown,
    room,
    so_far,
    stated,
    visible,
    wait_s,
    with_marks,
)
from everturn.outbox.rules.text import split
from everturn.outbox.screens import MessageScreen
from everturn.outbox.writer import DeliveryHeld, DeliveryUnknown, MessageWriter
from everturn.platform.interface import CanSend
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
        parts: Parts,
        begun: Callable[[], StartedTurn],
        platform: CanSend,
        screen: MessageScreen,
        *,
        pace: Pace,
        look: Look,
        opened: Callable[[StreamingMessage], None],
    ) -> None:
        self._parts = parts
        self._begun = begun
        self._platform = platform
        self._screen = screen
        self._pace = pace
        self._look = look
        self._on_opened = opened
        self.text = ""  # the text of the turn so far
        self.before = ""  # the part of it before the last tool call: it stays above what follows
        self.writer: MessageWriter | None = None  # None: the bubble is not opened
        self.began = False  # the bubble is being opened, or was
        self._status = ""  # the progress line beneath the text, until there is more text
        self._seen = ""  # the text that is on the screen
        self._at = parts.clock.monotonic()  # when the screen was changed
        self._slow, self._not_before, self._unknown = 1.0, 0.0, 0
        self._boundary = self._closed = self._refused = False
        self._changed, self._urgent = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        """Show the text of the current model response so far; it replaces the earlier text of the same response."""
        if self._task is None:
            self._at = self._parts.clock.monotonic()
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
        return max(0.0, self._not_before - self._parts.clock.monotonic())

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
            since_s=self._parts.clock.monotonic() - self._at,
            grown=grown(self._seen, self.text),
            first=self.writer is None or not self.writer.out,
            boundary=self._boundary,
            slow=self._slow,
            hold_s=self.hold_s,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait until the time is over or a flush is requested."""
        waits = [asyncio.ensure_future(self._parts.clock.sleep(seconds)), asyncio.ensure_future(self._urgent.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _try_to_show(self) -> None:
        self._at = self._parts.clock.monotonic()
        try:
            await self._show()
        except (TryLater, OutcomeUnknown) as error:
            self._slow *= 2
            self._unknown += isinstance(error, DeliveryUnknown) and self._platform.surety is Surety.NEITHER
            self._refused = self._unknown > MOST_REPEATED  # then only the final delivery repeats: it counts how often
            delay_s = error.delay_s if isinstance(error, TryLater) else 0.0
            self._not_before = self._parts.clock.monotonic() + delay_s
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
        ours = await self._parts.store.read(still_ours, self._begun(), self.writer.bubble.opening)
        self._closed = self._closed or not ours
        return ours

    async def _open(self) -> bool:
        parts, begun = self._parts, self._begun()
        opening = Opening(
            number=parts.ids.next(),
            instance=parts.instance,
            at=parts.clock.now(),
            on_unknown=parts.unknown_action(begun.source.platform),
        )
        opened = await parts.store.run(open_bubble, begun, opening)
        points.reached("preview.opened")
        if isinstance(opened, Closed):
            self._refused = opened.for_good
            self._not_before = parts.clock.monotonic() + max(LOOK_AGAIN_S, self._pace.interval_s)
            self._changed.set()  # opening is retried then, whether or not there is more text
            return False
        self.writer = MessageWriter(
            parts, begun.source, self._platform, self._screen,
            row=begun.turn, claim=opening.number, out=opened.parts, bubble=opened.bubble,
        )  # fmt: skip
        self._on_opened(self)
        return True


class Bubbles:
    """The bubbles that this process shows, and those that are not delivered yet."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._live: dict[str, StreamingMessage] = {}

    def begin(self, begun: Callable[[], StartedTurn]) -> StreamingMessage | None:
        """The streaming message of a turn; None where the platform cannot stream or streaming is off."""
        source = begun().source
        platform, screen = self._parts.sender(source.platform), self._parts.screen(source.platform)
        pace, look = self._parts.settings.display.pace(source), self._parts.settings.display.look(source)
        if platform is None or screen is None or not pace.enabled:
            return None
        return StreamingMessage(self._parts, begun, platform, screen, pace=pace, look=look, opened=self._opened)

    async def settle(self, bubble: Bubble, row: int, claim: int) -> StreamingMessage | None:
        """End the streaming of a bubble for its delivery; returns what this process knows, None if another showed it last.
        A running change ends under the claim of the delivery.
        """
        live = self._live.get(bubble.name)
        if live is None:
            return None
        if live.writer is not None and live.writer.bubble.opening == bubble.opening:
            live.writer.row, live.writer.claim = row, claim
        await live.settle()
        known = live.writer.bubble if live.writer is not None else None
        # A held message that is sent after all was decided elsewhere: the row says how.
        return live if known is not None and known.opening == bubble.opening and known.hold is None else None

    def forget(self, live: StreamingMessage | None) -> None:
        """Drop a bubble whose final text is delivered."""
        name = live.writer.bubble.name if live is not None and live.writer is not None else ""
        if self._live.get(name) is live:
            self._live.pop(name, None)

    def stop(self) -> None:
        """Cancel all streaming: the process ends."""
        for each in self._live.values():
            each.cancel()

    def _opened(self, live: StreamingMessage) -> None:
        if live.writer is not None:
            if len(self._live) >= KEPT:
                self._live = {name: each for name, each in self._live.items() if not each.done}
            self._live[live.writer.bubble.name] = live
