"""Somebody who is approved and revoked, and messages that piled up, while the gateway dies at each point of it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.decide import admission_words
from everturn.decide.admission import PAIR, Admission, Policy
from everturn.decide.backlog import Backlog
from everturn.gateway.parts import Settings
from everturn.model import Inbound, SessionSource
from everturn.store.operations.acting_people import PersonAct, PersonActed
from everturn.testing import FakePlatform, World
from tests.crash.lives import Life, answer_to

BASIC = Settings(stuck_after=0, unclean_boots=0, drain_s=0.0, burst_s=0.0)
PAIRING = replace(BASIC, admission=Admission(policies={"fake": Policy(unknown=PAIR)}))
CODE = re.compile(r"approve ([A-Z2-9]{8})")


class Watched:
    """Waits in its first attempt at `wait`; its story is the owner's, who asks again after every death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waits = asyncio.Event()
        self.send: object = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer; a task that went on although its person was turned out would be seen."""
        await turn.calling()
        if turn.words == "wait" and turn.attempt == 1:
            self._waits.set()
            await asyncio.Event().wait()
        return Answer(answer_to(turn.words))

    async def story(self, world: World, platform: FakePlatform) -> None:
        """Somebody asks, is let in, begins a task, is turned out, and writes again."""
        platform.say_once("one", "hello")
        code = await self._once("code", lambda: _code(platform))
        await _act(world, action="approve", code=code)
        await platform.until(lambda: admission_words.let_in() in platform.texts("one"))
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
    act = PersonAct(id=str(wanted["action"]), who="owner", at=world.clock.now(), notice=0, **wanted)  # type: ignore[arg-type]
    assert isinstance(await world.gateway.people.act(act), PersonActed)


class Away(Watched):
    """Its story is of somebody who wrote while nobody read."""

    async def story(self, world: World, platform: FakePlatform) -> None:
        """They are asked, and want all of it answered."""
        for number in ("one", "two"):
            await world.accept(_written(number, number, 1_000.0))
        await platform.until(lambda: any("2 messages came" in text for text in platform.texts("one")))
        await world.accept(_written("three", "/answer", None))
        await platform.until(lambda: {answer_to("one"), answer_to("two")} <= set(platform.texts("one")))
        await world.stop()


def _written(number: str, text: str, said_at: float | None) -> Inbound:
    source = SessionSource(platform="fake", chat_id="one", user_id="ann", message_id=number)
    return Inbound(id=f"{number}@one", source=source, text=text, said_at=said_at)


ASKING = replace(BASIC, busy="queue", backlog={"fake": Backlog(policy="ask")})


def screen(life: Life) -> list[str]:
    return FakePlatform(file=life.folder / "platform").texts("one")


def told_once(life: Life, at: object) -> None:
    """Who was approved gets one notice, and who was revoked no answer."""
    code, *rest = screen(life)
    assert (bool(CODE.search(code)), rest) == (True, [admission_words.let_in()]), at


def asked_once(life: Life, at: object) -> None:
    """What piled up is asked about once, and each message of it is answered once."""
    seen = screen(life)
    assert sum("2 messages came" in text for text in seen) == 1, (at, seen)
    assert [seen.count(answer_to(words)) for words in ("one", "two")] == [1, 1], (at, seen)
