"""The contract test suite for authors of adapters: the questions that every platform is asked, ours and theirs.

    from everturn.testing.platform import ContractQuestion, questions_for

    @pytest.mark.parametrize("question", questions_for(MyDriver.offers, MyDriver.failures), ids=str)
    async def test_it_keeps_the_contract(question: ContractQuestion, tmp_path: Path) -> None:
        async with MyDriver(tmp_path) as driver:
            await question(driver, tmp_path)

A platform joins by its driver, which lets people act there and sees what they see. Nothing here needs pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from everturn.clock import Clock, SystemClock
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.home.files import Media
from everturn.inbox.rows.inbox import move_cursor
from everturn.model import Inbound, SessionSource
from everturn.platform.interface import (
    CanClose,
    CanDelete,
    CanEdit,
    CanPull,
    CanReact,
    CanSend,
    CanSendFiles,
    CanStream,
    CanTellContact,
    CanType,
    Contact,
    Outgoing,
    Platform,
)
from everturn.sessions.rules.keys import session_key
from everturn.store.open import open_store
from everturn.testing import OPEN_CARD, ScriptedAgent, World
from everturn.testing.clock import WAIT_S, within

ABILITIES: frozenset[type] = frozenset({CanDelete, CanEdit, CanReact, CanSendFiles, CanStream, CanTellContact, CanType})
TRIES = 10
ERRORS: dict[str, tuple[type[PlatformError], int]] = {  # the error that is raised, and how many messages people see
    "later": (TryLater, 0),
    "revoked": (TryLater, 0),
    "refused": (Refused, 0),
    "unknown": (OutcomeUnknown, 0),
    "unknown_but_done": (OutcomeUnknown, 1),
}


class Adapter(Platform, CanPull, CanSend, Protocol):
    """The least that a chat platform's adapter implements."""


class Driver(Protocol):
    """One platform, from the outside. Used with `async with`."""

    after: str | None  # the cursor that is committed when the test begins

    @property
    def offers(self) -> frozenset[type]:
        """The ABILITIES that the adapter has: the questions about these are asked, and no others."""
        ...

    @property
    def failures(self) -> Mapping[str, float | None]:
        """The kinds of `failing` that it supports; for one of a send: the delay that the platform asks for."""
        ...

    def connected(self, *, clock: Clock | None = None) -> Adapter:
        """Make a new adapter, as after a restart; what an earlier one acknowledged stays acknowledged."""
        ...

    def says(self, text: str, chat: str = "one") -> None:
        """Let somebody write in a direct chat."""
        ...

    def says_everywhere(self, text: str) -> int:
        """Let different people write this in every kind of chat; returns how many conversations that makes."""
        ...

    def place(self, chat: str = "one") -> SessionSource:
        """The source to which replies in that chat are sent."""
        ...

    def texts(self, chat: str = "one") -> list[str]:
        """The texts of ours that people see in that chat."""
        ...

    def code(self, chat: str = "one") -> list[str]:
        """What people see as code, for each of these messages."""
        ...

    def acknowledged(self) -> int:
        """How many of the messages were acknowledged to the platform."""
        ...

    def deliver_again(self) -> None:
        """Deliver the acknowledged messages once more."""
        ...

    def garble(self) -> None:
        """Deliver what is read next in the ways this platform is known for: twice, out of order, with gaps."""
        ...

    def failing(self, kind: str) -> AbstractAsyncContextManager[Callable[[], object]]:
        """Make something fail while the context is entered.

        The next send meets `later`, `revoked` (our credential is), `refused`, `unknown` (and is not done) or
        `unknown_but_done`. With `hangs` or `fails` every read does so, while our account can be looked up. With `away` the
        platform is unreachable. It yields whether a read has met the fault; a platform that cannot tell says no.
        """
        ...

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition on the platform."""
        ...

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        """Let somebody send a document. Only for platforms with files."""
        ...

    def types(self, chat: str = "one") -> bool:
        """Whether people there see our typing indicator. Only for platforms that have one."""
        ...

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        """Our reactions that people see on a message. Only for platforms with reactions."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Pauses(SystemClock):
    """The machine's clock, on which the first pauses take no time and are recorded; one more waits until it is released."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.seconds: list[float] = []
        self.enough, self.go_on = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Record a pause, and wait if it is one too many."""
        self.seconds.append(seconds)
        if len(self.seconds) > self._left:
            self.enough.set()
            await self.go_on.wait()


