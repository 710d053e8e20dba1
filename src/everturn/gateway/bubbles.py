"""Answers that grow on the screen: one task for each, so that the changes of one bubble are serial.

What it knows is a convenience, the row is the truth: who delivers the answer takes over what is known here, and where
nothing is known (another life) puts every part right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from everturn import points
from everturn.decide.bubble_words import beneath
from everturn.decide.delivery import Surety
from everturn.decide.streaming import (
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
from everturn.decide.text import split
from everturn.errors import OutcomeUnknown, Refused, StoreError, TryLater
from everturn.gateway.hands import Hand, Held, InDoubt
from everturn.gateway.parts import Parts
from everturn.gateway.screens import Screen
from everturn.model import Bubble
from everturn.platform.interface import CanSend
from everturn.store.operations.previews import Closed, Opening, open_bubble, still_ours
from everturn.store.operations.turn_values import Begun

log = structlog.get_logger()
LAST_CALL_S = 30.0  # how long a change that is under way is waited for
LOOK_AGAIN_S = 0.2  # the least time until a bubble that could not be opened is tried again
MOST_REPEATED = 1  # so often what grows repeats a part that may be out, where people see each repetition
KEPT = 1000  # when there are more bubbles, those that have ended and that nobody delivers are forgotten


class Live:
    """One answer of this process while it grows."""

    def __init__(
        self,
        parts: Parts,
        begun: Callable[[], Begun],
        platform: CanSend,
        screen: Screen,
        *,
        pace: Pace,
        look: Look,
        opened: Callable[[Live], None],
    ) -> None:
        self._parts = parts
        self._begun = begun
        self._platform = platform
        self._screen = screen
        self._pace = pace
        self._look = look
        self._tell_opened = opened
        self.text = ""  # what the turn has said so far
        self.before = ""  # of it, what was said before a tool was used: it stays above what follows
        self.hand: Hand | None = None  # None: the bubble is not opened
        self.began = False  # it is being opened, or was
        self._status = ""  # how it goes, beneath the text until there is more of it
        self._seen = ""  # the text that is on the screen
        self._at = parts.clock.monotonic()  # when the screen was changed
        self._slow, self._not_before, self._doubts = 1.0, 0.0, 0
        self._boundary = self._closed = self._refused = False
        self._changed, self._urgent = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        """What the model says now, so far; it replaces what it said of it."""
        if self._task is None:
            self._at = self._parts.clock.monotonic()
        self.text, self._status, self._boundary = so_far(self.before, text, self._look), "", False
        self._go_on()

    def state(self, text: str) -> None:
        """What the model has said before it uses a tool, as it is committed."""
        self.text = self.before = stated(self.before, text, self._look)
        self.boundary()

    def status(self, text: str) -> None:
        """How it goes, until there is more of the answer."""
        self._status = text
        self.boundary()

    def boundary(self) -> None:
        """The model has ended what it says for now: all of it is shown soon."""
        self._boundary = True
        if self.text or self._status:
            self._go_on()
            self._urgent.set()

    def close(self) -> None:
        """Nothing more is shown; a change that is under way ends."""
        self._closed = True
        self._changed.set()
        self._urgent.set()

    async def settled(self, seconds: float = LAST_CALL_S) -> None:
        """Wait, not for ever, until the last change has ended."""
        self.close()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """The process ends."""
        self.close()
        if self._task is not None:
            self._task.cancel()

    @property
    def hold_s(self) -> float:
        """For how long the platform asked not to be called."""
        return max(0.0, self._not_before - self._parts.clock.monotonic())

    @property
    def done(self) -> bool:
        """Whether it will change nothing any more."""
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
            log.debug("bubble ended", key=self._begun().key, error=str(error))

    async def _until_due(self) -> None:
        while not self._closed and (wait := wait_s(self._pace, self._growth())) > 0:
            self._urgent.clear()
            await self._pause(wait)

    def _growth(self) -> Growth:
        return Growth(
            since_s=self._parts.clock.monotonic() - self._at,
            grown=grown(self._seen, self.text),
            first=self.hand is None or not self.hand.out,
            boundary=self._boundary,
            slow=self._slow,
            hold_s=self.hold_s,
        )

    async def _pause(self, seconds: float) -> None:
        """Until the time is over, or something is urgent."""
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
            self._doubts += isinstance(error, InDoubt) and self._platform.surety is Surety.NEITHER
            self._refused = self._doubts > MOST_REPEATED  # then the last step alone repeats: it counts how often
            delay_s = error.delay_s if isinstance(error, TryLater) else 0.0
            self._not_before = self._parts.clock.monotonic() + delay_s
            self._changed.set()
        except (Refused, Held) as error:
            self._refused = True  # the last step finds out what can be done
            log.info("bubble not shown", key=self._begun().key, error=str(error))

    async def _show(self) -> None:
        """Bring the screen to what it should show now."""
        text, status = self.text, self._status
        if not self._pieces(text, status) or not await self._ours():
            return
        hand = self.hand
        if hand is None:
            return
        hand.said = text
        for place, piece in enumerate(self._pieces(text, status)):
            if place == len(hand.out) or not hand.out[place]:
                await hand.add(place, piece)
            await hand.change(place, piece)
        self._seen = text

    def _pieces(self, text: str, status: str) -> list[str]:
        limits, replaces = self._platform.limits, self.hand.bubble.replaces if self.hand else ()
        limit = room(limits.text, limits.unit, replaces)
        if status:
            pieces = split(beneath(visible(text, finished=False, look=self._look), status), limit, limits.unit)
        else:
            pieces = growing(text, limit, limits.unit, self._pace.cursor, self._look)
        return with_marks(pieces, replaces)

    async def _ours(self) -> bool:
        """Whether the bubble is ours to show; it is opened before the first words leave."""
        if self.hand is None:
            return await self._open()
        ours = await self._parts.store.read(still_ours, self._begun(), self.hand.bubble.opening)
        self._closed = self._closed or not ours
        return ours

    async def _open(self) -> bool:
        parts, begun = self._parts, self._begun()
        opening = Opening(
            number=parts.ids.next(),
            instance=parts.instance,
            at=parts.clock.now(),
            doubtful=parts.doubtful(begun.source.platform),
        )
        opened = await parts.store.run(open_bubble, begun, opening)
        points.reached("preview.opened")
        if isinstance(opened, Closed):
            self._refused = opened.for_good
            self._not_before = parts.clock.monotonic() + max(LOOK_AGAIN_S, self._pace.interval_s)
            self._changed.set()  # it is tried again then, whether or not there is more to say
            return False
        self.hand = Hand(
            parts, begun.source, self._platform, self._screen,
            row=begun.turn, claim=opening.number, out=opened.parts, bubble=opened.bubble,
        )  # fmt: skip
        self._tell_opened(self)
        return True


class Bubbles:
    """The answers of this process that grow, and those that nobody has delivered yet."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._live: dict[str, Live] = {}

    def begin(self, begun: Callable[[], Begun]) -> Live | None:
        """What shows the answer of a turn while it grows; None where that can not or shall not be."""
        source = begun().source
        platform, screen = self._parts.sender(source.platform), self._parts.screen(source.platform)
        pace, look = self._parts.settings.display.pace(source), self._parts.settings.display.look(source)
        if platform is None or screen is None or not pace.enabled:
            return None
        return Live(self._parts, begun, platform, screen, pace=pace, look=look, opened=self._opened)

    async def settled(self, bubble: Bubble, row: int, claim: int) -> Live | None:
        """What is known of a bubble that this process was the last to show, once nothing of it is under way. What is, ends
        under the claim of who delivers it.
        """
        live = self._live.get(bubble.name)
        if live is None:
            return None
        if live.hand is not None and live.hand.bubble.opening == bubble.opening:
            live.hand.row, live.hand.claim = row, claim
        await live.settled()
        known = live.hand.bubble if live.hand is not None else None
        # What was held back and is sent after all was decided elsewhere: the row says how.
        return live if known is not None and known.opening == bubble.opening and known.hold is None else None

    def forget(self, live: Live | None) -> None:
        """It has its last shape."""
        name = live.hand.bubble.name if live is not None and live.hand is not None else ""
        if self._live.get(name) is live:
            self._live.pop(name, None)

    def stop(self) -> None:
        """The process ends."""
        for each in self._live.values():
            each.cancel()

    def _opened(self, live: Live) -> None:
        if live.hand is not None:
            if len(self._live) >= KEPT:
                self._live = {name: each for name, each in self._live.items() if not each.done}
            self._live[live.hand.bubble.name] = live
