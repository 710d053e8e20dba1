"""An album in a group where the bot must be named: it reaches the agent whole, or nothing of it is kept."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn.errors import StoreUnavailable
from everturn.home.files import Media
from everturn.inbox.rules import ALBUM_S
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound, SessionSource
from everturn.people.rules.access import AccessPolicy, Admission
from everturn.platform.posted import ApiPlatform
from everturn.platform.telegram import TelegramPlatform
from everturn.platform.telegram.adapter import SECRET_HEADER
from everturn.sessions.rules.keys import Isolation
from everturn.store.interface import Op, sql
from everturn.testing import ManualClock, ScriptedAgent, World
from everturn.testing.telegram import BOT_ID, group
from everturn.web.app import Hooks
from everturn.web.wire.server import make_app, serve
from tests.contracts.telegram import TelegramDriver
from tests.crash.streaming import WITH_FILES
from tests.postgres import free_port
from tests.scenes import die, while_time_passes
from tests.waiting import WAIT_S, read_until, within
from tests.web.composition import Desk

PNG = b"\x89PNG\r\n\x1a\n"
NAMED = "@everturn_bot what is this?"
PATH = f"/hooks/telegram/{BOT_ID}"


class Watched(ManualClock):
    """It is known when somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Say so, and wait."""
        self.asleep.set()
        return super().sleep(seconds)

    async def until_asleep(self) -> None:
        """Wait for who sleeps next."""
        async with within(WAIT_S, lambda: "nobody who sleeps"):
            await self.asleep.wait()

    async def pass_by(self, seconds: float) -> None:
        """Wait for who sleeps next, and let so much time pass."""
        await self.until_asleep()
        self.asleep.clear()
        self.advance(seconds)


def stored() -> Op[int]:
    rows = yield sql("SELECT count(*) FROM inbox")
    return int(rows[0][0])


@dataclass
class Scene:
    """A group in which Ann sends albums, and a gateway that is there. Its time passes once all of an album is stored: nothing of
    it comes too late, however slow the machine is.
    """

    driver: TelegramDriver
    folder: Path
    team: int
    time: ManualClock = field(default_factory=lambda: ManualClock(time.time()))
    gateway: World | None = None  # the latest

    def world(self, *, clock: ManualClock | None = None, settings: Settings = WITH_FILES, **own: Any) -> World:
        platform = self.driver.connected(listening=False, clock=clock, **own)
        url, media = f"sqlite:///{self.folder / 'everturn.db'}", Media(self.folder / "files")
        self.gateway = World(url, ScriptedAgent(), [platform], self.time, settings, media=media)
        return self.gateway

    def sends(self, *captions: str, who: str = "Ann", album: str = "a", **more: Any) -> None:
        for caption in captions:
            number = self.driver.telegram.state.number()
            self.driver.person(who).sends_photo(PNG + b"%d" % number, caption, self.team, media_group_id=album, **more)

    def answers(self) -> list[str]:
        return [each for each in self.driver.telegram.texts(self.team) if each.startswith("echo:")]

    async def answered(self, *photos: int) -> None:
        """So many answers, to so many photos each, or to texts."""
        world, parts = self.gateway, sum(max(1, each) for each in photos)
        assert world is not None
        await read_until(lambda: world.store.read(stored), lambda found: found >= parts)
        await while_time_passes(world, self.driver.until(lambda: len(self.answers()) == len(photos)))
        assert [each.count("image/png") for each in self.answers()] == list(photos)

    async def nothing_was_kept(self, world: World) -> None:
        """Assert that the group's conversation began only with the next message."""
        self.driver.person("Ann").says("@everturn_bot are you there?", chat=self.team)
        await self.answered(0)
        assert await world.store.read(stored) == 1


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with TelegramDriver() as driver:
        yield Scene(driver, tmp_path, group(driver.telegram, "Team"))


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_wherever_our_name_stands_the_whole_album_is_one_message(scene: Scene, place: int) -> None:
    scene.sends(*(NAMED if number == place else "" for number in range(3)))
    async with scene.world() as world:
        await scene.answered(3)
        assert await world.store.read(stored) == 3
    assert scene.answers()[0].count("what is this?") == 1


async def test_an_album_of_which_one_part_answers_to_us_is_ours(scene: Scene) -> None:
    async with scene.world() as world:
        place = SessionSource(platform="telegram", chat_id=str(scene.team), chat_type="group")
        platform = world.platforms["telegram"]
        assert isinstance(platform, TelegramPlatform)
        ours = int(await platform.send(place, "I am here", "1-0"))
        scene.sends("look")
        scene.sends("", reply_to_message=scene.driver.telegram.state.rooms[scene.team].messages[ours])
        scene.sends("")
        await scene.answered(3)