@dataclass(frozen=True, slots=True)
class ContractQuestion:
    """One question. Its driver must offer the abilities it needs, and support the failure it uses."""

    ask: Callable[..., Awaitable[None]]
    needs: type | None = None
    failure: str | None = None

    async def __call__(self, driver: Driver, folder: Path) -> None:
        """Ask the question. The folder is for the gateway's database and files."""
        await (self.ask(driver, folder, self.failure) if self.failure else self.ask(driver, folder))

    def fits(self, offers: frozenset[type], failures: Collection[str]) -> bool:
        """Whether it applies to a platform that offers these abilities and failures."""
        return {self.needs} <= {None, *offers} and {self.failure} <= {None, *failures}

    def __str__(self) -> str:
        name = getattr(self.ask, "__name__", "question")
        return f"{name}-{self.failure}" if self.failure else name


def questions_for(offers: frozenset[type], failures: Collection[str]) -> list[ContractQuestion]:
    """The questions for a platform, by what its driver offers."""
    return [each for each in QUESTIONS if each.fits(offers, failures)]


# -- reading -----------------------------------------------------------------------------------------------------------


async def nothing_is_acknowledged_before_the_next_is_asked_for(driver: Driver, _: Path) -> None:
    """Promise 1: an adapter that dies with an unacknowledged message reads it again."""
    driver.says("hello")
    first = await _heard(driver, 1)
    assert driver.acknowledged() == 0
    again = await _heard(driver, 1)
    assert [each.text for each in first] == ["hello"]
    assert [(each.id, each.source) for each in again] == [(each.id, each.source) for each in first]


async def asking_for_the_next_acknowledges(driver: Driver, _: Path) -> None:
    """Promise 1, the other half: what is committed is not delivered for ever."""
    driver.says("hello")
    async with ReadingDriver(driver.connected(), driver.after) as reading:
        await reading.next()
        asking = reading.next()
        await driver.until(lambda: driver.acknowledged() == 1)
        driver.says("more")
        assert await asking == "more"


async def what_is_delivered_twice_is_answered_once(driver: Driver, folder: Path) -> None:
    """Promise 2, and promise 1 for what was written while nobody read."""
    for number in range(3):
        driver.says(f"m{number}", f"chat{number}")
    for last in ("first", "second"):
        driver.says(last)
        async with _world(driver, folder) as world:
            await driver.until(lambda last=last: f"echo: {last}" in driver.texts())  # type: ignore[misc]
            await driver.until(lambda: all(driver.texts(f"chat{number}") for number in range(3)))
            await world.gateway.outbox.quiet()
        driver.deliver_again()
    assert [driver.texts(f"chat{number}") for number in range(3)] == [[f"echo: m{number}"] for number in range(3)]


async def whatever_comes_twice_in_disorder_or_with_holes_is_answered_once_and_in_order(
    driver: Driver, folder: Path
) -> None:
    """Promises 2 and 3."""
    text = ["one", "two", "three", "four"]
    for word in text:
        driver.says(word)
    driver.garble()
    async with _world(driver, folder) as world:
        await driver.until(lambda: len(driver.texts()) >= len(text))
        driver.garble()
        driver.says("five")
        await driver.until(lambda: "echo: five" in driver.texts())
        await world.gateway.outbox.quiet()
    assert driver.texts() == [f"echo: {word}" for word in [*text, "five"]]


async def every_place_and_person_is_known_by_its_own_key(driver: Driver, _: Path) -> None:
    """Chats, threads, topics and people have distinct session keys."""
    count = driver.says_everywhere("hello")
    found = await _heard(driver, count)
    assert len({session_key(each.source) for each in found}) == count
    assert len({each.id for each in found}) == count
    assert {each.source.platform for each in found} == {driver.connected().name}


