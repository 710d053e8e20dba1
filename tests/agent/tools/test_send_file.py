"""Files that the agent sends: of its folder alone, copied when they are sent, delivered once, and missed by nobody in silence."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.toolbox import Tool
from everturn.agent.tools.send import SendSettings, send_tools
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.home.files import Media
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound, SessionSource
from everturn.operator.rows.overview import replies
from everturn.outbox.rows.replies import events_after
from everturn.outbox.rules.delivery import MAY_REPEAT, Surety
from everturn.outbox.rules.text import keeps_secrets
from everturn.platform.interface import TextLimits
from everturn.platform.posted import ApiPlatform
from everturn.store.interface import Op, sql
from everturn.testing import FakePlatform, FilePlatform, SendFault, key_of
from tests.agent.tools.benches import Bench
from tests.crash.streaming import UNHURRIED, FastClock
from tests.scenes import die

PAGE = SessionSource(platform="api", chat_id="page", user_id="owner")
TEAM = SessionSource(platform="fake", chat_id="team", chat_type="group")


def due_now() -> Op[None]:
    yield sql("UPDATE outbox SET due_at=0 WHERE file IS NOT NULL")


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "report.pdf").write_bytes(b"%PDF-1.7 first")
    return folder


def bench(tmp_path: Path, platform: FakePlatform | None = None, **about: object) -> Bench:
    folder, media = folder_of(tmp_path), Media(tmp_path / "files")

    def made(it: Bench) -> list[Tool]:
        targets = {"team": TEAM, "page": PAGE}
        settings = SendSettings(targets=targets, folder=folder, uploads=media.folder, file_bytes=1000)
        sending = it.world.gateway.sending
        return send_tools(settings, sending.send, files=lambda: sending)

    return Bench(tmp_path, made, platform=platform or FilePlatform(), media=media, **about)  # type: ignore[arg-type]


def hasty_bench(tmp_path: Path, platform: FakePlatform) -> Bench:
    """The same, on which nobody waits for a second until something is sent again."""
    return bench(tmp_path, platform, clock=FastClock(time.time()), settings=Settings(patience=UNHURRIED))


async def test_a_file_is_delivered_with_its_words_and_can_be_sent_on_by_its_address(tmp_path: Path) -> None:
    platform = FilePlatform()
    async with bench(tmp_path, platform) as tools:
        said = await tools.use("send_file", to="here", path="deep/report.pdf", text="as you asked")
        assert said == "The file report.pdf will be delivered to here."
        await platform.until(lambda: "<report.pdf> as you asked" in platform.texts("one"))
        (stored,) = [path.name for path in (tmp_path / "files").iterdir()]
        address = f"/files/{stored.replace('.', '/', 1)}"
        await tools.use("send_file", to="team", path=address)
        await platform.until(lambda: platform.texts("team") == ["<report.pdf>"])
    assert set(platform.files.values()) == {b"%PDF-1.7 first"}


async def test_what_was_sent_is_the_file_as_it_was_though_a_death_and_a_change_came_between(tmp_path: Path) -> None:
    platform = FilePlatform(faults=[SendFault(TryLater("busy", 3600.0))])
    tools = bench(tmp_path, platform)
    async with tools:
        tools.say(("send_file", {"to": "here", "path": "deep/report.pdf"}))
        await platform.until(lambda: platform.calls == 1)
        await die(tools.world)
        (tmp_path / "work" / "deep" / "report.pdf").unlink()
        await tools.world.start()
        await tools.store.run(due_now)
        tools.world.gateway.outbox.wake(key_of(platform, "one"))
        await platform.until(lambda: "<report.pdf>" in platform.texts("one"))
    assert platform.texts("one").count("<report.pdf>") == 1
    assert list(platform.files.values()) == [b"%PDF-1.7 first"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../out.txt", "leaves the folder"),
        ("link.txt", "link"),
        ("deep", "folder"),
        ("gone.txt", "no such file"),
        ("large.bin", "larger than"),
        (".env", "secret"),
        ("deep/id_rsa", "secret"),
        ("everturn.db", "secret"),
    ],
)
async def test_what_may_not_be_sent_is_not(tmp_path: Path, path: str, why: str) -> None:
    platform = FilePlatform()
    async with bench(tmp_path, platform) as tools:
        work = tmp_path / "work"
        (tmp_path / "out.txt").write_text("outside")
        (work / "link.txt").symlink_to(tmp_path / "out.txt")
        (work / "large.bin").write_bytes(b"x" * 1001)
        for name in (".env", "deep/id_rsa", "everturn.db"):
            (work / name).write_text("secret")
        assert why in await tools.use("send_file", to="here", path=path)
    assert platform.files == {}


async def test_a_platform_without_files_says_the_name_and_the_page_has_a_link(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with bench(tmp_path, platform, platforms=[ApiPlatform()]) as tools:
        said = await tools.use("send_file", to="here", path="deep/report.pdf", text="look")
        assert said.startswith("Files cannot be sent to here")
        await platform.until(
            lambda: any("look\n\n(I have a file for you, report.pdf" in t for t in platform.texts("one"))
        )
        assert "has written yet" in await tools.use("send_file", to="page", path="deep/report.pdf")
        key = await tools.world.accept(Inbound(id="1", source=PAGE, text="hi"))
        await tools.use("send_file", to="page", path="deep/report.pdf", text="look")
        events = await tools.store.read(events_after, key, 0, 100)
    (told,) = [event.data for event in events if event.kind == "notice"]
    assert "look\\n\\n[report.pdf](/files/" in told


TEXT = " ".join(f"word{number}" for number in range(30))


@pytest.mark.parametrize("fault", [None, SendFault(TryLater("busy", 0.0))])
async def test_text_that_has_no_room_beneath_a_file_follows_it(tmp_path: Path, fault: SendFault | None) -> None:
    platform = FilePlatform(limits=TextLimits(text=100, caption=20), faults=[None, fault])
    async with hasty_bench(tmp_path, platform) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf", text=TEXT)
        await platform.until(lambda: any("word29" in text for text in platform.texts("one")))
        file, *after = [text for text in platform.texts("one") if "word" in text or "<" in text]
        assert (file, " ".join(after), len(after)) == ("<report.pdf>", TEXT, 3)
        assert len(platform.files) == 1
        assert "8000 characters at most" in await tools.use(
            "send_file", to="here", path="deep/report.pdf", text="x" * 8001
        )


async def test_a_file_that_may_be_there_twice_says_so_however_long_its_words_are(tmp_path: Path) -> None:
    lost = SendFault(OutcomeUnknown("the connection was lost"), accepted=True)
    platform = FilePlatform(limits=TextLimits(text=1000, caption=100), faults=[lost], surety=Surety.NEITHER)
    async with hasty_bench(tmp_path, platform) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf", text=TEXT)
        await platform.until(lambda: f"{TEXT}\n\n{MAY_REPEAT}" in platform.texts("one"))
    files = [text for text in platform.texts("one") if "<" in text]
    assert files == ["<report.pdf>", f"<report.pdf> {MAY_REPEAT}"]


async def test_who_waits_for_a_file_that_is_refused_is_told(tmp_path: Path) -> None:
    platform = FilePlatform(faults=[SendFault(Refused("no files here"))])
    async with bench(tmp_path, platform) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf")
        await platform.until(lambda: any("could not send you the file" in text for text in platform.texts("one")))
        (dead,) = await tools.store.read(replies, "dead", 0, 10)
    assert (dead["kind"], dead["text"]) == ("file", "[report.pdf]")
    (told,) = [text for text in platform.texts("one") if "could not" in text]
    assert told == "I could not send you the file report.pdf: the platform refused it: no files here"


class Picky(FilePlatform):
    """Meets the text about the file with these faults, in their order, and accepts everything else."""

    def __init__(self, about: str, faults: list[SendFault | None], **given: Any) -> None:
        super().__init__(**given)
        self._about, self._ordered = about, iter(faults)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Put a part on the screen, and fail if that was ordered."""
        fault = next(self._ordered, None) if text.startswith(self._about) else None
        if fault is not None and not fault.accepted:
            raise fault.error
        number = await super().send(to, text, key)
        if fault is not None:
            raise fault.error
        return number


