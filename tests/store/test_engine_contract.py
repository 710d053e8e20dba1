"""What every driver of the store promises, whichever runs an operation. `CONTRACT` has it for drivers that need another loop:
tests/sim/test_store.py tries the simulated one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Protocol

import pytest

from everturn.errors import FenceLost, StoreUnavailable
from everturn.store.interface import Op, Rows, Store, sql
from everturn.store.open import open_store
from tests.store.engine_operations import (
    add_one,
    closing,
    count,
    find,
    look_then_raise,
    make_schema,
    numbers,
    put,
    put_then_raise,
    until,
)
from tests.waiting import WAIT_S, within


class CountingStore(Store, Protocol):
    """A store that also counts."""

    @property
    def operations(self) -> int:
        """How many operations were committed."""
        ...

    @property
    def commits(self) -> int:
        """How many transactions that took."""
        ...


Opening = Callable[[], Awaitable[CountingStore]]  # opens the same database each time it is called
Promise = Callable[[Opening], Awaitable[None]]
CONTRACT: dict[str, Promise] = {}


def reopened(promise: Promise) -> Promise:
    """Add what is tried on a database that it opens itself."""
    CONTRACT[promise.__name__] = promise
    return promise


def promised(promise: Callable[[CountingStore], Awaitable[None]]) -> Promise:
    """Add what is tried on an open store."""

    @wraps(promise)
    async def on_a_store(opening: Opening) -> None:
        async with closing(await opening()) as store:
            await promise(store)

    return reopened(on_a_store)


@promised
async def a_committed_operation_is_seen_by_the_next_read(store: CountingStore) -> None:
    assert await store.run(put, 1, body="hello") == "hello"
    assert await store.read(find, 1) == "hello"


@promised
async def an_operation_run_twice_says_the_same(store: CountingStore) -> None:
    assert await store.run(put, 1, "first") == "first"
    assert await store.run(put, 1, "second") == "first"
    assert await store.read(count) == 1


@promised
async def rows_are_plain_tuples_in_a_list(store: CountingStore) -> None:
    def select() -> Op[Rows]:
        return (yield sql("SELECT id, body FROM item ORDER BY id"))

    assert await store.read(select) == []
    await store.run(put, 1, "one")
    rows = await store.read(select)
    assert rows == [(1, "one")]
    assert type(rows[0]) is tuple


@promised
async def a_statement_says_how_many_rows_it_wrote(store: CountingStore) -> None:
    def insert(number: int) -> Op[Rows]:
        text = "INSERT INTO item (id, body) VALUES (1, 'x'), ($1, 'y') ON CONFLICT (id) DO NOTHING/*did*/"
        return (yield sql(text, number))

    assert [len(await store.run(insert, number)) for number in (2, 3, 3)] == [2, 1, 0]
    assert await store.read(numbers) == [1, 2, 3]


@promised
async def a_statement_without_result_gives_no_rows(store: CountingStore) -> None:
    def insert() -> Op[Rows]:
        return (yield sql("INSERT INTO item (id, body) VALUES (1, 'x')"))

    assert await store.run(insert) == []


@promised
async def parameters_go_by_number_and_quoted_text_stays(store: CountingStore) -> None:
    def select() -> Op[Rows]:
        return (yield sql("SELECT '$1 it''s $2', CAST($2 AS TEXT), CAST($1 AS TEXT), CAST($2 AS TEXT)", "one", "two"))

    assert await store.read(select) == [("$1 it's $2", "two", "one", "two")]


@promised
async def an_error_of_the_operation_undoes_all_of_it_and_reaches_its_caller(store: CountingStore) -> None:
    for error in (FenceLost("gone"), OSError(28, "not the disk"), ValueError("bad")):
        with pytest.raises(type(error)) as caught:
            await store.run(put_then_raise, 1, error)
        assert caught.value is error
        assert await store.read(count) == 0
        assert store.trouble() is None


@promised
async def an_error_leaves_the_neighbours_of_its_group_alone(store: CountingStore) -> None:
    good = [store.run(put, number, "x") for number in (1, 2)]
    bad = [store.run(put_then_raise, 3, FenceLost("wrote")), store.run(look_then_raise, FenceLost("looked"))]
    good += [store.run(put, number, "x") for number in (4, 5)]
    assert await asyncio.gather(*good) == ["x"] * 4
    for outcome in await asyncio.gather(*bad, return_exceptions=True):
        assert isinstance(outcome, FenceLost)
    assert await store.read(numbers) == [1, 2, 4, 5]


@promised
async def mistakes_in_the_sql_reach_the_caller(store: CountingStore) -> None:
    def mistaken() -> Op[None]:
        yield sql("SELECT id FROM nowhere")

    with pytest.raises(Exception, match="nowhere"):
        await store.run(mistaken)
    with pytest.raises(Exception, match="nowhere"):
        await store.read(mistaken)
    assert store.trouble() is None


@promised
async def a_broken_constraint_reaches_the_caller(store: CountingStore) -> None:
    def insert_twice() -> Op[None]:
        yield sql("INSERT INTO item (id, body) VALUES (1, 'x')")
        yield sql("INSERT INTO item (id, body) VALUES (1, 'y')")

    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.run(insert_twice)
    assert await store.run(put, 1, "z") == "z"


@promised
async def wrong_arguments_reach_the_caller(store: CountingStore) -> None:
    with pytest.raises(TypeError):
        await store.run(put, 1)  # type: ignore[call-arg]
    assert await store.run(put, 1, "x") == "x"


@promised
async def a_read_cannot_write(store: CountingStore) -> None:
    with pytest.raises(Exception, match=r"(?i)read-?only"):
        await store.read(put, 1, "x")
    assert await store.read(count) == 0
    assert store.trouble() is None


@promised
async def what_was_read_under_a_lock_does_not_change_before_it_is_written(store: CountingStore) -> None:
    values = await asyncio.gather(*(store.run(add_one, "n") for _ in range(100)))
    assert sorted(values) == list(range(1, 101))


@promised
async def cancelling_the_caller_does_not_undo_the_operation(store: CountingStore) -> None:
    async def call() -> None:
        await store.run(put, 1, "kept")

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    async def kept() -> bool:
        return await store.read(find, 1) == "kept"

    await until(kept)


@reopened
async def a_cancelled_operation_is_found_after_closing(opening: Opening) -> None:
    store = await opening()
    store.run(put, 1, "kept").cancel()
    await store.close()
    again = await opening()
    assert await again.read(find, 1) == "kept"
    await again.close()


@reopened
async def closing_finishes_what_was_accepted(opening: Opening) -> None:
    store = await opening()
    calls = [store.run(put, number, "x") for number in range(1000)]
    reads = [store.read(count) for _ in range(20)]
    await store.close()
    assert all(call.done() and call.result() == "x" for call in calls)
    assert all(read.done() for read in reads)


@promised
async def a_closed_store_refuses_and_closes_again(store: CountingStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.run(put, 1, "x")
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read(count)
    await store.close()


@promised
async def it_counts_operations_and_commits(store: CountingStore) -> None:
    await asyncio.gather(*(store.run(put, number, "x") for number in range(50)))
    assert store.operations == 50
    assert 1 <= store.commits <= 50


@promised
async def an_instance_is_alive_while_it_is_locked(store: CountingStore) -> None:
    assert await store.alive() == set()
    await store.lock_instance(7)
    assert await store.alive() == {7}
    assert store.trouble() is None


@promised
async def it_tells_the_time_and_settles(store: CountingStore) -> None:
    assert abs(await store.now() - time.time()) < WAIT_S
    async with within():
        await store.locks_settled()


@pytest.mark.parametrize("promise", CONTRACT)
async def test_both_engines_keep_the_contract(promise: str, fresh_store_url: str, tmp_path: Path) -> None:
    schema = make_schema(tmp_path / "schema")
    await CONTRACT[promise](lambda: open_store(fresh_store_url, schema=schema))
