"""Lives of a gateway whose answers grow on the screen, on a platform that fails on order; each dies where it is told to.

Time passes faster than it does: what waits for seconds waits for moments.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from everturn import points
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.decide.bubble_words import NOTHING_SAID, REPLACES, SUPERSEDED
from everturn.decide.delivery import MAY_REPEAT, Surety
from everturn.decide.display import Display
from everturn.decide.patience import Patience
from everturn.decide.streaming import Pace, stated, visible, whole
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.gateway.parts import Settings
from everturn.model import Effect, ToolCall
from everturn.platform.interface import Limits
from everturn.store.operations.approvals import ApprovalAnswer
from everturn.testing import (
    OPEN_CARD,
    CardPlatform,
    DeletingPlatform,
    EditingPlatform,
    FakePlatform,
    Fault,
    World,
    key_of,
)
from tests.crash.asking import QUESTION, questions
from tests.crash.lives import DIED, DONE, STUCK, Death
from tests.gateway.scenes import life_of, until_read

CURSOR = " ▌"
FASTER = 50
LONGEST_S = 60.0
SEEN_S = 0.15
UNHURRIED = Patience(
    inactive_s=0, warn_s=0, working_s=0, stall_s=0
)  # nobody is told that minutes passed, which did not
SETTINGS = Settings(
    patience=UNHURRIED,
    stuck_after=0,
    unclean_boots=0,
    drain_s=0.0,
    burst_s=0.0,
    display=Display(everywhere=Pace(interval_s=0.0, min_chars=1, cursor=CURSOR)),
)
TOOL = "(uses a tool)"  # a piece that is not said: there a tool is used
KINDS: dict[str, type[FakePlatform]] = {
    "edited": EditingPlatform, "deleted": DeletingPlatform, "cards": CardPlatform, "whole": FakePlatform,
}  # fmt: skip
FAULTS = {
    "": None,
    "later": Fault(TryLater("slow down", 2.0)),
    "lost": Fault(OutcomeUnknown("no answer")),
    "taken": Fault(OutcomeUnknown("no answer"), accepted=True),
    "refused": Fault(Refused("not any more")),
}
GIVEN_UP = 46  # how a life ends whose reply became a dead letter


@dataclass(frozen=True)
class Stream:
    """One process: what is said, in how many words at a time, what the platform does to each call, where it dies."""

    url: str
    folder: Path
    pieces: tuple[str, ...]
    began: float
    surety: Surety = Surety.KEYED
    kind: str = "edited"
    limit: int = 400
    on_doubt: str = "mark"
    ends: str = "sent"  # what becomes of the reply
    silent: bool = False  # all that was said was for nothing: the answer says that there is nothing to say
    asks: bool = False  # whether a person is asked before the first tool is used
    faults: tuple[str, ...] = ()
    seen: bool = True  # each piece is on the screen before the next is said: there is enough of each to be shown
    death: Death | None = None

    @property
    def said(self) -> list[list[str]]:
        """What is said before each tool, and the answer, piece by piece."""
        parts: list[list[str]] = [[]]
        for piece in self.pieces:
            parts[-1] += [piece] if piece != TOOL else []
            parts += [[]] if piece == TOOL else []
        return parts if "".join(parts[-1]).strip() else [*parts[:-1], ["that is all"]]

    @property
    def answer(self) -> str:
        """What is said last."""
        return "(silent)" if self.silent else "".join(self.said[-1]).strip()

    @property
    def whole(self) -> str:
        """All that is seen in the end."""
        before = ""
        for pieces in self.said[:-1]:
            before = stated(before, "".join(pieces))
        return visible(whole(before if self.kind != "whole" else "", self.answer), finished=True)

    @property
    def refused(self) -> bool:
        """Whether the platform may refuse something for good: then a reply may be a dead letter."""
        return "refused" in self.faults

    def platform(self) -> FakePlatform:
        """The platform as it was left."""
        faults = [FAULTS[name] for name in self.faults]
        return KINDS[self.kind](
            file=self.folder / "platform", surety=self.surety, limits=Limits(text=self.limit), faults=faults
        )


class Hasty(SystemClock):
    """Seconds that pass faster, from the beginning of the story on."""

    def __init__(self, began: float, faster: float = FASTER) -> None:
        self._began = began
        self._faster = faster

    async def sleep(self, seconds: float) -> None:
        """Sleep a moment."""
        await super().sleep(seconds / self._faster)

    def monotonic(self) -> float:
        """Many seconds a second."""
        return super().monotonic() * self._faster

    def now(self) -> float:
        """The same, by the calendar."""
        return self._began + (super().now() - self._began) * self._faster


class Teller:
    """Says its answer piece by piece, and waits a little for each to be seen."""

    def __init__(self, stream: Stream, platform: FakePlatform) -> None:
        self._stream = stream
        self._platform = platform

    async def run(self, turn: TurnContext) -> Answer:
        """The same answer in every attempt; each tool is used once in all of them. As a model it says something before a
        tool, and then what follows.
        """
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(_act)
        used = sum(row.role == "tool" for row in await turn.own())
        *before, last = self._stream.said
        for place, pieces in list(enumerate(before))[used:]:
            said = await self._say(turn, pieces)
            ask = "May I?" if self._stream.asks and place == 0 else None
            await turn.step(said, [ToolCall(f"c{place}", "tool", effect=Effect.PURE, ask=ask)], _act)
        await self._say(turn, last)
        return Answer(self._stream.answer)

    async def _say(self, turn: TurnContext, pieces: Sequence[str]) -> str:
        # With faults, or after a death, some of it may never be seen; without, however slow the machine, it is.
        sure = self._stream.seen and not self._stream.faults and turn.attempt == 1
        within_s, said = LONGEST_S if sure else SEEN_S, ""
        for piece in pieces:
            said += piece
            turn.stream(said)
            await self._seen(said, within_s)
        return said

    async def _seen(self, said: str, within_s: float) -> None:
        last = visible(said, finished=False).split()[-1:]
        if self._stream.kind != "whole" and said.split()[-1:] == last:
            with contextlib.suppress(TimeoutError):
                await self._platform.until(partial(self._shows, last), within_s)

    def _shows(self, words: list[str]) -> bool:
        return any(word in text for word in words for text in self._platform.texts("one"))


async def _act(_call: ToolCall, _key: str) -> str:
    return "done"


def live(stream: Stream) -> None:
    """The process's whole life."""
    os._exit(asyncio.Runner().run(_live(stream)))  # not closed: what still runs at its end is abandoned


