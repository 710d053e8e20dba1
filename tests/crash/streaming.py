"""Lives of a gateway whose answers grow on the screen, on a platform that fails on order; each dies where it is told to.

Time passes faster than it does: what waits for seconds waits for moments.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from everturn import points
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.decide.delivery import Surety
from everturn.decide.display import Display
from everturn.decide.patience import Patience
from everturn.decide.streaming import FIRST_WORDS, Pace, stated, visible, whole
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.gateway.parts import Settings
from everturn.model import Effect, ToolCall
from everturn.platform.interface import Limits
from everturn.testing import Fault, World
from tests.crash.asking import questions
from tests.crash.lives import DONE, STUCK, Death, die_at
from tests.crash.noting import Noting, NotingCards, NotingDeletions, NotingEdits
from tests.crash.seen import CURSOR, asks_about_doubt, faults_of
from tests.gateway.scenes import life_of
from tests.waiting import WAIT_S, read_until

FASTER = 50
LONGEST_S = 2 * WAIT_S  # a life has many waits
SEEN_S = 0.15
AGAIN_S = 0.5
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
KINDS: dict[str, type[Noting]] = {
    "edited": NotingEdits,
    "deleted": NotingDeletions,
    "cards": NotingCards,
    "whole": Noting,
}
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
    resends: bool = False  # who is asked whether it arrived says no
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
    def drops(self) -> bool:
        """Whether the owner wants what may be out to be left: then a reply in doubt is a dead letter."""
        return self.surety is Surety.NEITHER and self.on_doubt == "drop"

    def may_die(self, platform: Noting) -> bool:
        """Whether the reply may be a dead letter: the platform refused something for good, or the owner wants it so."""
        return platform.refuses or self.drops

    def platform(self) -> Noting:
        """The platform as it was left."""
        return KINDS[self.kind](
            notes=self.folder / "met",
            file=self.folder / "platform",
            surety=self.surety,
            limits=Limits(text=self.limit),
            faults=[FAULTS[name] for name in self.faults],
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

    def __init__(self, stream: Stream, platform: Noting) -> None:
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
        # After a death some of it may never be seen; before, however slow the machine, it is, unless it is refused.
        first, said = turn.attempt == 1, ""
        for piece in pieces:
            said += piece
            turn.stream(said)
            letters = len("".join(visible(said, finished=False).split()))
            if first and self._stream.kind != "whole" and letters >= FIRST_WORDS:
                await self._platform.until(lambda: self._platform.calls > 0, LONGEST_S)
            await self._seen(said, LONGEST_S if first and self._stream.seen else SEEN_S)
        return said

    async def _seen(self, said: str, within_s: float) -> None:
        last = visible(said, finished=False).split()[-1:]
        if self._stream.kind != "whole" and said.split()[-1:] == last:
            with contextlib.suppress(TimeoutError):
                await self._platform.until(partial(self._shows, last), within_s)

    def _shows(self, words: list[str]) -> bool:
        seen = any(word in text for word in words for text in self._platform.texts("one"))
        return seen or self._platform.refuses


async def _act(_call: ToolCall, _key: str) -> str:
    return "done"


def live(stream: Stream) -> None:
    """The process's whole life."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    os._exit(runner.run(play(stream)))  # not closed: what still runs at its end is abandoned


async def play(stream: Stream) -> int:
    """A life in this process, to its end or to its death."""
    platform = stream.platform()
    hits: Counter[str] = Counter()
    points.install(die_at(stream.death) if stream.death else lambda name: hits.update([name]))
    settings = replace(SETTINGS, on_doubt=stream.on_doubt)
    world = World(stream.url, Teller(stream, platform), [platform], Hasty(stream.began), settings)
    await world.start()
    platform.say_once("one", "go")
    try:
        async with asyncio.timeout(LONGEST_S):
            code = await _ended(stream, world, platform)
    except TimeoutError:
        return STUCK
    await world.stop()
    (stream.folder / "hits").write_text(json.dumps(hits))
    return code


async def _ended(stream: Stream, world: World, platform: Noting) -> int:
    if stream.asks:
        await _approve(world, platform)
    life = await _until(world, partial(_has_ended, stream, platform))
    while stream.resends and _in_doubt(platform, life):
        await _send_again(world, platform)
        life = await _until(world, partial(_has_ended, stream, platform))
    if stream.ends == "sent" and life["replies"][0]["state"] == "dead":
        return GIVEN_UP
    await platform.until(lambda: _is_right(stream, platform), LONGEST_S)
    return DONE


async def _until(world: World, true: Callable[[dict[str, Any]], bool], message: str = "m1") -> dict[str, Any]:
    """What became of a message, as soon as this is true of it."""
    return await read_until(partial(life_of, world, message), true, LONGEST_S)


async def _approve(world: World, platform: Noting) -> None:
    """The same person approves from another chat, so that what is said there is not on the screen that is looked at."""
    await platform.until(lambda: bool(questions(platform)), LONGEST_S)
    platform.say_once("two", f"/approve {questions(platform)[0]}")
    await _until(world, lambda life: [each["state"] for each in life["replies"]] == ["sent"], "m2")


def _in_doubt(platform: Noting, life: dict[str, Any]) -> bool:
    """Whether a person is asked if it arrived, or sees nothing because the platform refused the question."""
    asked = asks_about_doubt(platform) or platform.refuses
    return asked and "doubtful" in {each["state"] for each in life["replies"]}


async def _send_again(world: World, platform: Noting) -> None:
    """A person says that it did not arrive, and waits a little for it; nobody is asked twice, so they say it again."""
    platform.say("one", "/resend")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_S):
            await _until(world, lambda life: not _in_doubt(platform, life))


def _has_ended(stream: Stream, platform: Noting, life: dict[str, Any]) -> bool:
    ends = {stream.ends, *(["dead"] if stream.may_die(platform) else [])}
    states = [each["state"] for each in life["replies"]]
    if stream.resends and _in_doubt(platform, life):
        return True
    return bool(states) and set(states) <= ends and life["state"] == "done"


def _is_right(stream: Stream, platform: Noting) -> bool:
    asked = stream.ends == "doubtful"
    return len(platform.texts("one")) == 1 + asked if stream.ends != "sent" else not faults_of(platform, stream.whole)
