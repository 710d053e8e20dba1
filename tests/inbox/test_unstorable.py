"""A message that makes storing raise: it alone is a dead letter or skipped, and its platform is read on."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from everturn.inbox.rows.inbox import read_cursor
from everturn.model import Attachment, Heard, Inbound
from everturn.operator.rows.overview import messages
from everturn.sessions.rules import notices
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, World
from tests.scenes import told, trace_of, while_time_passes
from tests.waiting import poll

NOT_A_FILE = Attachment(kind="image", ref=object())  # type: ignore[arg-type]  # an adapter that breaks its word


class Odd(FakePlatform):
    """A platform that delivers the message `odd` with something that no database takes, each time until it is acknowledged."""

    def __init__(self, **odd: object) -> None:
        super().__init__()
        self._odd = odd

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:
        """As people wrote it, but for the odd one; with how far it is read."""
        async for said in super().inbound(after):
            yield replace(said, cursor=said.id, **(self._odd if said.text == "odd" else {}))


async def read_past(url: str, platform: Odd) -> tuple[str, list[dict[str, object]], list[str]]:
    """Two people write, the first of them oddly: the cursor, the dead letters, and the errors that name the message."""
    with capture_logs() as logs:
        async with World(url, ScriptedAgent(), [platform], ManualClock()) as world:
            platform.say("one", "odd")
            platform.say("two", "hello")
            await while_time_passes(world, told(platform, "two", "echo: hello"), 0.5)
            cursor, dead = (
                await world.store.read(read_cursor, "fake", ""),
                await world.store.read(messages, "dead", 0, 9),
            )
    errors = [str(each["id"]) for each in logs if each["log_level"] == "error"]
    return str(cursor), [dict(each) for each in dead], errors


async def test_a_message_that_cannot_be_stored_is_a_dead_letter_without_the_odd_fields(store_url: str) -> None:
    """Promises 1 and 9: others are read and answered, its sender gets a notice, the log names it."""
    platform = Odd(attachments=(NOT_A_FILE,))
    cursor, dead, errors = await read_past(store_url, platform)
    assert [(each["text"], each["why"]) for each in dead] == [("odd", "unstorable")]
    assert (cursor, errors) == ("m2@two", ["m1@one"])
    assert platform.texts("one") == [notices.UNSTORABLE]


@pytest.mark.parametrize("odd", [{"text": 7}, {"what": Heard.EDITED, "of": object()}], ids=["said", "edited"])
async def test_what_leaves_nothing_to_store_is_skipped(store_url: str, odd: dict[str, object]) -> None:
    platform = Odd(**odd)
    cursor, dead, errors = await read_past(store_url, platform)
    assert (cursor, dead, errors) == ("m2@two", [], ["m1@one"])
    assert platform.texts("one") == []


async def test_a_number_that_no_column_takes_is_left_out_at_the_border(store_url: str) -> None:
    """The message is answered: nobody needs that number."""
    huge = 2**70
    platform = Odd(edition=huge, attachments=(Attachment(kind="document", ref="r", name="a.txt", size=huge),))
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        platform.say("one", "odd")
        await told(platform, "one", "echo: odd")
        assert (await trace_of(world, "m1"))["state"] == "done"


async def test_a_webhook_gets_its_answer_though_the_message_cannot_be_stored(store_url: str) -> None:
    """An update of Telegram that is not acknowledged comes again, before everything else of that bot."""
    clock = ManualClock()
    platform = FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform], clock) as world:
        platform.say("one", "hello")
        odd = replace(platform.said()[0], id="m9@one", text="odd", attachments=(NOT_A_FILE,))
        await while_time_passes(world, world.gateway.intake.take(odd), 0.5)
        (dead,) = await world.store.read(messages, "dead", 0, 9)
    assert (dead["text"], dead["why"]) == ("odd", "unstorable")


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("ALTER TABLE inbox RENAME TO away", "ALTER TABLE away RENAME TO inbox"),
        ("ALTER SCHEMA public RENAME TO away", "ALTER SCHEMA away RENAME TO public"),
    ],
    ids=["table", "schema"],
)
async def test_what_is_said_while_the_tables_are_missing_is_no_odd_message(
    database_url: str, away: str, back: str
) -> None:
    """Promise 1: somebody restores a backup beside us. It is waited for, and the status says why."""
    platform, owner = FakePlatform(), await asyncpg.connect(database_url)
    async with World(database_url, ScriptedAgent(), [platform]) as world:
        await owner.execute(away)
        try:
            platform.say("one", "hello")
            await poll(lambda: "cannot serve requests now" in (world.store.trouble() or ""))
        finally:
            await owner.execute(back)
        await told(platform, "one", "echo: hello")
    await owner.close()
