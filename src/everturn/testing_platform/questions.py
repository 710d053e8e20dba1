"""The contract of platforms, as questions. Each is asked of every adapter that has what it is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from everturn.decide.keys import session_key
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.media import Media
from everturn.model import Inbound
from everturn.platform.interface import (
    CanClose,
    CanDelete,
    CanEdit,
    CanReact,
    CanSendFiles,
    CanStream,
    CanTellContact,
    CanType,
    Contact,
    Outgoing,
)
from everturn.store.open import open_store
from everturn.store.operations.inbox import move_cursor
from everturn.testing import OPEN_CARD, ScriptedAgent, World
from everturn.testing_platform.driver import ABILITIES, Adapter, Driver, Pauses
from everturn.testing_waiting import WAIT_S, within

TRIES = 10
ERRORS: dict[str, tuple[type[PlatformError], int]] = {  # what is raised, and how many messages are seen
    "later": (TryLater, 0),
    "revoked": (TryLater, 0),
    "refused": (Refused, 0),
    "unknown": (OutcomeUnknown, 0),
    "unknown_but_done": (OutcomeUnknown, 1),
}


@dataclass(frozen=True, slots=True)
class Question:
    """One of them. What it needs its driver must offer; what it lets fail its driver must know."""

    ask: Callable[..., Awaitable[None]]
    needs: type | None = None
    failure: str | None = None

    async def __call__(self, driver: Driver, folder: Path) -> None:
        """Ask it. The folder is for the gateway's database and files."""
        await (self.ask(driver, folder, self.failure) if self.failure else self.ask(driver, folder))

    def fits(self, offers: frozenset[type], failures: Collection[str]) -> bool:
        """Whether it concerns a platform that offers this and fails so."""
        return {self.needs} <= {None, *offers} and {self.failure} <= {None, *failures}

    def __str__(self) -> str:
        name = getattr(self.ask, "__name__", "question")
        return f"{name}-{self.failure}" if self.failure else name


def questions_for(offers: frozenset[type], failures: Collection[str]) -> list[Question]:
    """Those that a platform is asked, by what its driver says of it."""
    return [each for each in QUESTIONS if each.fits(offers, failures)]


# -- reading -----------------------------------------------------------------------------------------------------------


async def nothing_is_acknowledged_before_the_next_is_asked_for(driver: Driver, _: Path) -> None:
    """Promise 1: who dies with a message in hand finds it again."""
    driver.says("hello")
    first = await _heard(driver, 1)
    assert driver.acknowledged() == 0
    again = await _heard(driver, 1)
    assert [each.text for each in first] == ["hello"]
    assert [(each.id, each.source) for each in again] == [(each.id, each.source) for each in first]


async def asking_for_the_next_acknowledges(driver: Driver, _: Path) -> None:
    """Promise 1, the other half: what is committed is not brought for ever."""
    driver.says("hello")
    async with Reading(driver.connected(), driver.after) as reading:
        await reading.next()
        asking = reading.next()
        await driver.until(lambda: driver.acknowledged() == 1)
        driver.says("more")
        assert await asking == "more"


async def what_is_delivered_twice_is_answered_once(driver: Driver, folder: Path) -> None:
    """Promise 2, and promise 1 for what was said while nobody read."""
    for number in range(3):
        driver.says(f"m{number}", f"chat{number}")
    for last in ("first", "second"):
        driver.says(last)
        async with _world(driver, folder) as life:
            await driver.until(lambda last=last: f"echo: {last}" in driver.texts())  # type: ignore[misc]
            await driver.until(lambda: all(driver.texts(f"chat{number}") for number in range(3)))
            await life.gateway.outbox.quiet()
        driver.deliver_again()
    assert [driver.texts(f"chat{number}") for number in range(3)] == [[f"echo: m{number}"] for number in range(3)]


async def whatever_comes_twice_in_disorder_or_with_holes_is_answered_once_and_in_order(
    driver: Driver, folder: Path
) -> None:
    """Promises 2 and 3."""
    words = ["one", "two", "three", "four"]
    for word in words:
        driver.says(word)
    driver.garble()
    async with _world(driver, folder) as life:
        await driver.until(lambda: len(driver.texts()) >= len(words))
        driver.garble()
        driver.says("five")
        await driver.until(lambda: "echo: five" in driver.texts())
        await life.gateway.outbox.quiet()
    assert driver.texts() == [f"echo: {word}" for word in [*words, "five"]]