@pytest.mark.parametrize("earlier", [[], [SendFault(TryLater("busy", 0.0))]], ids=["same try", "later try"])
@pytest.mark.parametrize(("out", "missing"), [(0, "the text"), (1, "all of the text")])
async def test_who_misses_the_words_after_a_file_is_told_that_the_file_is_there(
    tmp_path: Path, earlier: list[SendFault], out: int, missing: str
) -> None:
    faults = [*[None] * out, *earlier, SendFault(Refused("no"))]
    platform = Picky("word", faults, limits=TextLimits(text=150, caption=20))
    async with hasty_bench(tmp_path, platform) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf", text=TEXT)
        await platform.until(lambda: any("could not" in text for text in platform.texts("one")))
        (dead,) = await tools.store.read(replies, "dead", 0, 10)
    assert dead["kind"] == "file"
    (told,) = [text for text in platform.texts("one") if "could not" in text]
    assert told == (
        f"You have the file report.pdf, but I could not send you {missing} that belongs to it: the platform refused it: no"
    )
    assert platform.texts("one").count("<report.pdf>") == 1


async def test_who_may_have_got_a_file_is_not_told_that_it_was_not_sent(tmp_path: Path) -> None:
    lost = SendFault(OutcomeUnknown("the connection was lost"), accepted=True)
    platform = Picky("<report.pdf>", [lost, SendFault(Refused("no"))], surety=Surety.NEITHER)
    async with hasty_bench(tmp_path, platform) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf")
        await platform.until(lambda: any("reached you" in text for text in platform.texts("one")))
    (told,) = [text for text in platform.texts("one") if "reached you" in text]
    assert told == "I do not know whether the file report.pdf reached you: the platform refused it: no"


