"""The directory fills itself beside the messages' way, and tools send where the people of the turn may."""

import asyncio
from dataclasses import replace
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.toolbox import Tool
from everturn.agent.tools.send import SendSettings, send_tools
from everturn.errors import TryLater
from everturn.lifecycle.gateway import Gateway
from everturn.lifecycle.settings import Settings
from everturn.people.rows.directory import directory, put_alias
from everturn.people.rules.directory import kinds
from everturn.people.rules.rights import Rights
from everturn.platform.interface import Channel
from everturn.sessions.rules.keys import Isolation
from everturn.testing import FakePlatform, ManualClock, World
from everturn.testing.telegram import group, topic
from tests.agent.tools.benches import Bench
from tests.contracts.telegram import TelegramDriver
from tests.scenes import Actor, answer_to, happened, told, until_read, while_time_passes

OWNED = Settings(burst_s=0.0, rights=Rights(owners=("fake:boss",)))
PLACES = [
    Channel("team", "Team", "group"),
    Channel("forum", "Garden", "forum"),
    Channel("forum", "Plans", "forum", thread_id="7", parent="Garden"),
]


def everywhere(bench: Bench) -> list[Tool]:
    gateway = bench.world.gateway
    return send_tools(SendSettings(directory=True), gateway.sending.send, lambda: gateway.channels)


async def test_owners_send_to_any_chat_by_name_and_others_to_their_own(store_url: str) -> None:
    async with Bench(store_url, everywhere, settings=OWNED) as tools:
        tools.platform.places = PLACES
        await tools.talk("hello", chat="ann-chat", user="ann")
        await tools.world.gateway.channels.look()
        assert "will be delivered" in await tools.use("send_message", user="boss", to="#team", text="to the team")
        assert "will be delivered" in await tools.use("send_message", user="boss", to="garden/pl", text="to plans")
        await tools.platform.until(lambda: {"team", "forum"} <= {shown.chat for shown in tools.platform.screen})
        denied = await tools.use("send_message", user="ann", to="Team", text="x")
        assert denied == "Error: no chat is known as Team."  # not even that there is one
        assert await tools.use("list_channels", user="ann", chat="other") == "fake:ann-chat (fake:ann-chat, dm)"
        assert "will be delivered" in await tools.use(
            "send_message", user="ann", chat="other", to="ann-chat", text="hi"
        )
        listed = await tools.use("list_channels", user="boss", query="garden")
        assert sorted(listed.splitlines()) == ["Garden (fake:forum, forum)", "Garden/Plans (fake:forum:7, topic)"]
        assert "Error: several chats fit" in await tools.use("send_message", user="boss", to="g", text="x")
    assert tools.platform.texts("team") == ["to the team"]


async def test_an_alias_leads_only_who_may_go_there(tmp_path: Path) -> None:
    async with Bench(tmp_path, everywhere, settings=OWNED) as tools:
        tools.platform.places = PLACES[:1]
        await tools.world.gateway.channels.look()
        (team,) = (await tools.store.read(directory)).channels
        await tools.store.run(put_alias, "crew", team, 1.0)
        assert "will be delivered" in await tools.use("send_message", user="boss", to="CREW", text="hello")
        assert "no chat is known as crew." in await tools.use("send_message", user="ann", to="crew", text="x")