async def who_answers_and_brings_nothing_is_not_said_to_receive(driver: Driver, _: Path, failure: str) -> None:
    """Promise 13: connected means proven to receive; that the account can be looked up is no proof."""
    clock = Pauses(0)
    platform = driver.connected(clock=clock)
    before = _contact(platform)
    async with ReadingDriver(platform, driver.after) as reading:
        async with driver.failing(failure) as met:
            waiting = reading.next()
            await _first(_waited(waiting), *([clock.enough.wait(), driver.until(met)] if failure == "hangs" else []))
            meanwhile = _contact(platform)
        assert (before.received_at, meanwhile.received_at) == (None, None)
        assert failure == "hangs" or _raised(waiting)
        clock.go_on.set()
        driver.says("hello")
        assert (await waiting if not _raised(waiting) else await _read_again(driver, platform, "hello")) == "hello"
    after = _contact(platform)
    assert (after.received_at is not None, after.trouble) == (True, None)


async def it_raises_while_the_platform_is_away_and_reads_on_when_it_is_asked_again(
    driver: Driver, _: Path, failure: str
) -> None:
    """Only the gateway retries a read: it reports the error, and waits longer each time."""
    platform = driver.connected()
    async with ReadingDriver(platform, driver.after) as reading:
        driver.says("before")
        assert await reading.next() == "before"
        async with driver.failing(failure):
            waiting = reading.next()
            await _first(_waited(waiting))
            assert _raised(waiting)
            driver.says("meanwhile")
    assert await _read_again(driver, platform, "meanwhile") == "meanwhile"
    assert not isinstance(platform, CanTellContact) or platform.contact.trouble is None


async def reading_stops_within_a_second_while_nothing_is_said(driver: Driver, _: Path) -> None:
    """A stop of the gateway does not wait for a poll to end."""
    platform = driver.connected()
    driver.says("hello")
    async with ReadingDriver(platform, driver.after) as reading:
        await reading.next()
        waiting = reading.next()
        await driver.until(lambda: driver.acknowledged() == 1)
        waiting.cancel()
        stopping = asyncio.ensure_future(_stopped(waiting, platform))
        await _first(_waited(stopping), _a_second())
        assert stopping.done()


# -- writing -----------------------------------------------------------------------------------------------------------