async def every_place_and_person_is_known_by_its_own_key(driver: Driver, _: Path) -> None:
    """Chats, threads, topics and people are told apart."""
    count = driver.says_everywhere("hello")
    found = await _heard(driver, count)
    assert len({session_key(each.source) for each in found}) == count
    assert len({each.id for each in found}) == count
    assert {each.source.platform for each in found} == {driver.connected().name}


async def who_answers_and_brings_nothing_is_not_said_to_receive(driver: Driver, _: Path, failure: str) -> None:
    """Promise 13: connected means proven to receive; that it tells us who we are is no proof."""
    clock = Pauses(0)
    platform = driver.connected(clock=clock)
    before = _contact(platform)
    async with Reading(platform, driver.after) as reading:
        async with driver.failing(failure) as met:
            waiting = reading.next()
            await _first(_waited(waiting), *([clock.enough.wait(), driver.until(met)] if failure == "hangs" else []))
            meanwhile = _contact(platform)
        assert (before.received_at, meanwhile.received_at) == (None, None)
        assert failure == "hangs" or _raised(waiting)
        clock.go_on.set()
        driver.says("hello")
        assert (await waiting if not _raised(waiting) else await _read_anew(driver, platform, "hello")) == "hello"
    after = _contact(platform)
    assert (after.received_at is not None, after.trouble) == (True, None)


async def it_raises_while_the_platform_is_away_and_reads_on_when_it_is_asked_again(
    driver: Driver, _: Path, failure: str
) -> None:
    """The gateway alone retries a read: it tells what is wrong, and waits longer each time."""
    platform = driver.connected()
    async with Reading(platform, driver.after) as reading:
        driver.says("before")
        assert await reading.next() == "before"
        async with driver.failing(failure):
            waiting = reading.next()
            await _first(_waited(waiting))
            assert _raised(waiting)
            driver.says("meanwhile")
    assert await _read_anew(driver, platform, "meanwhile") == "meanwhile"
    assert not isinstance(platform, CanTellContact) or platform.contact.trouble is None


async def reading_stops_within_a_second_while_nothing_is_said(driver: Driver, _: Path) -> None:
    """Whoever stops a gateway does not wait for a poll to end."""
    platform = driver.connected()
    driver.says("hello")
    async with Reading(platform, driver.after) as reading:
        await reading.next()
        waiting = reading.next()
        await driver.until(lambda: driver.acknowledged() == 1)
        waiting.cancel()
        stopping = asyncio.ensure_future(_stopped(waiting, platform))
        await _first(_waited(stopping), _a_second())
        assert stopping.done()


# -- writing -----------------------------------------------------------------------------------------------------------


