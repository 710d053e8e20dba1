"""Lives of a gateway whose answers grow on the screen, on a platform that fails on order; each dies where it is told to.

Time passes faster than it does: what waits for seconds waits for moments.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from everturn import points
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.decide.bubble_words import REPLACES
from everturn.decide.delivery import MAY_REPEAT, Surety
from everturn.decide.display import Display
from everturn.decide.streaming import Pace
from everturn.errors import OutcomeUnknown, TryLater
from everturn.gateway.parts import Settings
from everturn.platform.interface import Limits
from everturn.testing import OPEN_CARD, CardPlatform, EditingPlatform, FakePlatform, Fault, World
from tests.crash.lives import DIED, DONE, STUCK, Death

CURSOR = " ▌"
FASTER = 50
LONGEST_S = 20.0
SEEN_S = 0.15
SETTINGS = Settings(
    stuck_after=0,
    unclean_boots=0,
    drain_s=0.0,
    burst_s=0.0,
    display=Display(everywhere=Pace(interval_s=0.0, min_chars=1, cursor=CURSOR)),
)
FAULTS = {
    "": None,
    "later": Fault(TryLater("slow down", 2.0)),
    "lost": Fault(OutcomeUnknown("no answer")),
    "taken": Fault(OutcomeUnknown("no answer"), accepted=True),
}


@dataclass(frozen=True)
class Stream:
    """One process: what is said, in how many words at a time, what the platform does to each call, where it dies."""

    url: str
    folder: Path
    pieces: tuple[str, ...]
    began: float
    surety: Surety = Surety.KEYED
    cards: bool = False
    limit: int = 400
    faults: tuple[str, ...] = ()
    death: Death | None = None

    @property
    def answer(self) -> str:
        """The whole text."""
        return "".join(self.pieces).strip()

    def platform(self) -> FakePlatform:
        """The platform as it was left."""
        kind = CardPlatform if self.cards else EditingPlatform
        faults = [FAULTS[name] for name in self.faults]
        return kind(file=self.folder / "platform", surety=self.surety, limits=Limits(text=self.limit), faults=faults)


class Hasty(SystemClock):
    """Seconds that pass faster, from the beginning of the story on."""

    def __init__(self, began: float) -> None:
        self._began = began

    async def sleep(self, seconds: float) -> None:
        """Sleep a moment."""
        await super().sleep(seconds / FASTER)

    def monotonic(self) -> float:
        """Many seconds a second."""
        return super().monotonic() * FASTER

    def now(self) -> float:
        """The same, by the calendar."""
        return self._began + (super().now() - self._began) * FASTER


class Teller:
    """Says its answer piece by piece, and waits a little for each to be seen."""

    def __init__(self, stream: Stream, platform: FakePlatform) -> None:
        self._stream = stream
        self._platform = platform

    async def run(self, turn: TurnContext) -> Answer:
        """The same answer in every attempt."""
        await turn.calling()
        said = ""
        for piece in self._stream.pieces:
            said += piece
            turn.stream(said)
            with contextlib.suppress(TimeoutError):
                await self._platform.until(partial(self._shows, said), SEEN_S)
        return Answer(self._stream.answer)

    def _shows(self, said: str) -> bool:
        last = said.split()[-1:]
        return any(word in text for word in last for text in self._platform.texts("one"))


def live(stream: Stream) -> None:
    """The process's whole life."""
    os._exit(asyncio.run(_live(stream)))


async def _live(stream: Stream) -> int:
    platform = stream.platform()
    points.install(_dies(stream.death) if stream.death else None)
    world = World(stream.url, Teller(stream, platform), [platform], Hasty(stream.began), SETTINGS)
    await world.start()
    platform.say_once("one", "go")
    try:
        await platform.until(lambda: not faults_of(stream, platform.texts("one")), LONGEST_S)
    except TimeoutError:
        return STUCK
    await world.stop()
    return DONE


def _dies(death: Death) -> Callable[[str], None]:
    left = death.hit

    def reached(name: str) -> None:
        nonlocal left
        left -= name == death.point
        if left == 0:
            os._exit(DIED)

    return reached


def faults_of(stream: Stream, texts: Sequence[str]) -> list[str]:
    """What is wrong with a screen: in the end the whole text is visible once, without a cursor or an open card. Where the
    platform tells nothing, a bubble may be left above one that says it replaces it.
    """
    marks = [place for place, text in enumerate(texts) if REPLACES in text and place > 0]
    wrong = ["marked although the platform can tell"] * (stream.surety is not Surety.NEITHER and _marked(texts))
    for choice in product([False, True], repeat=len(marks)):
        dropped = {place - 1 for place, drop in zip(marks, choice, strict=True) if drop}
        if _said([text for place, text in enumerate(texts) if place not in dropped]) == _words(stream.answer):
            return wrong
    return [*wrong, f"{list(texts)} is not {stream.answer!r}"]


def _marked(texts: Sequence[str]) -> bool:
    return any(REPLACES in text or MAY_REPEAT in text for text in texts)


def _said(texts: Sequence[str]) -> list[str]:
    whole = "\n".join(texts).replace(REPLACES, "").replace(MAY_REPEAT, "")
    if CURSOR.strip() in whole or OPEN_CARD in whole:
        return ["unfinished"]
    return _words(whole)


def _words(text: str) -> list[str]:
    return re.sub(r"^```\w*$", "", text, flags=re.MULTILINE).split()