async def test_a_call_that_is_repeated_sends_once(tmp_path: Path) -> None:
    platform, folder = FilePlatform(), folder_of(tmp_path)

    class Repeating:
        def __init__(self, it: Bench) -> None:
            self._sending = it.world.gateway.sending

        async def send_file(self, *given: object) -> bool | None:
            sends = (self._sending.send_file(*given) for _ in range(5))  # type: ignore[arg-type]
            return (await asyncio.gather(*sends))[0]

        async def was_sent(self, *_: object) -> bool:
            return False

    def made(it: Bench) -> list[Tool]:
        settings = SendSettings(folder=folder)
        return send_tools(settings, it.world.gateway.sending.send, files=lambda: Repeating(it))

    async with Bench(tmp_path, made, platform=platform, media=Media(tmp_path / "files")) as tools:
        await tools.use("send_file", to="here", path="deep/report.pdf")
        await platform.until(lambda: "<report.pdf>" in platform.texts("one"))
    assert platform.texts("one").count("<report.pdf>") == 1
    assert len(list((tmp_path / "files").iterdir())) == 1


@pytest.mark.parametrize(
    ("parts", "secret"),
    [
        (("notes", "today.txt"), False),
        (("keyboard.png",), False),
        ((".ssh", "known_hosts"), True),
        (("a", ".env"), True),
        (("server.KEY",), True),
        (("everturn.toml",), True),
        (("everturn.db-wal",), True),
        (("telegram_token.txt",), True),
    ],
)
def test_paths_that_may_hold_secrets_are_known(parts: tuple[str, ...], *, secret: bool) -> None:
    assert keeps_secrets(parts) is secret
