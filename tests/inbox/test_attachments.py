"""Attachments are fetched after the commit and become part of the text; whatever happens the message is answered."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.errors import OutcomeUnknown, TryLater
from everturn.home.files import Media, SavedFile
from everturn.inbox.attachments import LEAST_WAIT_S
from everturn.inbox.rules import MediaRules
from everturn.lifecycle.settings import Settings
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.testing import FakePlatform, FilePlatform, ManualClock, ScriptedAgent, World
from tests.scenes import Actor, die, happened, told, until_read

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
PHOTO = Attachment(kind="image", ref="cat", name="cat.png", size=len(PNG))
NOTES = Attachment(kind="document", ref="notes", name="../my notes.txt")


def place_of(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'everturn.db'}"


def with_files(**more: bytes) -> FilePlatform:
    return FilePlatform(contents={"cat": PNG, "notes": b"buy milk\n", **more})


def world_of(tmp_path: Path, platform: FakePlatform, **settings: object) -> World:
    chosen = Settings(burst_s=0.0, **settings)  # type: ignore[arg-type]
    return World(place_of(tmp_path), ScriptedAgent(), [platform], settings=chosen, media=Media(tmp_path / "files"))


async def test_a_picture_and_a_text_document_become_part_of_the_text(tmp_path: Path) -> None:
    platform = with_files()
    async with world_of(tmp_path, platform):
        platform.attach("one", "look", [PHOTO, NOTES])
        answer = await told(platform, "one", "echo: look")
    picture, notes = sorted(path.name for path in (tmp_path / "files").iterdir()), answer.split("\n\n")
    assert "cat.png" in notes[1]
    assert "image/png" in notes[1]
    assert "buy milk" in answer
    assert "[end of my notes.txt]" in answer
    assert len(picture) == 2
    assert all((tmp_path / "files" / name).stat().st_mode & 0o777 == 0o600 for name in picture)


async def test_a_message_that_is_only_a_file_is_answered(tmp_path: Path) -> None:
    platform = with_files()
    async with world_of(tmp_path, platform):
        platform.attach("one", "", [PHOTO])
        assert "[image: cat.png, image/png, 14 bytes" in await told(platform, "one", "echo: ")


async def test_a_missing_file_causes_one_notice_and_the_message_is_answered_anyway(tmp_path: Path) -> None:
    platform = with_files(bad=b"\x7fELF\x02", large=b"x" * 200)
    gone = [Attachment(kind="document", ref=each, name=f"{each}.bin") for each in ("gone", "bad", "large")]
    large = Attachment(kind="video", ref="never asked", size=10**9)
    world = World(place_of(tmp_path), ScriptedAgent(), [platform], media=Media(tmp_path / "files", most=100))
    async with world:
        platform.attach("one", "look", [*gone, large])
        answer = await told(platform, "one", "echo: look")
    (notice,) = [text for text in platform.texts("one") if text.startswith("I did not get")]
    for part in ("gone.bin (the file is gone)", "x-executable are not accepted", "large.bin (", "video.mp4 ("):
        assert part in notice
    assert answer.count("did not arrive") == 4
    assert sorted(platform.fetches) == ["bad", "gone", "large"]
    assert list((tmp_path / "files").iterdir()) == []


async def test_a_platform_without_files_says_so(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with world_of(tmp_path, platform):
        platform.attach("one", "look", [PHOTO])
        assert "I cannot receive files on this platform" in await told(platform, "one", "I did not get")
        await told(platform, "one", "echo: look")


class WatchedMedia(Media):
    """It is known when a file was kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = asyncio.Event()

    async def keep(self, name: str, parts: AsyncIterator[bytes], *, by_content: bool = False) -> SavedFile:
        saved = await super().keep(name, parts, by_content=by_content)
        self.kept.set()
        return saved


async def test_a_fetch_that_fails_is_retried_until_the_time_is_over(tmp_path: Path) -> None:
    platform, clock, media = with_files(), ManualClock(), WatchedMedia(tmp_path / "files")
    platform.fetch_faults = [TryLater("busy", 3.0), OutcomeUnknown("what?"), RuntimeError("broken")]
    world = World(place_of(tmp_path), ScriptedAgent(), [platform], clock, Settings(burst_s=0.0), media=media)
    async with world:
        platform.attach("one", "first", [PHOTO])
        for tries, pause_s in enumerate((3.0, LEAST_WAIT_S), 1):
            await platform.until(lambda tries=tries: len(platform.fetches) == tries)  # type: ignore[misc]
            clock.advance(pause_s)
        assert "it could not be fetched" in await told(platform, "one", "I did not get cat.png")
        assert len(platform.fetches) == 3
        platform.attach("one", "second", [Attachment(kind="image", ref="slow"), PHOTO])
        await happened(media.kept)
        clock.advance(30)
        answer = await told(platform, "one", "echo: second")
    assert "image.jpg did not arrive: it could not be fetched in time" in answer
    assert "cat.png, image/png" in answer


