"""One gateway in a process of its own, that dies (or is cancelled) at the k-th hit of a crash point.

A death is `os._exit`: no except, no finally, no callback runs. What outlives it is the database, the platform's file,
the ledger and the log.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from everturn import points
from everturn.agent.interface import Answer, RunTool, TurnContext
from everturn.agent.tools.send import Sender
from everturn.home.files import Media
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, SessionSource, ToolCall
from everturn.outbox.rules.delivery import Surety
from everturn.people.rules.rights import Rights
from everturn.sessions.rules import notices
from everturn.testing import FakePlatform, World
from tests.waiting import WAIT_S, poll

DIED = 137
CANCELLED = 3
DONE = 0
STUCK = 9
SENT = "sent by a tool"


@dataclass(frozen=True)
class Death:
    """Where to die: the k-th hit of a point. `cancel` only cancels the task that reached it."""

    point: str
    hit: int
    cancel: bool = False


@dataclass(frozen=True)
class CrashProcess:
    """What one process does."""

    scenario: str
    url: str
    folder: Path
    death: Death | None = None
    surety: Surety = Surety.KEYED
    agent: Callable[[Path], Any] = field(default_factory=lambda: LedgerAgent)
    platform: type[FakePlatform] = FakePlatform
    play: "Scenario | None" = None  # instead of the one that `scenario` names
    asked: tuple[Path, int] | None = None  # the log of the model that its agent asks, and how many requests were in it
    settings: Settings = field(
        default_factory=lambda: Settings(
            stuck_after=0,
            unclean_boots=0,
            drain_s=0.0,
            burst_s=0.0,
            in_flight_s=0.0,
            rights=Rights(owners=("fake:ann",)),
        )
    )


class LedgerAgent:
    """Logs what it did to files that outlive the process. `tools N` uses N tools; `wait` waits to be stopped once, on attempt one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.send: Sender | None = None
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def run(self, turn: TurnContext) -> Answer:
        """Work through the text; after an interruption, from the last committed step."""
        text = turn.text.splitlines()[0]
        await turn.calling()
        await self.go.wait()
        done = 0
        if turn.attempt > 1:
            await turn.settle(self._sender(turn) if text.startswith("send") else self._act)
            done = sum(row.role == "tool" for row in await turn.own())
        steps = int(text.split()[1]) if text.startswith("tools") else 0
        for number in range(done + 1, steps + 1):
            call = ToolCall(id=f"{turn.id}/{number}", name="write", effect=Effect.ONCE)
            self._log("requests", f"request {call.id}")
            await turn.step("", [call], self._act)
        if text.startswith("send") and done == 0:
            await turn.step("", [ToolCall(f"{turn.id}/send", "send", effect=Effect.IDEMPOTENT)], self._sender(turn))
        if text.startswith("wait"):
            await self._wait(turn)
        return Answer(answer_to(turn.text))

    def _sender(self, turn: TurnContext) -> RunTool:
        """A tool that sends a message to another chat, as the send tool does."""

        async def run(call: ToolCall, _key: str) -> str:
            to = SessionSource(platform="fake", chat_id="two", user_id="ann")
            return str(self.send is not None and await self.send(turn, call.id, to, SENT))

        return run

    async def _wait(self, turn: TurnContext) -> None:
        stopped = self._folder / f"waited-{turn.id}"
        if not stopped.exists():
            stopped.touch()
            self.waiting.set()
            await asyncio.Event().wait()

    async def _act(self, call: ToolCall, _key: str) -> str:
        self._log("effects", call.id)
        self._log("requests", f"effect {call.id}")
        return f"{call.id} written"

    def _log(self, name: str, line: str) -> None:
        number = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, f"{line}\n".encode())
        os.close(number)


def answer_to(text: str) -> str:
    """What the agent answers."""
    return f"answer to {text}"


