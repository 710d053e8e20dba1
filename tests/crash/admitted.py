"""Scenarios of an approved and revoked person, and of a backlog, while the gateway dies at each point of them."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.inbox.rules import BacklogRule
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound, SessionSource
from everturn.operator.rows.reading import PersonAct, PersonActed
from everturn.people.rules import people_texts
from everturn.people.rules.access import PAIR, AccessPolicy, Admission
from everturn.testing import FakePlatform, World
from tests.crash.gateway_process import CrashProcess, answer_to

BASIC = Settings(stuck_after=0, unclean_boots=0, drain_s=0.0, burst_s=0.0, in_flight_s=0.0)
PAIRING = replace(BASIC, admission=Admission(policies={"fake": AccessPolicy(unknown=PAIR)}))
CODE = re.compile(r"approve ([A-Z2-9]{8})")


class AccessAgent:
    """Waits in its first attempt at `wait`; in its scenario the owner repeats each action after every death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waits = asyncio.Event()
        self.send: object = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer; a task that went on although its person was revoked would be seen."""
        await turn.calling()
        if turn.text == "wait" and turn.attempt == 1:
            self._waits.set()
            await asyncio.Event().wait()
        return Answer(answer_to(turn.text))

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """Somebody requests access, is approved, begins a task, is revoked, and writes again."""
        platform.say_once("one", "hello")
        code = await self._once("code", lambda: _code(platform))
        await _act(world, action="approve", code=code)
        await platform.until(lambda: people_texts.approved() in platform.texts("one"))
        if not self._folder.joinpath("out").exists():
            platform.say_once("one", "wait")
            await self._waits.wait()
        self._folder.joinpath("out").touch()
        await _act(world, action="revoke", person=("fake", "ann"))
        platform.say_once("one", "again")
        await platform.until(lambda: platform.acknowledged == 3)
        await world.gateway.turns.quiet()
        await world.stop()

    async def _once(self, name: str, find: Callable[[], Awaitable[str]]) -> str:
        file = self._folder / name
        if not file.exists():
            file.write_text(await find())
        return file.read_text()


async def _code(platform: FakePlatform) -> str:
    await platform.until(lambda: bool(platform.texts("one")))
    found = CODE.search(platform.texts("one")[0])
    assert found is not None
    return found[1]


async def _act(world: World, **wanted: object) -> None:
    act = PersonAct(id=str(wanted["action"]), actor="owner", at=world.clock.now(), notice=0, **wanted)  # type: ignore[arg-type]
    assert isinstance(await world.gateway.people.act(act), PersonActed)


class BacklogAgent(AccessAgent):
    """Answers; in its scenario somebody wrote while no gateway ran."""

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """The sender is asked about the backlog, and wants all of it answered."""
        for number in ("one", "two"):
            await world.accept(_written(number, number, 1_000.0))
        await platform.until(lambda: any("2 messages came" in text for text in platform.texts("one")))
        await world.accept(_written("three", "/answer", None))
        await platform.until(lambda: {answer_to("one"), answer_to("two")} <= set(platform.texts("one")))
        await world.stop()


def _written(number: str, text: str, said_at: float | None) -> Inbound:
    source = SessionSource(platform="fake", chat_id="one", user_id="ann", message_id=number)
    return Inbound(id=f"{number}@one", source=source, text=text, said_at=said_at)


ASKING = replace(BASIC, busy="queue", backlog={"fake": BacklogRule(policy="ask")})


def screen(process: CrashProcess) -> list[str]:
    return FakePlatform(file=process.folder / "platform").texts("one")


def notified_once(process: CrashProcess, at: object) -> None:
    """Check that the approved person got one notice, and no answer once revoked."""
    code, *rest = screen(process)
    assert (bool(CODE.search(code)), rest) == (True, [people_texts.approved()]), at


def asked_once(process: CrashProcess, at: object) -> None:
    """Check that the backlog is asked about once, and each message of it is answered once."""
    seen = screen(process)
    assert sum("2 messages came" in text for text in seen) == 1, (at, seen)
    assert [seen.count(answer_to(text)) for text in ("one", "two")] == [1, 1], (at, seen)
