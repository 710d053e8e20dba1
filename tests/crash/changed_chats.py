"""A group that gets another number, and a turn that fails, while the gateway dies at each point of it."""

from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Heard, Inbound, SessionSource
from everturn.testing import FakePlatform, World
from tests.crash.gateway_process import CrashProcess, answer_to

OLD, NEW = "old", "new"


class Answering:
    """Answers; `fail` it cannot answer."""

    def __init__(self, _: Path) -> None:
        self.send: object = None

    async def run(self, turn: TurnContext) -> Answer:
        """Say how many messages of people the conversation has."""
        await turn.calling()
        if turn.text == "fail":
            raise RuntimeError("the model is not there")
        said = sum(row.role == "user" for row in await turn.history())
        return Answer(f"{answer_to(turn.text)}, number {said}")


class Moving(Answering):
    """Talks in a group that moves."""

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """The platform tells of the move until we took it; then somebody writes under the new number."""
        if not platform.said():
            platform.say(OLD, "before", chat_type="group")
        await platform.until(lambda: bool(platform.texts(OLD)))
        there = SessionSource(platform="fake", chat_id=NEW, chat_type="group", user_id="ann", message_id="moved")
        await world.accept(Inbound(id="moved", source=there, text="", what=Heard.MOVED, of=OLD))
        if len(platform.said()) == 1:
            platform.say(NEW, "after", chat_type="group")
        await platform.until(lambda: bool(platform.texts(NEW)))
        await world.stop()


class Failing(Answering):
    """Fails at its first message."""

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """The sender gets a notice, and writes something else."""
        platform.say_once("one", "fail")
        await platform.until(lambda: bool(platform.texts("one")))
        platform.say_once("one", "after")
        await platform.until(lambda: any(text.startswith(answer_to("after")) for text in platform.texts("one")))
        await world.stop()


def went_on(process: CrashProcess, at: object) -> None:
    """One conversation: what was said under the old number is in it."""
    platform = FakePlatform(file=process.folder / "platform")
    assert platform.texts(OLD) == [f"{answer_to('before')}, number 1"], at
    assert platform.texts(NEW) == [f"{answer_to('after')}, number 2"], at


def failed_once(process: CrashProcess, at: object) -> None:
    """One notice, one answer."""
    notice, answer = FakePlatform(file=process.folder / "platform").texts("one")
    assert "I could not answer" in notice, (at, notice)
    assert answer.startswith(answer_to("after")), (at, answer)