async def _live(stream: Stream) -> int:
    platform = stream.platform()
    points.install(_dies(stream.death) if stream.death else None)
    settings = replace(SETTINGS, on_doubt=stream.on_doubt)
    world = World(stream.url, Teller(stream, platform), [platform], Hasty(stream.began), settings)
    await world.start()
    platform.say_once("one", "go")
    try:
        async with asyncio.timeout(LONGEST_S):
            if stream.asks:
                await _say_yes(world, platform)
            life = await until_read(partial(life_of, world, "m1"), partial(_has_ended, stream))
            if stream.ends == "sent" and life["replies"][0]["state"] == "dead":
                return GIVEN_UP
            await platform.until(lambda: _is_right(stream, platform.texts("one")), LONGEST_S)
    except TimeoutError:
        return STUCK
    await world.stop()
    return DONE


async def _say_yes(world: World, platform: FakePlatform) -> None:
    """A person presses the button; in each life again."""
    await platform.until(lambda: bool(questions(platform)))
    yes = ApprovalAnswer(allow=True, at=world.clock.now(), by="fake:ann", id=questions(platform)[0])
    await world.gateway.approvals.answer(key_of(platform, "one"), yes)


def _has_ended(stream: Stream, life: dict[str, Any]) -> bool:
    ends = {stream.ends, *(["dead"] if stream.refused else [])}
    states = [each["state"] for each in life["replies"]]
    return bool(states) and set(states) <= ends and life["state"] == "done"


def _is_right(stream: Stream, texts: Sequence[str]) -> bool:
    asked = stream.ends == "doubtful"
    return len(texts) == 1 + asked if stream.ends != "sent" else not faults_of(stream, texts)


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
    platform tells nothing, a bubble may be left above one that says it replaces it. Where it refuses, what can not be
    changed stays as it was, and the whole text is visible beside it.
    """
    texts = [text for text in texts if not QUESTION.match(text)]
    if stream.refused:
        missing = set(expected(stream)) - set(_words("\n".join(texts)))
        return [f"{sorted(missing)} is not in {list(texts)}"] if missing else []
    marks = [place for place, text in enumerate(texts) if (REPLACES in text or MAY_REPEAT in text) and place > 0]
    wrong = ["marked although the platform can tell"] * (stream.surety is not Surety.NEITHER and _marked(texts))
    for choice in product([False, True], repeat=len(marks)):
        dropped = {place - 1 for place, drop in zip(marks, choice, strict=True) if drop}
        if _said([text for place, text in enumerate(texts) if place not in dropped]) == expected(stream):
            return wrong
    return [*wrong, f"{list(texts)} is not {stream.whole!r}"]


def expected(stream: Stream) -> list[str]:
    """The words that are seen in the end."""
    return _words(stream.whole)


def _marked(texts: Sequence[str]) -> bool:
    return any(REPLACES in text or MAY_REPEAT in text for text in texts)


def _said(texts: Sequence[str]) -> list[str]:
    whole = "\n".join(texts)
    for words in (REPLACES, MAY_REPEAT, SUPERSEDED, NOTHING_SAID):
        whole = whole.replace(words, "")
    if CURSOR.strip() in whole or OPEN_CARD in whole:
        return ["unfinished"]
    return _words(whole)


def _words(text: str) -> list[str]:
    return re.sub(r"^```\w*$", "", text, flags=re.MULTILINE).split()
