"""Rooms of a real Synapse that cannot be read, or only in part: no message is lost by it, and no other room waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar
from urllib.parse import quote

import pytest

from everturn.clock import SystemClock
from everturn.model import Inbound, ReadTo
from everturn.platform.matrix.adapter import SyncReader
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.reading import PAGES, MatrixReader
from everturn.platform.matrix.rooms import Invitations, KnownRooms, MatrixRoom
from everturn.platform.matrix.rules import LAST_FAILURES, TOO_MUCH, UNREADABLE
from everturn.platform.matrix.wire import MatrixEvent
from tests.contracts.matrix import MatrixDriver, everybody
from tests.synapse import SynapseServer
from tests.waiting import WAIT_S, within

pytestmark = pytest.mark.prove


@pytest.fixture
async def driver(synapse: SynapseServer) -> AsyncIterator[MatrixDriver]:
    async with MatrixDriver(None, synapse) as driver:
        yield driver


class Hurried(SystemClock):
    """An hour of waiting takes a thirtieth of a second."""

    def monotonic(self) -> float:
        return super().monotonic() * 100_000


class Brisk(SystemClock):
    """A second of waiting takes a twentieth of one, and an hour still long enough that no room is skipped."""

    def monotonic(self) -> float:
        return super().monotonic() * 20


class Clumsy(MatrixReader):
    """Raises when it reads a certain message, once."""

    failed: ClassVar[set[str]] = set()

    def read(self, event: MatrixEvent, room: MatrixRoom, answered: MatrixEvent | None = None) -> Inbound | None:
        if event.content.get("body") == "odd" and room.id not in self.failed:
            self.failed.add(room.id)
            raise KeyError("result")
        return super().read(event, room, answered)


async def heard(reading: AsyncIterator[Inbound | ReadTo], count: int) -> list[Inbound | ReadTo]:
    found: list[Inbound | ReadTo] = []
    async with within(WAIT_S, lambda: found):
        while len(found) < count:
            found.append(await anext(reading))
    return found


def said(found: list[Inbound | ReadTo]) -> list[str]:
    return [each.text for each in found if isinstance(each, Inbound)]


def places(found: list[Inbound | ReadTo]) -> list[bool]:
    return [bool(each.cursor) for each in found]


async def test_a_room_that_cannot_be_read_is_read_later_and_nobody_else_waits(driver: MatrixDriver) -> None:
    """Promises 1 and 9: its messages come in their order, and until then the place is not committed."""
    driver.room("bob"), driver.room("ann")
    driver.proxy.fail("server", quote(driver.room("bob"), safe=""), times=10_000)
    driver.says("one", "bob")
    driver.says("two", "ann")
    reading = driver.connected(clock=Brisk(), poll_s=0.1).inbound(driver.after)
    (others,) = await heard(reading, 1)
    later = asyncio.ensure_future(heard(reading, 2))
    driver.says("three", "bob")
    await driver.proxy.until(lambda: driver.acknowledged() == 3)  # it is known to the adapter, which read on
    await driver.proxy.until(lambda: sum(each.fault == "server" for each in driver.proxy.calls) > 2)
    driver.proxy.faults.clear()
    found = await later
    assert (said([others]), places([others])) == (["two"], [False])
    assert (said(found), places(found)) == (["one", "three"], [False, True])


@pytest.mark.parametrize("broken", [False, True])
async def test_a_room_whose_history_does_not_answer_keeps_nobody_waiting(driver: MatrixDriver, *, broken: bool) -> None:
    """Promises 1, 3 and 9: others are read at once, again and again; its own gap is read before what came after it."""
    driver.room("bob"), driver.room("ann")
    driver.after = driver.bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
    for text in ("one", "two", "three"):
        driver.says(text, "bob")
    driver.says("hello", "ann")
    driver.proxy.fail("limited", times=2)  # the look at the start, and the news
    driver.proxy.fail("hang", "messages")
    reading = driver.connected().inbound(driver.after)
    others = await heard(reading, 1)
    driver.says("four", "bob")
    for text in ("again", "and again"):
        driver.says(text, "ann")
        others += await heard(reading, 1)
    assert [each.fault for each in driver.proxy.calls if each.path.endswith("/messages")] == ["hang"]
    assert (said(others), places(others)) == (["hello", "again", "and again"], [False] * 3)
    driver.proxy.release(broken=broken)
    found = await heard(reading, 4)
    assert (said(found), places(found)) == (["one", "two", "three", "four"], [False, False, False, True])


async def test_a_fault_of_ours_in_one_room_is_that_rooms_alone(driver: MatrixDriver) -> None:
    """Promise 9: the others are read, and it is read again before the place is committed."""
    server, clock, us = Homeserver(driver.proxy.url, driver.bot.token), Hurried(), driver.bot.user_id
    invitations = Invitations(server, "matrix", us, everybody, clock)
    reading = SyncReader(server, Clumsy(us), KnownRooms(server), invitations, clock, poll_s=0.1)
    driver.says("odd", "bob")
    driver.says("hello", "ann")
    found, place = list[Inbound | ReadTo](), await reading.begin(driver.after)
    async with within(WAIT_S, lambda: found):
        while not found or not found[-1].cursor:
            news = await reading.next(place)
            found += [each async for each in reading.heard(news, place)]
            place = news.next_batch
    assert driver.room("bob") in Clumsy.failed
    assert sorted(said(found)) == ["hello", "odd"]
    assert not found[0].cursor
    invitations.close()
    await server.close()


async def test_who_comes_in_while_a_room_is_asked_for_is_known(driver: MatrixDriver) -> None:
    """The answer is older than the news that came in the meantime: with a third person it is no direct chat any more."""
    bob, carol, room = driver.person("bob"), driver.person("carol"), driver.room("bob")
    driver.proxy.fail("hang", "state", accepted=True)
    driver.says("one", "bob")
    reading = driver.connected().inbound(driver.after)
    others = asyncio.ensure_future(heard(reading, 1))
    await driver.proxy.until(lambda: driver.proxy.hanging)
    bob.invites(room, carol.user_id)
    carol.joins(room)
    driver.says("hello", "ann")
    assert said(await others) == ["hello"]
    driver.proxy.release()
    (found,) = await heard(reading, 1)
    assert isinstance(found, Inbound)
    assert (found.text, found.source.chat_type) == ("one", "group")


async def test_a_proxys_page_and_an_error_in_the_middle_pass_nothing_over(driver: MatrixDriver) -> None:
    driver.proxy.fail("error", "state", code=403, errcode="")
    driver.proxy.fail("error", "state", code=404, errcode="M_NOT_FOUND")
    driver.says("hello")
    found = await heard(driver.connected(clock=Hurried(), poll_s=0.1).inbound(driver.after), 1)
    assert (said(found), places(found)) == (["hello"], [True])


async def test_a_room_that_stays_broken_is_passed_over_with_words_there_and_in_the_status(driver: MatrixDriver) -> None:
    """Promises 9 and 13."""
    platform = driver.connected(clock=Hurried())
    reading = platform.inbound(driver.after)
    driver.says("zero", "ann")
    await heard(reading, 1)  # ann's room is known now
    driver.proxy.fail("error", "state", code=500, errcode="M_UNKNOWN", times=LAST_FAILURES)
    driver.says("lost", "bob")
    told = []
    for number in range(LAST_FAILURES):
        driver.says(str(number), "ann")
        await heard(reading, 1)
        told += [platform.contact.trouble]
    assert any(driver.room("bob") in str(each) for each in told)
    driver.says("last", "bob")
    found = [each for each in await heard(reading, 2) if each.cursor]
    assert driver.texts("bob") == [UNREADABLE]
    assert platform.contact.trouble is None
    assert found


@pytest.mark.parametrize("joined", ["before", "since"])
async def test_more_than_is_read_afterwards_is_told_in_the_room_once(driver: MatrixDriver, joined: str) -> None:
    """Promise 12."""
    driver.room()
    if joined == "before":
        driver.after = driver.bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
    for number in range(PAGES + 4):
        driver.says(str(number))
    processes = [await heard(driver.connected(page=1).inbound(driver.after), PAGES + 1) for _ in range(2)]
    assert [said(each) for each in processes] == [[str(number) for number in range(3, PAGES + 4)]] * 2
    assert driver.texts() == [TOO_MUCH]