class Patient:
    """Waits until somebody has joined, then looks where it may send."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.gateway: Gateway | None = None

    async def run(self, turn: TurnContext) -> Answer:
        """Look, before and after."""
        await turn.calling()
        assert self.gateway is not None
        before = await self.gateway.channels.find(turn, "team")
        self.began.set()
        await self.go.wait()
        await turn.joined()
        after = await self.gateway.channels.find(turn, "team")
        return Answer(f"{isinstance(before, str)} {after}")


async def test_a_turn_may_send_no_further_than_each_of_its_speakers(tmp_path: Path) -> None:
    platform, agent = FakePlatform(), Patient()
    platform.places = PLACES
    together = replace(OWNED, isolation=Isolation(group_sessions_per_user=False))
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", agent, [platform], settings=together) as world:
        agent.gateway = world.gateway
        await world.gateway.channels.look()
        platform.say("round", "tell the team", user_id="boss", chat_type="group")
        await happened(agent.began)
        platform.say("round", "and say I am great", user_id="ann", chat_type="group")
        await platform.until(lambda: platform.acknowledged == 2)
        agent.go.set()
        await platform.until(lambda: "False no chat is known as team." in platform.texts("round"))


class Away(FakePlatform):
    """Cannot list its chats."""

    async def channels(self) -> list[Channel]:
        """Not now."""
        raise TryLater("away", 1.0)


async def test_it_is_filled_after_the_start_and_again_whatever_a_platform_says(tmp_path: Path) -> None:
    clock, listed, away = ManualClock(), FakePlatform(), Away("away")
    listed.places = PLACES[:1]
    settings = Settings(burst_s=0.0, directory_every_s=30.0)
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", Actor(), [listed, away], clock, settings) as world:
        away.say("seen", "hello", user_name="Ann", chat_name="never used: it is a direct chat")
        await told(away, "seen", answer_to("hello"))
        found = until_read(lambda: world.store.read(directory), lambda known: len(known.channels) == 2)
        await while_time_passes(world, found)
        names = {each.address: each.label for each in (await world.store.read(directory)).channels}
        assert names == {"fake:team": "Team", "away:seen": "Ann"}
        listed.places = [Channel("team", "Crew", "group")]
        renamed = until_read(
            lambda: world.store.read(directory), lambda known: any(each.name == "Crew" for each in known.channels)
        )
        await while_time_passes(world, renamed)


SELDOM = Settings(burst_s=0.0, directory_every_s=1e6)  # who waits for a look that is due waits for the end of the test


async def known(world: World, *chats: str) -> None:
    """Wait, while time passes, until these chats are in the directory."""
    found = until_read(
        lambda: world.store.read(directory), lambda known: set(chats) <= {each.chat_id for each in known.channels}
    )
    await while_time_passes(world, found)


async def test_a_new_process_looks_soon_whatever_the_last_one_looked_at(store_url: str) -> None:
    platform = FakePlatform()
    platform.places = PLACES[:1]
    async with World(store_url, Actor(), [platform], ManualClock(), SELDOM) as world:
        await known(world, "team")
        platform.say("one", "hello")
        await told(platform, "one", answer_to("hello"))
        await world.stop()
        await world.start()
        await known(world, "one")


async def test_a_chat_is_known_soon_after_somebody_spoke_there(store_url: str) -> None:
    platform = FakePlatform()
    platform.places = PLACES[:1]
    async with World(store_url, Actor(), [platform], ManualClock(), SELDOM) as world:
        await known(world, "team")
        for chat in ("one", "two"):
            platform.say(chat, "hello")
            await told(platform, chat, answer_to("hello"))
            await known(world, chat)


class Entering(FakePlatform):
    """Says when we come into a chat; cannot always list its chats."""

    channel_changes = 0
    away = 0  # so often
    asked = 0

    async def channels(self) -> list[Channel]:
        """As a test said."""
        self.asked += 1
        self.away -= 1
        if self.away >= 0:
            raise TryLater("away", 1.0)
        return await super().channels()


async def test_a_place_is_known_soon_after_we_came_in_and_the_platform_is_not_asked_all_the_time(
    tmp_path: Path,
) -> None:
    platform, clock = Entering(), ManualClock()
    platform.places, platform.away = PLACES[:1], 2
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", Actor(), [platform], clock, SELDOM) as world:
        await known(world, "team")
        assert platform.asked == 3
        platform.places, platform.channel_changes = PLACES, 1
        await known(world, "forum")
        platform.say("one", "hello")
        await told(platform, "one", answer_to("hello"))
        await known(world, "one")
        assert platform.asked == 4


async def test_telegram_is_known_by_who_spoke_there_with_its_forums_and_topics(tmp_path: Path) -> None:
    async with TelegramDriver() as driver:
        telegram, ann = driver.connected(), driver.person("Ann")
        forum = group(driver.telegram, "Garden", forum=True)
        plans = topic(driver.telegram, forum, "Plans")
        async with World(f"sqlite:///{tmp_path / 'everturn.db'}", Actor(), [telegram]) as world:
            ann.says("hello")
            ann.says("hello", chat=forum, thread=plans)
            await driver.until(lambda: driver.telegram.texts(ann.id) and driver.telegram.texts(forum, plans))
            await world.gateway.channels.look()
            known = (await world.store.read(directory)).channels
    kind = kinds(known)
    assert {each.label: kind(each) for each in known} == {"Ann": "dm", "Garden": "forum", "Garden/Plans": "topic"}