async def a_long_reply_is_cut_within_the_limit_with_its_code_closed(driver: Driver, folder: Path) -> None:
    """The limit is measured in the platform's own unit."""
    limits = driver.connected().limits
    lines = [f"print({number})" for number in range(max(600, limits.text // 5))]
    whole = "\n".join(["Some words before it.\n", "```python", *lines, "```\n", "And after it 😀."])
    driver.says("write")
    async with _world(driver, folder, ScriptedAgent(answer=lambda _: whole)) as world:
        await driver.until(lambda: "".join(driver.texts()).endswith("after it 😀."))
        await world.gateway.outbox.quiet()
    texts, code = driver.texts(), driver.code()
    assert len(texts) > 1
    assert all(limits.unit(each) <= limits.text for each in texts)
    seen = [line for each in code for line in each.splitlines()]
    assert seen == lines  # each line once, and every part of the code is seen as code
    assert ["before it" in texts[0], "after it" in texts[-1]] == [True, True]


async def each_failure_is_named_by_the_reaction(driver: Driver, _: Path, failure: str) -> None:
    """TryLater with its delay, Refused or OutcomeUnknown; and the next send works."""
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
    """For platforms with edits, and with deletions where there are some."""
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


async def people_see_the_typing_indicator(driver: Driver, _: Path) -> None:
    """For platforms with a typing indicator."""
    platform = driver.connected()
    assert isinstance(platform, CanType)
    driver.place("two")
    assert not driver.types("one")
    assert await _typing_seen(driver, platform)
    assert not driver.types("two")


async def a_mark_on_a_message_is_seen_replaced_and_taken_away(driver: Driver, _: Path) -> None:
    """For platforms with reactions. A reaction that cannot be set raises no error."""
    driver.says("hello")
    (said,) = await _heard(driver, 1)
    platform, place, number = driver.connected(), driver.place(), said.source.message_id or ""
    assert isinstance(platform, CanReact)
    for mark in ("👀", "👀", "👍", ""):
        await platform.react(place, number, mark)
        assert driver.marks(number) == ([mark] if mark else [])
    await platform.react(place, "987654321", "👀")


async def a_card_is_closed_once_and_closing_it_again_does_no_harm(driver: Driver, folder: Path) -> None:
    """For platforms that stream into cards: no card is left open, whichever process opened it."""
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
    async with _world(driver, folder) as world:
        await driver.until(lambda: "echo: hello" in driver.texts())
        await world.gateway.outbox.quiet()
    assert driver.texts() == ["third", "echo: hello"]


async def files_come_in_and_go_out(driver: Driver, folder: Path) -> None:
    """For platforms with files: what people send is in the text, what we send is on the screen."""
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
    """The adapter has the abilities that its driver offers, so that no question is left out."""
    platform = driver.connected()
    assert {each for each in ABILITIES if isinstance(platform, each)} == driver.offers


QUESTIONS = (
    ContractQuestion(it_offers_what_its_driver_says),
    ContractQuestion(nothing_is_acknowledged_before_the_next_is_asked_for),
    ContractQuestion(asking_for_the_next_acknowledges),
    ContractQuestion(what_is_delivered_twice_is_answered_once),
    ContractQuestion(whatever_comes_twice_in_disorder_or_with_holes_is_answered_once_and_in_order),
    ContractQuestion(every_place_and_person_is_known_by_its_own_key),
    *(
        ContractQuestion(who_answers_and_brings_nothing_is_not_said_to_receive, CanTellContact, each)
        for each in ("hangs", "fails")
    ),
    ContractQuestion(it_raises_while_the_platform_is_away_and_reads_on_when_it_is_asked_again, failure="away"),
    ContractQuestion(reading_stops_within_a_second_while_nothing_is_said),
    ContractQuestion(a_long_reply_is_cut_within_the_limit_with_its_code_closed),
    *(ContractQuestion(each_failure_is_named_by_the_reaction, failure=each) for each in ERRORS),
    ContractQuestion(what_was_sent_is_replaced_and_the_same_again_does_no_harm, CanEdit),
    ContractQuestion(people_see_the_typing_indicator, CanType),
    ContractQuestion(a_mark_on_a_message_is_seen_replaced_and_taken_away, CanReact),
    ContractQuestion(a_card_is_closed_once_and_closing_it_again_does_no_harm, CanStream),
    ContractQuestion(files_come_in_and_go_out, CanSendFiles),
)


# -- how they are asked ------------------------------------------------------------------------------------------------


class ReadingDriver:
    """Reads an adapter message by message, and closes it in order."""

    def __init__(self, platform: Adapter, after: str | None) -> None:
        self._heard = platform.inbound(after)
        self._asked: asyncio.Task[str] | None = None

    def next(self) -> asyncio.Task[str]:
        """Ask for the next message, which acknowledges the last; returns its text."""
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
    """A gateway that reads this platform from the driver's cursor, whatever an earlier one has committed."""
    url, platform = f"sqlite:///{folder / 'everturn.db'}", driver.connected()
    if driver.after is not None:
        store = await open_store(url)
        await store.run(move_cursor, platform.name, platform.account, driver.after, 0.0)
        await store.close()
    async with World(url, agent or ScriptedAgent(), [platform], media=Media(folder / "files")) as started:
        yield started


async def _heard(driver: Driver, count: int) -> list[Inbound]:
    """Read so many messages with a new adapter; the last of them is not acknowledged."""
    found: list[Inbound] = []
    seen = within(WAIT_S, lambda: f"{len(found)} of {count} messages, {[each.text for each in found]}")
    async with seen, aclosing(driver.connected().inbound(driver.after)) as reading:  # type: ignore[type-var]
        async for each in reading:
            found += [each] if isinstance(each, Inbound) else []
            if len(found) == count:
                break
    return found


async def _read_again(driver: Driver, platform: Adapter, text: str) -> str:
    """Read as the gateway does after a pause, until this text arrives."""
    found = ""
    async with (
        within(WAIT_S, lambda: f"no {text!r}; the last message is {found!r}"),
        ReadingDriver(platform, driver.after) as reading,
    ):
        while (found := await reading.next()) != text:
            pass
    return found


async def _typing_seen(driver: Driver, platform: CanType) -> bool:
    """Whether people see the typing indicator. It may be over before anybody looks: then it is shown again."""
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
    """Whether the adapter leaves it to the gateway to report the error, to wait and to read again."""
    return waiting.done() and isinstance(waiting.exception(), PlatformError)


async def _waited(task: asyncio.Task[Any] | asyncio.Future[Any]) -> None:
    await asyncio.wait({task})


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of them is over; what it raised is raised."""
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
    """Wait a second in small steps: a machine that stalls for a while is not taken for a slow adapter."""
    for _ in range(20):
        await asyncio.sleep(0.05)
