"""Requests that come late: how long one may be in flight, and whether a process that stood still may still write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from everturn.errors import FenceLost, TryLater
from everturn.ids import Instance, Machine
from everturn.model import Reply
from everturn.outbox.late_requests import MOST, InFlightRequests, check_claim
from everturn.outbox.rows.outbox import recover_sending, try_later
from everturn.outbox.rules.delivery import UnknownAction
from everturn.store.interface import GRACE_S, Op, Store
from everturn.testing import ManualClock
from tests.contracts.store import StoreProcess, living

T = TypeVar("T")


# -- how long it may be in flight --------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def in_flight(clock: ManualClock) -> InFlightRequests:
    return InFlightRequests(clock, 2.0)


def test_a_request_first_heard_of_may_be_in_flight_for_the_whole_time(in_flight: InFlightRequests) -> None:
    assert in_flight.left_s(7) == 2.0


def test_the_time_runs_from_when_it_was_first_heard_of(in_flight: InFlightRequests, clock: ManualClock) -> None:
    left = []
    for number in (7, 7, 8, 7, 8):
        left.append(in_flight.left_s(number))
        clock.advance(0.5)
    assert left == [2.0, 1.5, 2.0, 0.5, 1.0]
    clock.advance(60.0)
    assert (in_flight.left_s(7), in_flight.left_s(8)) == (0.0, 0.0)


def test_a_request_of_our_own_counts_from_when_it_was_not_answered(
    in_flight: InFlightRequests, clock: ManualClock
) -> None:
    """Also when an earlier one of the same message was known."""
    in_flight.left_s(7)
    clock.advance(60.0)
    in_flight.unanswered(7)
    clock.advance(0.5)
    assert in_flight.left_s(7) == 1.5


def test_when_another_process_has_ended_everything_counts_from_now(
    in_flight: InFlightRequests, clock: ManualClock
) -> None:
    """It may have sent again what we had waited for, or sent ourselves."""
    in_flight.left_s(7)
    in_flight.unanswered(8)
    clock.advance(60.0)
    in_flight.count_anew()
    assert (in_flight.left_s(7), in_flight.left_s(8)) == (2.0, 2.0)


def test_what_is_remembered_is_bounded(in_flight: InFlightRequests, clock: ManualClock) -> None:
    """The oldest is forgotten, and would be waited for again."""
    for number in range(MOST):
        in_flight.left_s(number)
    clock.advance(1.0)
    assert (in_flight.left_s(MOST), len(in_flight.since)) == (2.0, MOST)
    assert (in_flight.left_s(1), in_flight.left_s(0)) == (1.0, 2.0)
    assert len(in_flight.since) == MOST


# -- whether it is still ours to write --------------------------------------------------------------------------------


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


class SlowReads:
    """A store whose answers to the first reads arrive late: what happens between is done by the test. All else passes through."""

    def __init__(self, store: Store, *between: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._between = list(between)
        self.reads = 0
        self.run, self.lock_instance, self.locks_settled = store.run, store.lock_instance, store.locks_settled
        self.alive, self.trouble, self.now = store.alive, store.trouble, store.now
        self.meters, self.close = store.meters, store.close

    def read(self, operation: Callable[..., Op[T]], *args: Any, **named: Any) -> asyncio.Future[T]:
        """Read at once, and answer when what happens between is done."""
        self.reads += 1
        return asyncio.ensure_future(self._answer(self._store.read(operation, *args, **named)))

    async def _answer(self, reading: asyncio.Future[T]) -> T:
        found = await reading
        if self._between:
            await self._between.pop(0)()
        return found


def standing_still(process: StoreProcess, seconds: float, then: Callable[[], Awaitable[object]] | None = None) -> Any:
    """What happens while the process waits for an answer: so much time passes, and perhaps others act."""

    async def between() -> None:
        process.clock.advance(seconds)
        if then is not None:
            await then()

    return between


async def taken_over(process: StoreProcess) -> None:
    """Others took the process for dead, and sent its reply."""
    await process.store.run(recover_sending, process.instance, {"fake": UnknownAction.REPEAT}, process.now)
    await process.sending()


def instance_of(process: StoreProcess) -> Instance:
    return Instance(process.clock, Machine())


async def being_sent(process: StoreProcess) -> Reply:
    await process.talk()
    return await process.sending()


async def test_a_reply_that_is_ours_is_asked_about_once(process: StoreProcess) -> None:
    reply = await being_sent(process)
    store = SlowReads(process.store)
    await check_claim(store, instance_of(process), reply.id, reply.claim)
    assert store.reads == 1


async def test_a_reply_with_another_claim_is_lost(process: StoreProcess) -> None:
    reply = await being_sent(process)
    await taken_over(process)
    with pytest.raises(FenceLost):
        await check_claim(process.store, instance_of(process), reply.id, reply.claim)


async def test_a_reply_that_nobody_sends_any_more_is_lost(process: StoreProcess) -> None:
    """Its claim stays in its row when it has ended."""
    reply = await being_sent(process)
    await process.store.run(try_later, reply, process.now, "busy")
    with pytest.raises(FenceLost):
        await check_claim(process.store, instance_of(process), reply.id, reply.claim)


async def test_an_answer_that_came_late_proves_nothing(process: StoreProcess) -> None:
    """It was ours when the database looked; then the process stood still, and others took it over."""
    reply = await being_sent(process)
    store = SlowReads(process.store, standing_still(process, GRACE_S, lambda: taken_over(process)))
    with pytest.raises(FenceLost):
        await check_claim(store, instance_of(process), reply.id, reply.claim)
    assert store.reads == 2


async def test_it_is_asked_until_an_answer_comes_in_time(process: StoreProcess) -> None:
    reply = await being_sent(process)
    late = [standing_still(process, seconds) for seconds in (60.0, GRACE_S, GRACE_S - 1.0)]
    store = SlowReads(process.store, *late)
    await check_claim(store, instance_of(process), reply.id, reply.claim)
    assert store.reads == 3


async def test_a_database_that_never_answers_in_time_is_not_asked_for_ever(process: StoreProcess) -> None:
    reply = await being_sent(process)
    store = SlowReads(process.store, *[standing_still(process, GRACE_S) for _ in range(9)])
    with pytest.raises(TryLater):
        await check_claim(store, instance_of(process), reply.id, reply.claim)
    assert store.reads == 3