async def test_a_death_while_fetching_fetches_again_and_another_home_gets_its_own_copy(tmp_path: Path) -> None:
    platform, actor = with_files(slow=PNG), Actor()
    slow = Attachment(kind="image", ref="slow", name="cat.png")
    world = World(place_of(tmp_path), actor, [platform], media=Media(tmp_path / "files"))
    await world.start()
    platform.attach("one", "hold", [slow])
    await platform.until(lambda: platform.fetches == ["slow"])
    await die(world)
    platform.slow.set()
    await world.start()
    await actor.until(lambda: bool(actor.holding))
    (text,) = {each.text for each in actor.attempts}
    await die(world)
    elsewhere = World(place_of(tmp_path), actor, [platform], media=Media(tmp_path / "other"))
    await elsewhere.start()
    actor.release()
    await told(platform, "one", "answer: hold")
    await elsewhere.stop()
    assert {each.text for each in actor.attempts} == {text}
    assert [path.name for path in (tmp_path / "other").iterdir()] == [
        path.name for path in (tmp_path / "files").iterdir()
    ]


async def test_files_of_messages_that_join_a_running_turn_are_fetched_before_its_agent_has_them(tmp_path: Path) -> None:
    platform = with_files()

    async def send_more(_name: str, _key: str) -> str:
        platform.attach("one", "and this", [PHOTO])
        await platform.until(lambda: platform.acknowledged == 2)
        return "done"

    agent = ScriptedAgent(tools=["tool"], act=send_more, joins=True)
    async with World(place_of(tmp_path), agent, [platform], media=Media(tmp_path / "files")):
        platform.say("one", "hello")
        await told(platform, "one", "cat.png")
    (heard,) = agent.heard
    assert heard.startswith("and this\n\n[image: cat.png, image/png")


async def test_an_album_is_one_turn(tmp_path: Path) -> None:
    platform, clock = with_files(), ManualClock()
    async with World(place_of(tmp_path), ScriptedAgent(), [platform], clock, media=Media(tmp_path / "files")):
        platform.attach("one", "holiday", [PHOTO], album="a")
        platform.attach("one", "", [NOTES], album="a")
        platform.say("one", "behind it")
        await platform.until(lambda: platform.acknowledged == 3)
        clock.advance(1)  # nothing more of the album comes
        answer = await told(platform, "one", "echo: holiday")
        await told(platform, "one", "echo: behind it")
    assert "cat.png" in answer
    assert "buy milk" in answer
    assert len(platform.texts("one")) == 2


async def test_all_files_of_an_album_share_one_time(tmp_path: Path) -> None:
    platform, clock, settings = with_files(), ManualClock(), Settings(media=MediaRules(fetch_s=30), burst_s=0.0)
    world = World(place_of(tmp_path), ScriptedAgent(), [platform], clock, settings, media=Media(tmp_path / "files"))
    async with world:
        for _ in range(3):
            platform.attach("one", "look", [Attachment(kind="image", ref="slow")], album="a")
        await platform.until(lambda: platform.acknowledged == 3)
        clock.advance(1)  # nothing more of the album comes
        await platform.until(lambda: len(platform.fetches) == 3)
        clock.advance(30)
        await told(platform, "one", "echo: look")


@pytest.mark.parametrize(("files", "name", "ref"), [((PHOTO,), "cat.png", PHOTO.ref), ((), "my notes.txt", NOTES.ref)])
async def test_an_edit_of_a_waiting_message_replaces_its_files_if_it_has_some(
    tmp_path: Path, files: tuple[Attachment, ...], name: str, ref: str
) -> None:
    """Not every platform says again with an edit what came with the message."""
    platform, actor = with_files(), Actor()
    async with World(
        place_of(tmp_path), actor, [platform], settings=Settings(busy="queue"), media=Media(tmp_path / "files")
    ) as world:
        platform.say("one", "hold")
        await actor.held("hold")
        number = platform.attach("one", "look", [NOTES])
        await platform.until(lambda: platform.acknowledged == 2)
        source = SessionSource(platform="fake", chat_id="one", user_id="ann", message_id=number)
        edit = Inbound(id="e1", source=source, text="look!", what=Heard.EDITED, of=f"{number}@one", attachments=files)
        await world.accept(edit)
        actor.release()
        answer = await told(platform, "one", "answer: look!")
    assert name in answer
    assert platform.fetches == [ref]


async def test_files_are_let_go_in_time_but_not_those_that_a_turn_needs(tmp_path: Path) -> None:
    platform, actor, files = with_files(), Actor(), tmp_path / "files"
    rules = Settings(media=MediaRules(keep_s=60))
    async with World(place_of(tmp_path), actor, [platform], settings=rules, media=Media(files)) as world:
        platform.attach("one", "hold", [PHOTO])
        platform.attach("two", "look", [NOTES])
        await told(platform, "two", "answer: look")
        await actor.until(lambda: bool(actor.holding))
        for path in files.iterdir():
            os.utime(path, (1, 1))
        await until_read(world.gateway.upkeep.expire_files, lambda _: len(list(files.iterdir())) == 1)
        assert "cat.png" in next(files.iterdir()).name
        actor.release()
        await told(platform, "one", "answer: hold")
