"""Pictures that were dropped into a conversation reach a model that sees, after a restart too; the transcript has their address."""

from functools import partial
from pathlib import Path

from everturn.model import Attachment
from everturn.testing import FilePlatform
from tests.agent.llm.scenes import scene
from tests.scenes import restarted

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
NUMBER = "p" * 22
TEXT = f"what is this?\n\n![cat.png](/files/{NUMBER}/cat.png) [gone](/files/{'g' * 22}/gone.png) [n](/files/{'n' * 22}/n.txt)"


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"{NUMBER}.cat.png").write_bytes(PNG)
    (folder / f"{'n' * 22}.n.txt").write_text("not a picture")
    return folder


async def test_a_model_that_sees_gets_the_picture_with_the_text_that_names_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    async with scene(url, images="yes", uploads=folder_of(tmp_path)) as it:
        await it.ask(TEXT)
        await restarted(it.world)
        await it.ask("and now?")
        rows = await it.transcript()
        first, second = it.sent()
    text, picture = first[-1]["content"]
    assert text == {"type": "text", "text": TEXT}
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert second[1] == first[-1]  # the request begins with the same bytes
    assert rows[0].content == TEXT


async def test_a_model_that_does_not_see_gets_the_address_only(tmp_path: Path) -> None:
    async with scene(f"sqlite:///{tmp_path / 'everturn.db'}", uploads=folder_of(tmp_path)) as it:
        await it.ask(TEXT)
        (sent,) = it.sent()
    assert sent[-1]["content"] == TEXT


async def test_a_sticker_is_described_once_and_known_ever_after(tmp_path: Path) -> None:
    webp = Attachment(kind="sticker", ref="r1", unique="u1", text="😀", family="Cats")
    moving = Attachment(kind="sticker", ref="r2", unique="u2", text="🎉", moving=True)
    platform = FilePlatform(contents={"r1": b"RIFF0000WEBP pixels", "r2": b"moving"})
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    async with scene(url, images="yes", uploads=tmp_path / "files", platform=platform) as it:
        for chat, sticker in (("one", webp), ("two", webp), ("two", moving)):
            before = len(platform.texts(chat))
            platform.attach(chat, "", [sticker])
            await platform.until(partial(lambda chat, before: len(platform.texts(chat)) > before, chat, before))
        rows, sent = await it.transcript("two"), it.sent()
    asked = [each for each in sent if isinstance(each[-1]["content"], list)]
    assert len(asked) == 1
    assert asked[0][-1]["content"][1]["image_url"]["url"].startswith("data:image/webp;base64,")
    assert rows[0].content.startswith("[sticker 😀 from the set Cats: ")
    assert rows[2].content == "[sticker 🎉; it moves and cannot be seen]"
    assert platform.fetches == ["r1"]