async def a_long_reply_is_cut_within_the_limit_with_its_code_closed(driver: Driver, folder: Path) -> None:
    """In the platform's own unit."""
    limits = driver.connected().limits
    lines = [f"print({number})" for number in range(max(600, limits.text // 5))]
    whole = "\n".join(["Some words before it.\n", "```python", *lines, "```\n", "And after it 😀."])
    driver.says("write")
    async with _world(driver, folder, ScriptedAgent(answer=lambda _: whole)) as life:
        await driver.until(lambda: "".join(driver.texts()).endswith("after it 😀."))
        await life.gateway.outbox.quiet()
    texts, code = driver.texts(), driver.code()
    assert len(texts) > 1
    assert all(limits.unit(each) <= limits.text for each in texts)
    seen = [line for each in code for line in each.splitlines()]
    assert seen == lines  # each line once, and every part of the code is seen as code
    assert ["before it" in texts[0], "after it" in texts[-1]] == [True, True]


async def each_failure_is_named_by_the_reaction(driver: Driver, _: Path, failure: str) -> None:
    """TryLater with its delay, Refused or OutcomeUnknown; and the next send is none the worse."""
    platform, place = driver.connected(), driver.place()
    wanted, seen = ERRORS[failure]
    async with driver.failing(failure):
        met = await _error_of(platform.send(place, "hello", "1-0"))
    assert isinstance(met, wanted)
    assert len(driver.texts()) == seen
    assert getattr(met, "delay_s", None) == driver.failures[failure]
    await platform.send(place, "again", "2-0")
    assert driver.texts()[-1] == "again"


async def what_was_sent_is_replaced_and_the_same_again_does_no_harm(driver: Driver, _: Path) -> None:
    """Where it can be edited; and taken away, where that can be."""
    platform, place = driver.connected(), driver.place()
    number = await platform.send(place, "first", "1-0")
    assert isinstance(platform, CanEdit)
    for text in ("**second**", "third", "third"):
        await platform.edit(place, number, text)
    assert driver.texts() == ["third"]
    if isinstance(platform, CanDelete):
        for _again in range(2):
            await platform.delete(place, number)
        assert driver.texts() == []


async def people_see_that_we_are_at_work(driver: Driver, _: Path) -> None:
    """Where that can be shown."""
    platform = driver.connected()
    assert isinstance(platform, CanType)
    driver.place("two")
    assert not driver.types("one")
    assert await _seen_at_work(driver, platform)
    assert not driver.types("two")


async def a_mark_on_a_message_is_seen_replaced_and_taken_away(driver: Driver, _: Path) -> None:
    """Where there are marks. One that can not be put is never worth an error."""
    driver.says("hello")
    (said,) = await _heard(driver, 1)
    platform, place, number = driver.connected(), driver.place(), said.source.message_id or ""
    assert isinstance(platform, CanReact)
    for mark in ("👀", "👀", "👍", ""):
        await platform.react(place, number, mark)
        assert driver.marks(number) == ([mark] if mark else [])
    await platform.react(place, "987654321", "👀")


async def a_card_is_closed_once_and_closing_it_again_does_no_harm(driver: Driver, folder: Path) -> None:
    """Where the live reply is a card: none is left open, by whoever opened it."""
    platform, place = driver.connected(), driver.place()
    assert isinstance(platform, CanStream)
    card = await platform.open(place, "first", "1-0")
    await platform.update(place, card, "second")
    assert driver.texts() == [f"second{OPEN_CARD}"]
    for _ in range(2):
        await platform.close(place, card, "third")
    assert driver.texts() == ["third"]
    assert isinstance(await _error_of(platform.update(place, card, "fourth")), Refused)
    driver.says("hello")
    async with _world(driver, folder) as life:
        await driver.until(lambda: "echo: hello" in driver.texts())
        await life.gateway.outbox.quiet()
    assert driver.texts() == ["third", "echo: hello"]


async def files_come_in_and_go_out(driver: Driver, folder: Path) -> None:
    """Where there are files: what people send is in the words, what we send is on the screen."""
    driver.attaches(b"buy milk", "list.txt")
    async with _world(driver, folder) as started:
        await driver.until(lambda: any("buy milk\n[end of list.txt]" in text for text in driver.texts()))
        (platform,) = started.platforms.values()
        assert isinstance(platform, CanSendFiles)
        file = folder / "out.txt"
        await asyncio.to_thread(file.write_text, "bread")
        await platform.send_file(driver.place(), Outgoing(file, "out.txt", "text/plain", "here"), "9-0")
        assert any("here" in text for text in driver.texts())


async def it_offers_what_its_driver_says(driver: Driver, _: Path) -> None:
    """So that nothing is left out because nobody asked."""
    platform = driver.connected()
    assert {each for each in ABILITIES if isinstance(platform, each)} == driver.offers


QUESTIONS = (
    Question(it_offers_what_its_driver_says),
    Question(nothing_is_acknowledged_before_the_next_is_asked_for),
    Question(asking_for_the_next_acknowledges),
    Question(what_is_delivered_twice_is_answered_once),
    Question(whatever_comes_twice_in_disorder_or_with_holes_is_answered_once_and_in_order),
    Question(every_place_and_person_is_known_by_its_own_key),
    *(
        Question(who_answers_and_brings_nothing_is_not_said_to_receive, CanTellContact, each)
        for each in ("hangs", "fails")
    ),
    Question(it_raises_while_the_platform_is_away_and_reads_on_when_it_is_asked_again, failure="away"),
    Question(reading_stops_within_a_second_while_nothing_is_said),
    Question(a_long_reply_is_cut_within_the_limit_with_its_code_closed),
    *(Question(each_failure_is_named_by_the_reaction, failure=each) for each in ERRORS),
    Question(what_was_sent_is_replaced_and_the_same_again_does_no_harm, CanEdit),
    Question(people_see_that_we_are_at_work, CanType),
    Question(a_mark_on_a_message_is_seen_replaced_and_taken_away, CanReact),
    Question(a_card_is_closed_once_and_closing_it_again_does_no_harm, CanStream),
    Question(files_come_in_and_go_out, CanSendFiles),
)


# -- how they are asked ------------------------------------------------------------------------------------------------


class Reading:
    """An adapter that is read message by message, and left in order."""

    def __init__(self, platform: Adapter, after: str | None) -> None:
        self._heard = platform.inbound(after)
        self._asked: asyncio.Task[str] | None = None

    def next(self) -> asyncio.Task[str]:
        """Ask for the next message, which acknowledges the last: its words."""
        self._asked = asyncio.create_task(self._next())
        return self._asked

    async def _next(self) -> str:
        while not isinstance(heard := await anext(self._heard), Inbound):
            pass
        return heard.text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.wait({self._asked})
        async with aclosing(self._heard):  # type: ignore[type-var]
            pass


@asynccontextmanager
async def _world(driver: Driver, folder: Path, agent: ScriptedAgent | None = None) -> AsyncIterator[World]:
    """A gateway that reads this platform from where its story begins, whatever an earlier one has committed."""
    url, platform = f"sqlite:///{folder / 'everturn.db'}", driver.connected()
    if driver.after is not None:
        store = await open_store(url)
        await store.run(move_cursor, platform.name, platform.account, driver.after, 0.0)
        await store.close()
    async with World(url, agent or ScriptedAgent(), [platform], media=Media(folder / "files")) as started:
        yield started


async def _heard(driver: Driver, count: int) -> list[Inbound]:
    """So many messages, by a new adapter; the last of them is not acknowledged."""
    found: list[Inbound] = []
    seen = within(WAIT_S, lambda: f"{len(found)} of {count} messages, {[each.text for each in found]}")
    async with seen, aclosing(driver.connected().inbound(driver.after)) as reading:  # type: ignore[type-var]
        async for each in reading:
            found += [each] if isinstance(each, Inbound) else []
            if len(found) == count:
                break
    return found


async def _read_anew(driver: Driver, platform: Adapter, text: str) -> str:
    """As the gateway does after a pause, until this was said."""
    found = ""
    async with (
        within(WAIT_S, lambda: f"no {text!r}; the last message is {found!r}"),
        Reading(platform, driver.after) as reading,
    ):
        while (found := await reading.next()) != text:
            pass
    return found


async def _seen_at_work(driver: Driver, platform: CanType) -> bool:
    """It is shown for some seconds, which may be over before anybody looks: then it is shown again."""
    for _ in range(TRIES):
        await platform.typing(driver.place())
        if driver.types():
            return True
    return False


async def _error_of(call: Coroutine[Any, Any, Any]) -> PlatformError | None:
    try:
        await call
    except PlatformError as error:
        return error
    return None


def _contact(platform: Adapter) -> Contact:
    assert isinstance(platform, CanTellContact)
    return platform.contact


def _raised(waiting: asyncio.Task[str]) -> bool:
    """Whether the adapter leaves it to the gateway to tell what is wrong, to wait and to read again."""
    return waiting.done() and isinstance(waiting.exception(), PlatformError)


async def _waited(task: asyncio.Task[Any] | asyncio.Future[Any]) -> None:
    await asyncio.wait({task})


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is over; what it raised is raised."""
    tasks = [asyncio.create_task(each) for each in waits]
    try:
        async with within(WAIT_S, lambda: f"none of {tasks} is over"):
            over, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in over:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped(waiting: asyncio.Task[str], platform: Adapter) -> None:
    await asyncio.wait({waiting})
    if isinstance(platform, CanClose):
        await platform.close_connections()


async def _a_second() -> None:
    """In small steps: a machine that stands still for a while is not taken for a slow adapter."""
    for _ in range(20):
        await asyncio.sleep(0.05)
