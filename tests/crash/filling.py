"""A directory of chats that is being filled when the gateway dies: the next process fills it."""

from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.people.rows.directory import directory
from everturn.platform.interface import Channel
from everturn.testing import FakePlatform, World
from tests.crash.gateway_process import answer_to

PLACES = [Channel(f"c{number}", f"Channel {number}", "group") for number in range(150)]  # two commits


class Filling:
    """Answers; its scenario fills the directory of chats."""

    def __init__(self, _: Path) -> None:
        self.send: object = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer."""
        await turn.calling()
        return Answer(answer_to(turn.text))

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """What the platform lists and where somebody spoke is there, once."""
        platform.say_once("one", "hello")
        await platform.until(lambda: answer_to("hello") in platform.texts("one"))
        platform.places = PLACES
        await world.gateway.channels.look()
        known = (await world.store.read(directory)).channels
        assert sorted(each.chat_id for each in known) == sorted(["one", *(each.chat_id for each in PLACES)])
        await world.stop()