def run_to_exit(process: CrashProcess, reached: Callable[[str], None] | None = None) -> None:
    """Run the whole process; its exit code says how it ended. `reached` sees the points, if it does not die at one."""
    runner = asyncio.Runner(
        loop_factory=uvloop.new_event_loop
    )  # it is not closed: what still runs when the scenario ends is abandoned, not tidied up
    try:
        code = runner.run(play(process, reached))
    except asyncio.CancelledError:
        code = CANCELLED
    os._exit(code)


async def play(process: CrashProcess, reached: Callable[[str], None] | None = None) -> int:
    """Run the gateway in this process, to its end or to its death."""
    platform = process.platform(file=process.folder / "platform", surety=process.surety)
    agent = process.agent(process.folder)
    world = World(process.url, agent, [platform], settings=process.settings, media=Media(process.folder / "files"))
    hits: Counter[str] = Counter()
    points.install(die_at(process.death) if process.death else reached or (lambda name: hits.update([name])))
    agent.send = partial(_send, world)  # a turn may go on before the start has ended
    await world.start()
    scenario = asyncio.ensure_future((process.play or SCENARIOS[process.scenario])(world, platform, agent))
    failed = asyncio.ensure_future(_wait_for(world.gateway.failed))
    try:
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({scenario, failed}, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        return STUCK
    if not scenario.done() or scenario.cancelled():
        return CANCELLED
    scenario.result()
    (process.folder / "hits").write_text(json.dumps(hits))
    return DONE


async def _send(world: World, turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
    return await world.gateway.sending.send(turn, call_id, to, text)


async def _wait_for(failed: asyncio.Future[None]) -> None:
    with contextlib.suppress(Exception):
        await asyncio.shield(failed)


def die_at(death: Death) -> Callable[[str], None]:
    """Return a hook that ends the process there, or cancels the task that gets there."""
    hits = 0

    def reached(name: str) -> None:
        nonlocal hits
        hits += name == death.point
        if name != death.point or hits != death.hit:
            return
        if not death.cancel:
            os._exit(DIED)
        task = asyncio.current_task()
        if task is not None:
            task.cancel()

    return reached


Scenario = Callable[[World, FakePlatform, LedgerAgent], Coroutine[Any, Any, None]]


async def _until_answered(world: World, platform: FakePlatform, chat: str, answer: str) -> None:
    await platform.until(lambda: answer in platform.texts(chat))
    await world.stop()


def _say_once(platform: FakePlatform, chat: str, text: str) -> None:
    """People do not write again because we restart."""
    platform.say_once(chat, text)


async def _waits_or_answered(platform: FakePlatform, agent: LedgerAgent, text: str) -> bool:
    """Wait for the agent to wait; True when it had waited in an earlier process already, and answers now."""
    waiting = asyncio.ensure_future(agent.waiting.wait())
    answered = asyncio.ensure_future(platform.until(lambda: answer_to(text) in platform.texts("one")))
    await asyncio.wait({waiting, answered}, return_when=asyncio.FIRST_COMPLETED)
    done = answered.done()
    waiting.cancel()
    answered.cancel()
    return done


async def plain(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """Two messages to one chat, one to another."""
    for chat, text in (("one", "hello"), ("one", "again"), ("two", "hi")):
        _say_once(platform, chat, text)
    await platform.until(lambda: len(platform.texts("two")) == 1)
    await _until_answered(world, platform, "one", answer_to("again"))


async def tools(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """A turn with two tool calls, and a message behind it."""
    _say_once(platform, "one", "tools 2")
    _say_once(platform, "one", "after")
    await _until_answered(world, platform, "one", answer_to("after"))


async def behind(world: World, platform: FakePlatform, agent: LedgerAgent) -> None:
    """The same, and the message behind it is accepted before the first call."""
    agent.go.clear()
    _say_once(platform, "one", "tools 2")
    _say_once(platform, "one", "after")
    await platform.until(lambda: platform.acknowledged == 2)
    agent.go.set()
    await _until_answered(world, platform, "one", answer_to("after"))


async def sends(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """A turn whose tool sends a message to another chat."""
    _say_once(platform, "one", "send")
    await platform.until(lambda: SENT in platform.texts("two"))
    await _until_answered(world, platform, "one", answer_to("send"))


async def model(world: World, platform: FakePlatform, _agent: Any) -> None:
    """A turn of a language model with several tool calls; then another one."""
    _say_once(platform, "one", "tools 2")
    await platform.until(lambda: answer_to("tools 2") in platform.texts("one"))
    _say_once(platform, "one", "calls 2")
    await _until_answered(world, platform, "one", answer_to("calls 2"))


async def reset(world: World, platform: FakePlatform, agent: LedgerAgent) -> None:
    """`/new` while a turn runs: its answer never comes, the next message is answered in a fresh session."""
    _say_once(platform, "one", "wait for ever")
    if "/new" not in [each.text for each in platform.said()]:
        await _waits_or_answered(platform, agent, "wait for ever")
    _say_once(platform, "one", "/new")
    await platform.until(lambda: any("fresh conversation" in text for text in platform.texts("one")))
    _say_once(platform, "one", "after")
    await _until_answered(world, platform, "one", answer_to("after"))


def _shows(platform: FakePlatform, part: str, times: int) -> bool:
    return sum(part in each for each in platform.texts("one")) >= times


async def undo(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """`/branch`, `/retry` and `/undo`, each applied once: the message is answered twice, in a copy that is then hidden."""
    for text, answer, times in (
        ("last", answer_to("last"), 1),
        ("/branch", "a copy of the conversation, with its 2 messages", 1),
        ("/retry", answer_to("last"), 2),
        ("/undo", "Hidden from the agent", 1),
    ):
        _say_once(platform, "one", text)
        await platform.until(partial(_shows, platform, answer, times))
    await world.stop()


async def restart(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """`/restart`: its sender gets one notice that the gateway is back, whichever process gets to it."""
    _say_once(platform, "one", "hello")
    await platform.until(lambda: answer_to("hello") in platform.texts("one"))
    _say_once(platform, "one", "/restart")
    back = asyncio.ensure_future(platform.until(lambda: notices.back() in platform.texts("one")))
    ends: set[asyncio.Future[Any]] = {back, world.gateway.stop_requested}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if not back.done():
        await world.stop("restart")
        await world.start()
    await back
    await world.stop()


async def drain(world: World, platform: FakePlatform, agent: LedgerAgent) -> None:
    """A planned restart cuts a turn off; the next process finishes it."""
    _say_once(platform, "one", "wait a little")
    if await _waits_or_answered(platform, agent, "wait a little"):
        await world.stop()
        return
    await world.stop("restart")
    await world.start()
    await _until_answered(world, platform, "one", answer_to("wait a little"))


async def finish(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """A recovery: whatever was said before gets its answer."""
    wanted = [(each.source.chat_id or "", answer_to(each.text)) for each in platform.said()]
    await platform.until(lambda: all(answer in platform.texts(chat) for chat, answer in wanted))
    await world.stop()


async def beside(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """A recovery beside another gateway's: the screen is what both have sent."""
    wanted = [(each.source.chat_id or "", answer_to(each.text)) for each in platform.said()]
    await poll(lambda: all(answer in platform.reloaded().texts(chat) for chat, answer in wanted))
    await world.stop()


async def two_recoveries(world: World, platform: FakePlatform, agent: LedgerAgent) -> None:
    """A second recovery beside the first finds nothing to do twice."""
    await asyncio.gather(world.gateway.recovery.sweep(), world.gateway.recovery.sweep())
    await finish(world, platform, agent)


async def own(world: World, platform: FakePlatform, agent: Any) -> None:
    """Run the agent's own scenario."""
    await agent.scenario(world, platform)


SCENARIOS: dict[str, Scenario] = {
    "own": own,
    "plain": plain, "tools": tools, "behind": behind, "sends": sends, "model": model, "reset": reset, "drain": drain, "undo": undo, "restart": restart,
    "finish": finish, "beside": beside, "two_recoveries": two_recoveries,
}  # fmt: skip


def undisturbed(process: CrashProcess) -> CrashProcess:
    """The process after the death: the same without one."""
    return replace(process, death=None)