async def test_nothing_is_kept_of_an_album_that_does_not_name_us(scene: Scene) -> None:
    scene.sends("for all", "", "/status@other_bot")
    clock = Watched()
    async with scene.world(clock=clock) as world:
        for _ in range(4):
            assert scene.driver.acknowledged() == 0
            await clock.pass_by(ALBUM_S / 4)
        await scene.nothing_was_kept(world)
        await scene.driver.until(lambda: scene.driver.acknowledged() == 4)


async def test_the_part_with_our_name_may_come_last_and_in_another_batch(scene: Scene) -> None:
    """What arrives between does not wait, and arrives once."""
    clock = Watched()
    async with scene.world(clock=clock):
        scene.sends("one")
        await clock.until_asleep()
        scene.driver.person("Bob").says("@everturn_bot hello", chat=scene.team)
        await clock.pass_by(ALBUM_S / 4)
        await scene.answered(0)
        scene.sends("two")
        await clock.pass_by(ALBUM_S / 4)
        await clock.until_asleep()
        scene.sends(NAMED)
        await clock.pass_by(ALBUM_S / 4)
        await scene.answered(0, 3)
        await scene.driver.until(lambda: scene.driver.acknowledged() == 4)
    said = [scene.answers()[1].index(text) for text in ("one", "two", "what is this?")]
    assert said == sorted(said)


async def test_what_comes_after_a_part_that_waits_is_passed_on_once(scene: Scene) -> None:
    clock, found = Watched(), list[Inbound]()
    reading = scene.driver.connected(listening=False, clock=clock).inbound(None)
    scene.sends("")
    scene.driver.person("Bob").says("hello")
    scene.driver.person("Bob").says("last")
    async with within(WAIT_S, lambda: found):
        found += [await anext(reading) for _ in range(3)]
        for _ in range(2):
            waiting = asyncio.ensure_future(anext(reading))
            await clock.pass_by(ALBUM_S / 4)
            found.append(await waiting)
    await reading.aclose()
    assert [each.only_with_album for each in found] == [True, False, False, True, True]


async def test_a_part_is_edited_while_it_waits_for_our_name(scene: Scene) -> None:
    clock = Watched()
    async with scene.world(clock=clock):
        scene.sends("old words")
        await clock.until_asleep()
        room = scene.driver.telegram.state.rooms[scene.team]
        message = max(room.messages.values(), key=lambda each: each["message_id"])
        message |= {"caption": "new words", "edit_date": int(scene.driver.telegram.now())}
        scene.driver.telegram.tell(room, "edited_message", message)
        await clock.pass_by(ALBUM_S / 4)
        await clock.until_asleep()
        scene.sends(NAMED)
        await clock.pass_by(ALBUM_S / 4)
        await scene.answered(2)
    assert ("new words" in scene.answers()[0], "old words" in scene.answers()[0]) == (True, False)


@pytest.mark.parametrize("death", [False, True])
async def test_a_gateway_that_ends_before_our_name_comes_has_let_nothing_go(scene: Scene, *, death: bool) -> None:
    clock = Watched()
    async with scene.world(clock=clock) as world:
        scene.sends("", "")
        await clock.until_asleep()
        if death:
            await die(world)
            await world.start()  # so that it can end
    scene.sends(NAMED)
    async with scene.world():
        await scene.answered(3)


async def test_what_follows_our_name_is_ours_after_a_restart_too(scene: Scene) -> None:
    async with scene.world():
        scene.sends(NAMED)
        await scene.answered(1)
        await scene.driver.until(lambda: scene.driver.acknowledged() == 1)
    scene.sends("", "")
    scene.sends("", album="another")
    clock = Watched()
    async with scene.world(clock=clock) as world:
        await scene.answered(1, 2)
        for _ in range(4):
            await clock.pass_by(ALBUM_S / 4)
        await scene.driver.until(lambda: scene.driver.acknowledged() == 4)
        assert await world.store.read(stored) == 3


async def test_somebody_else_may_speak_between_the_parts(scene: Scene) -> None:
    scene.sends("")
    scene.driver.person("Bob").says("@everturn_bot hello", chat=scene.team)
    scene.sends("", NAMED)
    shared = replace(WITH_FILES, isolation=Isolation(group_sessions_per_user=False))
    async with scene.world(settings=shared):
        await scene.answered(3, 0)


async def test_who_may_not_speak_is_not_heard_with_an_album_either(scene: Scene) -> None:
    admission = Admission(policies={"telegram": AccessPolicy(allow=(str(scene.driver.person("Ann").id),))})
    async with scene.world(settings=replace(WITH_FILES, admission=admission)) as world:
        scene.sends("", NAMED, "", who="Bob")
        scene.sends("", album="b", who="Bob")
        await scene.nothing_was_kept(world)


