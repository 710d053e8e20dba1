"""Processes of a gateway with streaming messages, on a platform with scripted faults; each dies where it is told to.

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
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.inbox.rules import MediaRules
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, ToolCall
from everturn.outbox.rules.delivery import Surety
from everturn.outbox.rules.streaming import FIRST_CHARS, Display, Pace, stated, visible, whole
from everturn.platform.interface import TextLimits
from everturn.testing import SendFault, World
from everturn.turns.rules.turns import TurnTimeouts
from tests.crash.asking import approval_requests
from tests.crash.gateway_process import DONE, STUCK, Death, die_at
from tests.crash.noting import Noting, NotingCards, NotingDeletions, NotingEdits
from tests.crash.seen import CURSOR, asks_about_delivery, faults_of
from tests.scenes import trace_of
from tests.waiting import WAIT_S, read_until

FASTER = 50
LONGEST_S = 2 * WAIT_S  # a process has many waits
SEEN_S = 0.15
AGAIN_S = 0.5
UNHURRIED = TurnTimeouts(
    inactive_s=0, warn_s=0, working_s=0, stall_s=0
)  # nobody gets a notice that minutes passed, which did not
# Files come over real HTTP, while the clock of the gateway is moved on: their limit must be far beyond what a test lets pass.
WITH_FILES = Settings(burst_s=0.0, in_flight_s=0.0, patience=UNHURRIED, media=MediaRules(fetch_s=86_400))
SETTINGS = Settings(
    patience=UNHURRIED,
    stuck_after=0,
    unclean_boots=0,
    drain_s=0.0,
    burst_s=0.0,
    in_flight_s=0.0,
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
    "later": SendFault(TryLater("slow down", 2.0)),
    "lost": SendFault(OutcomeUnknown("no answer")),
    "taken": SendFault(OutcomeUnknown("no answer"), accepted=True),
    "refused": SendFault(Refused("not any more")),
}
DEAD_LETTER = 46  # the exit code of a process whose reply became a dead letter


@dataclass(frozen=True)
class Stream:
    """One process: what is said in which pieces, what the platform does to each call, where it dies."""

    url: str
    folder: Path
    pieces: tuple[str, ...]
    began: float
    surety: Surety = Surety.KEYED
    kind: str = "edited"
    limit: int = 400
    on_unknown_delivery: str = "mark"
    ends: str = "sent"  # the last state of the reply
    resends: bool = False  # the person who is asked whether it arrived says no
    silent: bool = False  # all that was said was for nothing: the answer says that there is nothing to say
    asks: bool = False  # whether the first tool needs an approval
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
        """Whether the policy is `drop`: then a reply whose delivery is unknown is a dead letter."""
        return self.surety is Surety.NEITHER and self.on_unknown_delivery == "drop"

    def may_die(self, platform: Noting) -> bool:
        """Whether the reply may be a dead letter: the platform refused something for good, or the owner wants it so."""
        return platform.refuses or self.drops

    def platform(self) -> Noting:
        """The platform as it was left."""
        return KINDS[self.kind](
            notes=self.folder / "met",
            file=self.folder / "platform",
            surety=self.surety,
            limits=TextLimits(text=self.limit),
            faults=[FAULTS[name] for name in self.faults],
        )


class FastClock(SystemClock):
    """A clock whose seconds pass faster, from the beginning of the scenario on."""

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


class StreamingAgent:
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
            if first and self._stream.kind != "whole" and letters >= FIRST_CHARS:
                await self._platform.until(lambda: self._platform.calls > 0, LONGEST_S)
            await self._seen(said, LONGEST_S if first and self._stream.seen else SEEN_S)
        return said

    async def _seen(self, said: str, within_s: float) -> None:
        last = visible(said, finished=False).split()[-1:]
        if self._stream.kind != "whole" and said.split()[-1:] == last:
            with contextlib.suppress(TimeoutError):
                await self._platform.until(partial(self._shows, last), within_s)

    def _shows(self, texts: list[str]) -> bool:
        seen = any(word in text for word in texts for text in self._platform.texts("one"))
        return seen or self._platform.refuses


async def _act(_call: ToolCall, _key: str) -> str:
    return "done"


def run_to_exit(stream: Stream) -> None:
    """Run the whole process."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    os._exit(runner.run(play(stream)))  # not closed: what still runs at its end is abandoned


async def play(stream: Stream) -> int:
    """Run the gateway in this process, to its end or to its death."""
    platform = stream.platform()
    hits: Counter[str] = Counter()
    points.install(die_at(stream.death) if stream.death else lambda name: hits.update([name]))
    settings = replace(SETTINGS, on_unknown_delivery=stream.on_unknown_delivery)
    world = World(stream.url, StreamingAgent(stream, platform), [platform], FastClock(stream.began), settings)
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
    process = await _until(world, partial(_has_ended, stream, platform))
    while stream.resends and _delivery_unknown(platform, process):
        await _send_again(world, platform)
        process = await _until(world, partial(_has_ended, stream, platform))
    if stream.ends == "sent" and process["replies"][0]["state"] == "dead":
        return DEAD_LETTER
    await platform.until(lambda: _is_right(stream, platform), LONGEST_S)
    return DONE


async def _until(world: World, true: Callable[[dict[str, Any]], bool], message: str = "m1") -> dict[str, Any]:
    """The timeline of a message, as soon as this is true of it."""
    return await read_until(partial(trace_of, world, message), true, LONGEST_S)


async def _approve(world: World, platform: Noting) -> None:
    """The same person approves from another chat, so that what is said there is not on the screen that is looked at."""
    await platform.until(lambda: bool(approval_requests(platform)), LONGEST_S)
    platform.say_once("two", f"/approve {approval_requests(platform)[0]}")
    await _until(world, lambda process: [each["state"] for each in process["replies"]] == ["sent"], "m2")


def _delivery_unknown(platform: Noting, process: dict[str, Any]) -> bool:
    """Whether a person is asked if it arrived, or sees nothing because the platform refused that request."""
    asked = asks_about_delivery(platform) or platform.refuses
    return asked and "unknown" in {each["state"] for each in process["replies"]}


async def _send_again(world: World, platform: Noting) -> None:
    """A person says that it did not arrive, and waits a little for it; nobody is asked twice, so they say it again."""
    platform.say("one", "/resend")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_S):
            await _until(world, lambda process: not _delivery_unknown(platform, process))


def _has_ended(stream: Stream, platform: Noting, process: dict[str, Any]) -> bool:
    ends = {stream.ends, *(["dead"] if stream.may_die(platform) else [])}
    states = [each["state"] for each in process["replies"]]
    if stream.resends and _delivery_unknown(platform, process):
        return True
    return bool(states) and set(states) <= ends and process["state"] == "done"


def _is_right(stream: Stream, platform: Noting) -> bool:
    asked = stream.ends == "unknown"
    return len(platform.texts("one")) == 1 + asked if stream.ends != "sent" else not faults_of(platform, stream.whole)
