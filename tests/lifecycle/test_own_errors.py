"""An error of an operation itself is no closing store: it is logged, its row is retried or a dead letter, and the key
is not forgotten until a restart.
"""

from structlog.testing import capture_logs

from everturn.agent.interface import NO_USAGE, Answer, TurnContext
from everturn.errors import Refused, TryLater
from everturn.model import Usage
from everturn.operator.rows.overview import replies
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, SendFault, World
from tests.contracts.store import select
from tests.scenes import told, until_ended, until_read, while_time_passes

NOT_TEXT = "half of a pair: \ud800"


async def test_a_damaged_reply_is_a_dead_letter_and_what_follows_it_leaves(store_url: str) -> None:
    """Promise 9. Its row cannot be read: it is named in the log, can be sent again, and no other reply waits for it."""
    platform = FakePlatform(faults=[SendFault(TryLater("slow down", 30))])
    with capture_logs() as logs:
        async with World(store_url, ScriptedAgent(), [platform], ManualClock()) as world:
            platform.say("one", "hello")
            await until_read(
                lambda: world.store.read(select, "SELECT state, error FROM outbox"),
                lambda rows: rows == [("pending", "slow down")],
            )
            await world.store.run(select, "UPDATE outbox SET parts='{'")
            platform.say("one", "again")
            await while_time_passes(world, told(platform, "one", "echo: again"))
            (dead,) = await world.store.read(replies, "dead", 0, 9)
    assert (dead["text"], "damaged" in str(dead["error"])) == ("echo: hello", True)
    assert [each["reply"] for each in logs if each["event"] == "reply damaged"] == [int(str(dead["reply"]))]


async def test_a_platforms_text_that_no_database_takes_does_not_stop_its_chat(store_url: str) -> None:
    platform = FakePlatform(faults=[SendFault(TryLater(NOT_TEXT, 0)), SendFault(Refused(NOT_TEXT))])
    async with World(store_url, ScriptedAgent(), [platform], ManualClock()) as world:
        platform.say("one", "hello")
        (dead,) = await while_time_passes(world, until_read(lambda: world.store.read(replies, "dead", 0, 9), bool))
        platform.say("one", "again")
        await while_time_passes(world, told(platform, "one", "echo: again"))
    assert "half of a pair" in dead["error"]


class Costly:
    """An agent whose answer comes with a number that no column takes."""

    async def run(self, turn: TurnContext) -> Answer:
        """Answer."""
        return Answer(
            f"re {turn.text}", usage=Usage(requests=1, input_tokens=2**70) if turn.text == "odd" else NO_USAGE
        )


async def test_an_answer_that_cannot_be_stored_ends_its_turn_and_the_chat_goes_on(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Costly(), [platform]) as world:
        message = platform.say("one", "odd")
        assert (await until_ended(world, message, "dead"))["why"].startswith("the answer could not be stored")
        platform.say("one", "again")
        await told(platform, "one", "re again")
