"""The questions that every platform is asked. A new one joins by its driver (tests/contracts/platform.py)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from everturn.decide.keys import session_key
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.media import Media
from everturn.model import Inbound, ReadTo
from everturn.platform.interface import (
    CanClose,
    CanEdit,
    CanReact,
    CanSendFiles,
    CanStream,
    CanTellContact,
    CanType,
    Outgoing,
)
from everturn.store.open import open_store
from everturn.store.operations.inbox import move_cursor
from everturn.testing import OPEN_CARD, ScriptedAgent, World
from tests.contracts.matrix import MatrixDriver
from tests.contracts.platform import (
    REVOKED_S,
    WAITED_S,
    CardDriver,
    Driver,
    EditingDriver,
    FakeDriver,
    FileDriver,
    Pauses,
    Remote,
)
from tests.contracts.telegram import HookDriver, TelegramDriver
from tests.waiting import LONGEST_S

FETCHED = ("telegram", "matrix")  # we come to them
REMOTE = ("telegram", "telegram-hook", "matrix")
FAKES = {"fake": FakeDriver, "editing": EditingDriver, "cards": CardDriver, "files": FileDriver}
TELEGRAM = {"telegram": TelegramDriver, "telegram-hook": HookDriver}
DRIVERS = ("fake", "editing", "cards", *REMOTE)
WITH_FILES = ("files", *REMOTE)


def made(request: pytest.FixtureRequest) -> FakeDriver | TelegramDriver | MatrixDriver:
    folder: Path = request.getfixturevalue("tmp_path")
    if request.param == "matrix":
        return MatrixDriver(folder, request.getfixturevalue("synapse"))
    if request.param in TELEGRAM:
        return TELEGRAM[request.param](folder)
    return FAKES[request.param](folder)


@pytest.fixture(params=DRIVERS)
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    async with made(request) as driver:
        yield driver


@pytest.fixture(params=WITH_FILES)
async def with_files(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    async with made(request) as driver:
        yield driver


@pytest.fixture(params=REMOTE)
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    async with made(request) as driver:
        assert not isinstance(driver, FakeDriver)
        yield driver


@pytest.fixture(params=FETCHED)
async def fetched(request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    async with made(request) as driver:
        assert not isinstance(driver, FakeDriver)
        yield driver


@asynccontextmanager
async def world(driver: Driver, folder: Path, agent: ScriptedAgent | None = None) -> AsyncIterator[World]:
    """A gateway that reads this platform from where its story begins, whatever an earlier one has committed."""
    url, platform = f"sqlite:///{folder / 'everturn.db'}", driver.connected()
    if driver.after is not None:
        store = await open_store(url)
        await store.run(move_cursor, platform.name, platform.account, driver.after, 0.0)
        await store.close()
    async with World(url, agent or ScriptedAgent(), [platform], media=Media(folder / "files")) as started:
        yield started


async def heard(driver: Driver, count: int) -> list[Inbound]:
    """So many messages, by a new adapter; the last of them is not acknowledged."""
    found: list[Inbound] = []
    async with asyncio.timeout(LONGEST_S), aclosing(driver.connected().inbound(driver.after)) as reading:  # type: ignore[type-var]
        async for inbound in reading:
            found += [inbound] if isinstance(inbound, Inbound) else []
            if len(found) == count:
                break
    return found


async def test_nothing_is_acknowledged_before_the_next_is_asked_for(driver: Driver) -> None:
    """Promise 1: who dies with a message in hand finds it again."""
    driver.says("hello")
    first = await heard(driver, 1)
    assert driver.acknowledged() == 0
    again = await heard(driver, 1)
    assert [each.text for each in first] == ["hello"]
    assert [(each.id, each.source) for each in again] == [(each.id, each.source) for each in first]


async def test_asking_for_the_next_acknowledges(driver: Driver) -> None:
    driver.says("hello")
    reading = driver.connected().inbound(driver.after)
    await anext(aiter(reading))
    asking = asyncio.ensure_future(anext(aiter(reading)))
    await driver.until(lambda: driver.acknowledged() == 1)
    driver.says("more")
    assert text_of(await asking) == "more"
    await reading.aclose()  # type: ignore[attr-defined]


async def test_what_is_delivered_twice_is_answered_once(driver: Driver, tmp_path: Path) -> None:
    """Promise 2, and promise 1 for what was said while nobody read."""
    for number in range(3):
        driver.says(f"m{number}", f"chat{number}")
    for last in ("first", "second"):
        driver.says(last)
        async with world(driver, tmp_path) as life:
            await driver.until(lambda last=last: f"echo: {last}" in driver.texts())  # type: ignore[misc]
            await driver.until(lambda: all(driver.texts(f"chat{number}") for number in range(3)))
            await life.gateway.outbox.quiet()
        driver.deliver_again()
    assert [driver.texts(f"chat{number}") for number in range(3)] == [[f"echo: m{number}"] for number in range(3)]


async def test_every_place_and_person_is_known_by_its_own_key(driver: Driver) -> None:
    count = driver.says_everywhere("hello")
    found = await heard(driver, count)
    assert len({session_key(each.source) for each in found}) == count
    assert len({each.id for each in found}) == count
    assert {each.source.platform for each in found} == {driver.connected().name}


async def test_a_long_reply_is_cut_within_the_limit_with_its_code_closed(driver: Driver, tmp_path: Path) -> None:
    limits = driver.connected().limits
    lines = [f"print({number})" for number in range(max(600, limits.text // 5))]
    whole = "\n".join(["Some words before it.\n", "```python", *lines, "```\n", "And after it 😀."])
    driver.says("write")
    async with world(driver, tmp_path, ScriptedAgent(answer=lambda _: whole)) as life:
        await driver.until(lambda: "".join(driver.texts()).endswith("after it 😀."))
        await life.gateway.outbox.quiet()
    texts, code = driver.texts(), driver.code()
    assert len(texts) > 1
    assert all(limits.unit(each) <= limits.text for each in texts)
    seen = [line for each in code for line in each.splitlines()]
    assert seen == lines  # each line once, and every part of the code is seen as code
    assert ["before it" in texts[0], "after it" in texts[-1]] == [True, True]


@pytest.mark.parametrize(
    ("kind", "error", "delay_s", "seen"),
    [
        ("later", TryLater, WAITED_S, 0),
        ("revoked", TryLater, REVOKED_S, 0),
        ("refused", Refused, None, 0),
        ("unknown", OutcomeUnknown, None, 0),
        ("unknown_but_done", OutcomeUnknown, None, 1),
    ],
)
async def test_each_failure_is_named_by_the_reaction(
    driver: Driver, kind: str, error: type[PlatformError], delay_s: float | None, seen: int
) -> None:
    platform, place = driver.connected(), driver.place()
    driver.fail(kind)
    with pytest.raises(error) as raised:
        await platform.send(place, "hello", "1-0")
    assert len(driver.texts()) == seen
    assert getattr(raised.value, "delay_s", None) == delay_s
    await platform.send(place, "again", "2-0")
    assert driver.texts()[-1] == "again"


async def test_what_was_sent_is_replaced_and_the_same_again_does_no_harm(driver: Driver) -> None:
    platform, place = driver.connected(), driver.place()
    number = await platform.send(place, "first", "1-0")
    if isinstance(platform, CanEdit):
        for text in ("**second**", "third", "third"):
            await platform.edit(place, number, text)
        assert driver.texts() == ["third"]
    if isinstance(platform, CanType):
        await platform.typing(place)
    if isinstance(platform, CanReact):
        await platform.react(place, number, "👀")
        await platform.react(place, "987654321", "👀")  # never worth an error


async def test_a_card_is_closed_once_and_closing_it_again_does_no_harm(driver: Driver, tmp_path: Path) -> None:
    """Where the live reply is a card: none is left open, by whoever opened it."""
    platform, place = driver.connected(), driver.place()
    if isinstance(platform, CanStream):
        card = await platform.open(place, "first", "1-0")
        await platform.update(place, card, "second")
        assert driver.texts() == [f"second{OPEN_CARD}"]
        for _ in range(2):
            await platform.close(place, card, "third")
        assert driver.texts() == ["third"]
        with pytest.raises(Refused):
            await platform.update(place, card, "fourth")
        driver.says("hello")
        async with world(driver, tmp_path) as life:
            await driver.until(lambda: "echo: hello" in driver.texts())
            await life.gateway.outbox.quiet()
        assert driver.texts() == ["third", "echo: hello"]


async def test_files_come_in_and_go_out(with_files: Driver, tmp_path: Path) -> None:
    """Where a platform has files: what people send is in the words, what we send is on the screen."""
    driver = with_files
    driver.attaches(b"buy milk", "list.txt")
    async with world(driver, tmp_path) as started:
        await driver.until(lambda: any("buy milk\n[end of list.txt]" in text for text in driver.texts()))
        (platform,) = started.platforms.values()
        assert isinstance(platform, CanSendFiles)
        (tmp_path / "out.txt").write_text("bread")
        await platform.send_file(driver.place(), Outgoing(tmp_path / "out.txt", "out.txt", "text/plain", "here"), "9-0")
        assert any("here" in text for text in driver.texts())


async def test_reading_stops_within_a_second_while_nothing_is_said(driver: Driver) -> None:
    platform = driver.connected()
    driver.says("hello")
    reading = platform.inbound(driver.after)
    await anext(aiter(reading))
    waiting = asyncio.ensure_future(anext(aiter(reading)))
    await driver.until(lambda: driver.acknowledged() == 1)
    began = time.monotonic()
    waiting.cancel()
    await asyncio.wait({waiting})
    if isinstance(platform, CanClose):
        await platform.close_connections()
    assert time.monotonic() - began < 1


async def test_connected_means_proven_to_receive(driver: Driver) -> None:
    platform = driver.connected()
    if isinstance(platform, CanTellContact):
        before = platform.contact
        driver.says("hello")
        reading = platform.inbound(driver.after)
        await anext(aiter(reading))
        after = platform.contact
        assert (before.received_at, after.trouble) == (None, None)
        assert after.received_at is not None
        await reading.aclose()  # type: ignore[attr-defined]


async def test_it_waits_longer_each_time_and_reads_on_by_itself_when_the_platform_is_back(fetched: Remote) -> None:
    """Promise 13: while it is away that is told, with when it was last there."""
    clock = Pauses(4)
    platform = fetched.connected(clock=clock)
    assert isinstance(platform, CanTellContact)
    reading = platform.inbound(fetched.after)
    fetched.says("before")
    assert text_of(await anext(aiter(reading))) == "before"
    await fetched.away()
    waiting = asyncio.ensure_future(anext(aiter(reading)))
    await clock.enough.wait()
    away = platform.contact
    assert away.trouble
    assert away.received_at
    assert clock.seconds == sorted(clock.seconds)
    assert clock.seconds[-1] >= 8
    fetched.says("meanwhile")
    await fetched.back()
    clock.go_on.set()
    found = text_of(await waiting)
    while found == "before":  # it was not acknowledged
        found = text_of(await anext(aiter(reading)))
    assert (found, platform.contact.trouble) == ("meanwhile", None)
    await reading.aclose()  # type: ignore[attr-defined]


async def test_whatever_comes_twice_in_disorder_or_with_holes_is_answered_once_and_in_order(
    remote: Remote, tmp_path: Path
) -> None:
    """Promises 2 and 3."""
    words = ["one", "two", "three", "four"]
    for word in words:
        remote.says(word)
    remote.garble()
    async with world(remote, tmp_path) as life:
        await remote.until(lambda: len(remote.texts()) >= len(words))
        remote.garble()
        remote.says("five")
        await remote.until(lambda: "echo: five" in remote.texts())
        await life.gateway.outbox.quiet()
    assert remote.texts() == [f"echo: {word}" for word in [*words, "five"]]


def text_of(heard: Inbound | ReadTo) -> str:
    assert isinstance(heard, Inbound)
    return heard.text
