"""The loop of the simulation: order within a process, chance between processes, virtual time, and what a crash leaves undone."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random

import pytest

from tests.sim.loop import GRAIN_S, OUTSIDE, Group, SimLoop, Spins


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(Random("order"))
    yield loop
    loop.close()


def spend(loop: SimLoop, seconds: float) -> None:
    """Let everything run that is due within this virtual time."""
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None, context=OUTSIDE)
    loop.run_until_complete(over)


def noted(loop: SimLoop, *processes: str, times: int = 20) -> list[str]:
    """Let each process schedule this many callbacks at once, and return what ran, in order."""
    ran: list[str] = []
    groups = [Group(name) for name in processes]
    for number in range(times):
        for group in groups:
            loop.call_soon(ran.append, f"{group.name}{number}", context=group.context)
    spend(loop, 1.0)
    return ran


def test_callbacks_of_one_process_keep_their_order(loop: SimLoop) -> None:
    ran = noted(loop, "a", "b", "c")
    for name in "abc":
        assert [each for each in ran if each[0] == name] == [f"{name}{number}" for number in range(20)]


def test_what_belongs_to_no_process_keeps_its_order(loop: SimLoop) -> None:
    ran: list[int] = []
    noted_too = Group("a")
    for number in range(20):
        loop.call_soon(ran.append, number, context=OUTSIDE)
        loop.call_soon(str, context=noted_too.context)
    spend(loop, 1.0)
    assert ran == list(range(20))


def test_what_a_callback_schedules_runs_behind_what_its_process_had_scheduled(loop: SimLoop) -> None:
    ran: list[str] = []
    group = Group("a")

    def first() -> None:
        loop.call_soon(ran.append, "scheduled by the first")  # of the same process: the context is the caller's
        ran.append("first")

    loop.call_soon(first, context=group.context)
    loop.call_soon(ran.append, "second", context=group.context)
    spend(loop, 1.0)
    assert ran == ["first", "second", "scheduled by the first"]


def test_between_processes_the_order_is_drawn_from_the_seed_alone() -> None:
    orders: list[list[str]] = []
    for seed in ("one", "one", "other"):
        loop = SimLoop(Random(seed))
        orders.append(noted(loop, "a", "b", "c"))
        loop.close()
    assert orders[0] == orders[1] != orders[2]


def test_timers_run_in_the_order_of_their_moments_and_equal_ones_as_scheduled(loop: SimLoop) -> None:
    ran: list[tuple[float, str]] = []
    for seconds, name in ((2.0, "late"), (1.0, "early"), (2.0, "late too"), (0.5, "earliest")):
        loop.call_later(seconds, noting(loop, ran), name, context=OUTSIDE)
    spend(loop, 3.0)
    assert ran == [(0.5, "earliest"), (1.0, "early"), (2.0, "late"), (2.0, "late too")]


def test_time_passes_only_when_nothing_is_ready(loop: SimLoop) -> None:
    seen: list[float] = []

    def again(left: int) -> None:
        seen.append(loop.time())
        if left:
            loop.call_soon(again, left - 1)

    loop.call_later(0.0, seen.append, -1.0, context=OUTSIDE)
    loop.call_soon(again, 100, context=OUTSIDE)
    spend(loop, 5.0)
    assert seen == [0.0] * 101 + [-1.0]
    assert loop.at == 5.0


def test_a_wait_that_rounding_left_comes_to_its_end(loop: SimLoop) -> None:
    async def wait_until(moment: float) -> int:
        rounds = 0
        while (left_s := moment - loop.time()) > 0:
            await waited(loop, min(left_s, 1e-16))
            rounds += 1
        return rounds

    spend(loop, 10.0)
    assert loop.run_until_complete(wait_until(10.0 + 3 * GRAIN_S)) <= 4


async def waited(loop: SimLoop, seconds: float) -> None:
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def test_nothing_waits_for_a_timer_that_was_cancelled(loop: SimLoop) -> None:
    ran: list[str] = []
    loop.call_later(1.0, ran.append, "cancelled", context=OUTSIDE).cancel()
    loop.call_soon(ran.append, "cancelled, too", context=OUTSIDE).cancel()
    loop.call_later(2.0, ran.append, "kept", context=OUTSIDE)
    soon = loop.call_later(2.0, ran.append, "cancelled at its moment", context=OUTSIDE)
    loop.call_later(2.0 - GRAIN_S / 2, soon.cancel, context=OUTSIDE)
    spend(loop, 3.0)
    assert ran == ["kept"]


def test_a_crash_runs_no_finally(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []

    async def held() -> None:
        try:
            await waited(loop, 1.0)
            ran.append("went on")
        except BaseException:
            ran.append("raised")
            raise
        finally:
            ran.append("finally")

    async def generating() -> None:
        async for _ in generated():
            ran.append("generated")  # noqa: PERF401  a comprehension would hide the `async for`

    async def generated() -> AsyncIterator[int]:
        try:
            await waited(loop, 1.0)
            yield 1
        finally:
            ran.append("finally of a generator")

    for work in (held(), held(), generating()):
        loop.create_task(work, context=group.context)
    spend(loop, 0.5)
    group.dead = True
    spend(loop, 10.0)
    gc.collect()
    spend(loop, 10.0)
    assert ran == []


def test_a_crash_runs_no_callback_that_was_ready_waiting_or_is_scheduled_later(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []
    future = loop.create_future()
    future.add_done_callback(lambda _: ran.append("done"), context=group.context)
    for number in range(3):
        loop.call_soon(ran.append, f"ready {number}", context=group.context)
        loop.call_later(1.0, ran.append, f"timer {number}", context=group.context)
    group.dead = True
    loop.call_soon(ran.append, "later", context=group.context)
    loop.call_soon(future.set_result, None, context=OUTSIDE)
    loop.call_soon(ran.append, "outside", context=OUTSIDE)
    spend(loop, 2.0)
    assert ran == ["outside"]


def test_a_process_that_dies_in_a_callback_runs_none_of_those_behind_it(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []

    def die() -> None:
        group.dead = True

    loop.call_soon(die, context=group.context)
    loop.call_soon(ran.append, "behind it", context=group.context)
    spend(loop, 1.0)
    assert ran == []


def test_what_the_dead_left_is_not_collected_while_there_is_the_loop(loop: SimLoop) -> None:
    ends: list[str] = []

    class Resource:
        def __del__(self) -> None:
            ends.append("collected")

    def start() -> Group:
        group, resource = Group("a"), Resource()
        loop.call_soon(id, resource, context=group.context)
        group.dead = True
        return group

    start()
    spend(loop, 1.0)
    gc.collect()
    assert ends == []


def test_a_paused_process_runs_nothing_until_its_pause_is_over_then_goes_on_in_order(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[tuple[float, str]] = []
    note = noting(loop, ran)
    group.paused_until = 5.0
    loop.call_at(5.0, loop.go_on, group, context=OUTSIDE)
    loop.call_soon(note, "first", context=group.context)
    loop.call_later(1.0, note, "second", context=group.context)
    loop.call_later(2.0, note, "third", context=group.context)
    loop.call_later(3.0, note, "outside", context=OUTSIDE)
    loop.call_later(6.0, note, "fourth", context=group.context)
    spend(loop, 10.0)
    assert ran == [(3.0, "outside"), (5.0, "first"), (5.0, "second"), (5.0, "third"), (6.0, "fourth")]


def test_a_second_pause_holds_what_the_first_one_would_have_released(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[tuple[float, str]] = []
    note = noting(loop, ran)
    group.paused_until = 9.0
    for end in (3.0, 9.0, 6.0):  # an end of a pause inside of a longer one
        loop.call_at(end, loop.go_on, group, context=OUTSIDE)
    for seconds, what in ((0.0, "first"), (4.0, "second"), (7.0, "third")):
        loop.call_at(seconds, note, what, context=group.context)
    spend(loop, 20.0)
    assert ran == [(9.0, "first"), (9.0, "second"), (9.0, "third")]


def test_going_on_twice_runs_nothing_twice(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []
    loop.call_soon(ran.append, "first", context=group.context)
    loop.call_soon(ran.append, "second", context=group.context)
    loop.go_on(group)
    loop.go_on(group)
    spend(loop, 1.0)
    assert ran == ["first", "second"]


def test_a_process_that_dies_in_its_pause_never_goes_on(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[tuple[float, str]] = []
    group.paused_until = 5.0
    loop.call_soon(noting(loop, ran), "never", context=group.context)
    spend(loop, 1.0)
    group.dead = True
    loop.call_at(5.0, loop.go_on, group, context=OUTSIDE)
    spend(loop, 10.0)
    assert ran == []


def noting(loop: SimLoop, ran: list[tuple[float, str]]) -> Callable[[str], None]:
    return lambda what: ran.append((loop.at, what))


def test_a_task_belongs_to_the_process_that_started_it_whoever_wakes_it(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []
    woken = loop.create_future()

    async def child() -> None:
        await woken
        ran.append("child")

    async def parent() -> None:
        await asyncio.create_task(child())
        ran.append("parent")

    loop.create_task(parent(), context=group.context)
    loop.call_later(1.0, woken.set_result, None, context=OUTSIDE)
    loop.call_later(0.9, setattr, group, "paused_until", 2.0, context=OUTSIDE)
    spend(loop, 1.5)
    assert ran == []
    loop.call_at(2.0, loop.go_on, group, context=OUTSIDE)
    spend(loop, 1.5)
    assert ran == ["child", "parent"]


def test_what_would_run_in_a_thread_takes_its_time_and_raises_to_its_caller(loop: SimLoop) -> None:
    async def work() -> int:
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")
        return await asyncio.to_thread(int, "7")

    assert loop.run_until_complete(work()) == 7
    assert loop.at > 0


def test_a_loop_that_spins_at_one_moment_is_ended(loop: SimLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  it is what the test is about
            await asyncio.sleep(0)

    spinning = loop.create_task(spin())
    with pytest.raises(Spins, match=r"it spins at 0\.0"):
        loop.run_until_complete(spinning)


def test_much_work_at_many_moments_is_no_spinning(loop: SimLoop) -> None:
    async def work() -> None:
        for _ in range(30):
            for _ in range(1000):
                await asyncio.sleep(0)
            await waited(loop, 1.0)

    loop.run_until_complete(work())
    assert loop.at == 30.0


def test_an_exception_in_a_callback_is_noted_and_the_rest_goes_on(loop: SimLoop) -> None:
    group = Group("a")
    ran: list[str] = []
    loop.call_soon(int, "x", context=group.context)
    loop.call_soon(ran.append, "behind it", context=group.context)
    spend(loop, 1.0)
    assert ran == ["behind it"]
    [error] = loop.errors
    assert "invalid literal" in error


def test_an_exception_in_a_task_is_its_own(loop: SimLoop) -> None:
    async def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        loop.run_until_complete(fails())
    assert loop.errors == []
