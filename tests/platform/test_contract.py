"""The questions that every platform is asked. A new one joins by its driver (tests/contracts/platform.py)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from everturn.decide.keys import session_key
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.model import Inbound
from everturn.platform.interface import CanEdit, CanReact, CanTellContact, CanType
from everturn.testing import ScriptedAgent, World
from tests.contracts.platform import WAITED_S, Driver, EditingDriver, FakeDriver
from tests.contracts.telegram import TelegramDriver

DRIVERS: dict[str, type[FakeDriver] | type[TelegramDriver]] = {
    "fake": FakeDriver,
    "editing": EditingDriver,
    "telegram": TelegramDriver,
}
LONG = (
    "Some words before it.\n\n```python\n" + "\n".join(f"print({n})" for n in range(600)) + "\n```\n\nAnd after it 😀."
)


@pytest.fixture(params=DRIVERS)
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driver]:
    async with DRIVERS[request.param](tmp_path) as driver:
        yield driver


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'everturn.db'}"


async def heard(driver: Driver, count: int) -> list[Inbound]:
    """So many messages, by a new adapter; the last of them is not acknowledged."""
    found: list[Inbound] = []
    async with asyncio.timeout(20), aclosing(driver.connected().inbound(None)) as reading:  # type: ignore[type-var]
        async for inbound in reading:
            found.append(inbound)
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
    reading = driver.connected().inbound(None)
    await anext(aiter(reading))
    asking = asyncio.ensure_future(anext(aiter(reading)))
    await driver.until(lambda: driver.acknowledged() == 1)
    driver.says("more")
    assert (await asking).text == "more"
    await reading.aclose()  # type: ignore[attr-defined]


async def test_what_is_delivered_twice_is_answered_once(driver: Driver, tmp_path: Path) -> None:
    """Promise 2, and promise 1 for what was said while nobody read."""
    for number in range(3):
        driver.says(f"m{number}", f"chat{number}")
    for last in ("first", "second"):
        driver.says(last)
        async with World(database(tmp_path), ScriptedAgent(), [driver.connected()]) as world:
            await driver.until(lambda last=last: f"echo: {last}" in driver.texts())  # type: ignore[misc]
            await driver.until(lambda: all(driver.texts(f"chat{number}") for number in range(3)))
            await world.gateway.outbox.quiet()
        driver.deliver_again()
    assert [driver.texts(f"chat{number}") for number in range(3)] == [[f"echo: m{number}"] for number in range(3)]


async def test_every_place_and_person_is_known_by_its_own_key(driver: Driver) -> None:
    count = driver.says_everywhere("hello")
    found = await heard(driver, count)
    assert len({session_key(each.source) for each in found}) == count
    assert len({each.id for each in found}) == count
    assert {each.source.platform for each in found} == {driver.connected().name}


async def test_a_long_reply_is_cut_within_the_limit_with_its_code_closed(driver: Driver, tmp_path: Path) -> None:
    agent, platform = ScriptedAgent(answer=lambda _: LONG), driver.connected()
    driver.says("write")
    async with World(database(tmp_path), agent, [platform]) as world:
        await driver.until(lambda: "".join(driver.texts()).endswith("after it 😀."))
        await world.gateway.outbox.quiet()
    texts = driver.texts()
    assert all(platform.limits.unit(each) <= platform.limits.text for each in texts)
    assert all(each.count("```") % 2 == 0 for each in texts)
    shown = " ".join(texts)
    assert [shown.count(f"print({number})") for number in range(600)] == [1] * 600


@pytest.mark.parametrize(
    ("kind", "error", "seen"),
    [
        ("later", TryLater, 0),
        ("refused", Refused, 0),
        ("unknown", OutcomeUnknown, 0),
        ("unknown_but_done", OutcomeUnknown, 1),
    ],
)
async def test_each_failure_is_named_by_the_reaction(
    driver: Driver, kind: str, error: type[PlatformError], seen: int
) -> None:
    platform, place = driver.connected(), driver.place()
    driver.fail(kind)
    with pytest.raises(error) as raised:
        await platform.send(place, "hello", "1-0")
    assert len(driver.texts()) == seen
    assert not isinstance(raised.value, TryLater) or raised.value.delay_s == WAITED_S
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


async def test_reading_stops_within_a_second_while_nothing_is_said(driver: Driver) -> None:
    platform = driver.connected()
    driver.says("hello")
    reading = platform.inbound(None)
    await anext(aiter(reading))
    waiting = asyncio.ensure_future(anext(aiter(reading)))
    await driver.until(lambda: driver.acknowledged() == 1)
    began = time.monotonic()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert time.monotonic() - began < 1


async def test_connected_means_proven_to_receive(driver: Driver) -> None:
    platform = driver.connected()
    if isinstance(platform, CanTellContact):
        before = platform.contact
        driver.says("hello")
        reading = platform.inbound(None)
        await anext(aiter(reading))
        after = platform.contact
        assert (before.received_at, after.trouble) == (None, None)
        assert after.received_at is not None
        await reading.aclose()  # type: ignore[attr-defined]


async def test_it_reads_on_by_itself_when_the_platform_is_back() -> None:
    async with TelegramDriver() as driver:
        platform = driver.connected()
        reading = platform.inbound(None)
        driver.says("before")
        assert (await anext(reading)).text == "before"
        await driver.away()
        waiting = asyncio.ensure_future(anext(reading))
        await driver.until(lambda: True)
        driver.says("meanwhile")
        await driver.back()
        assert (await waiting).text == "meanwhile"
        assert platform.contact.trouble is None
        await reading.aclose()