# -- by webhook --------------------------------------------------------------------------------------------------------


@dataclass
class WebhookClient:
    """The webhook endpoint; it may be told that nothing can be stored."""

    scene: Scene
    world: World
    client: httpx.AsyncClient
    trouble: list[str]
    numbers: Iterator[int]

    async def posts_album(self, *captions: str, album: str = "a", at_once: bool = False) -> list[int]:
        """Post parts of an album, one after the other or all at once; returns our responses."""
        posts = [self._post_photo(caption, album) for caption in captions]
        return await asyncio.gather(*posts) if at_once else [await each for each in posts]

    async def _post_photo(self, caption: str, album: str) -> int:
        number, ann = next(self.numbers), self.scene.driver.person("Ann")
        file = self.scene.driver.telegram.state
        file.files[f"f{number}"] = PNG + b"%d" % number
        photo = {"file_id": f"f{number}", "file_unique_id": f"u{number}", "file_size": 9}
        message = {
            "message_id": number, "date": int(self.scene.driver.telegram.now()), "from": ann.about, "photo": [photo],
            "chat": {"id": self.scene.team, "type": "supergroup", "title": "Team"}, "caption": caption, "media_group_id": album,
        }  # fmt: skip
        return await self.posts({"update_id": number, "message": message})

    async def posts(self, update: dict[str, Any]) -> int:
        """Post one update, and again as long as we do not accept it."""
        platform = self.world.platforms["telegram"]
        assert isinstance(platform, TelegramPlatform)
        headers = {SECRET_HEADER.decode(): platform.secret}
        answer = await self.client.post(PATH, json=update, headers=headers)
        if answer.status_code == 503:
            answer = await self.client.post(PATH, json=update, headers=headers)
        return answer.status_code


@asynccontextmanager
async def webhook(scene: Scene, first: int = 1000, **own: Any) -> AsyncIterator[WebhookClient]:
    port, trouble = free_port(), list[str]()
    async with scene.world(hook_url=f"http://127.0.0.1:{port}{PATH}", **own) as world:

        async def take(inbound: Inbound) -> None:
            if trouble and not inbound.only_with_album:
                raise StoreUnavailable(trouble.pop())
            await world.gateway.intake.take(inbound)

        gateway = world.gateway
        app = make_app(
            accept=gateway.intake.accept, chats=ApiPlatform(), hub=gateway.hub, store=world.store, token="t",
            key_of=gateway.settings.key_of, message_chars=1000, control=Desk(), hooks=Hooks(world.platforms.values(), take),
        )  # fmt: skip
        serving = await serve(app, "127.0.0.1", port)
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                yield WebhookClient(scene, world, client, trouble, itertools.count(first))
        finally:
            await serving.close()


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_an_album_by_webhook_is_one_message(scene: Scene, place: int, *, at_once: bool) -> None:
    async with webhook(scene) as hook:
        captions = [NAMED if number == place else "" for number in range(3)]
        assert await hook.posts_album(*captions, at_once=at_once) == [200, 200, 200]
        await scene.answered(3)
        assert await hook.world.store.read(stored) == 3


async def test_telegram_itself_posts_an_album_whole(scene: Scene) -> None:
    async with webhook(scene):
        scene.sends("", "", NAMED)
        await scene.answered(3)


async def test_nothing_is_kept_of_an_album_by_webhook_that_does_not_name_us(scene: Scene) -> None:
    clock = ManualClock()
    async with webhook(scene, clock=clock) as hook:
        await hook.posts_album("for all", "", "/status@other_bot")
        clock.advance(60)
        await hook.posts_album(NAMED)  # much later: what was said before is forgotten
        await scene.answered(1)
        assert await hook.world.store.read(stored) == 1


async def test_what_cannot_be_stored_at_first_is_posted_again_with_its_album(scene: Scene) -> None:
    async with webhook(scene) as hook:
        hook.trouble.append("the disk is full")
        assert await hook.posts_album("", NAMED) == [200, 200]
        hook.trouble.append("the disk is full")
        assert await hook.posts_album("") == [200]
        await scene.answered(3)


async def test_what_arrives_by_webhook_after_our_name_is_ours_after_a_restart_too(scene: Scene) -> None:
    async with webhook(scene) as hook:
        await hook.posts_album(NAMED)
        await scene.answered(1)
    async with webhook(scene, first=2000) as hook:
        await hook.posts_album("", "")
        await scene.answered(1, 2)
