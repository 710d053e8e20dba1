"""What both engines promise, whichever runs an operation."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.errors import FenceLost, StoreUnavailable
from everturn.store.interface import Op, Rows, sql
from everturn.store.open import open_store
from everturn.store.postgres import PostgresStore
from everturn.store.sqlite import SQLiteStore
from tests.store.engine_operations import (
    add_one,
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

Engine = SQLiteStore | PostgresStore


@pytest.fixture
async def store(fresh_store_url: str, tmp_path: Path) -> AsyncIterator[Engine]:
    store = await open_store(fresh_store_url, schema=make_schema(tmp_path / "schema"))
    yield store
    await store.close()


async def test_a_committed_operation_is_seen_by_the_next_read(store: Engine) -> None:
    assert await store.run(put, 1, body="hello") == "hello"
    assert await store.read(find, 1) == "hello"


async def test_an_operation_run_twice_says_the_same(store: Engine) -> None:
    assert await store.run(put, 1, "first") == "first"
    assert await store.run(put, 1, "second") == "first"
    assert await store.read(count) == 1


async def test_rows_are_plain_tuples_in_a_list(store: Engine) -> None:
    def select() -> Op[Rows]:
        return (yield sql("SELECT id, body FROM item ORDER BY id"))

    assert await store.read(select) == []
    await store.run(put, 1, "one")
    rows = await store.read(select)
    assert rows == [(1, "one")]
    assert type(rows[0]) is tuple


async def test_a_statement_says_how_many_rows_it_wrote(store: Engine) -> None:
    def insert(number: int) -> Op[Rows]:
        text = "INSERT INTO item (id, body) VALUES (1, 'x'), ($1, 'y') ON CONFLICT (id) DO NOTHING/*did*/"
        return (yield sql(text, number))

    assert [len(await store.run(insert, number)) for number in (2, 3, 3)] == [2, 1, 0]
    assert await store.read(numbers) == [1, 2, 3]


async def test_a_statement_without_result_gives_no_rows(store: Engine) -> None:
    def insert() -> Op[Rows]:
        return (yield sql("INSERT INTO item (id, body) VALUES (1, 'x')"))

    assert await store.run(insert) == []


async def test_parameters_go_by_number_and_quoted_text_stays(store: Engine) -> None:
    def select() -> Op[Rows]:
        return (yield sql("SELECT '$1 it''s $2', CAST($2 AS TEXT), CAST($1 AS TEXT), CAST($2 AS TEXT)", "one", "two"))

    assert await store.read(select) == [("$1 it's $2", "two", "one", "two")]


@pytest.mark.parametrize("error", [FenceLost("gone"), OSError(28, "not the disk"), ValueError("bad")])
async def test_an_error_of_the_operation_undoes_all_of_it_and_reaches_its_caller(
    store: Engine, error: Exception
) -> None:
    with pytest.raises(type(error)) as caught:
        await store.run(put_then_raise, 1, error)
    assert caught.value is error
    assert await store.read(count) == 0
    assert store.trouble() is None


async def test_an_error_leaves_the_neighbours_of_its_group_alone(store: Engine) -> None:
    good = [store.run(put, number, "x") for number in (1, 2)]
    bad = [store.run(put_then_raise, 3, FenceLost("wrote")), store.run(look_then_raise, FenceLost("looked"))]
    good += [store.run(put, number, "x") for number in (4, 5)]
    assert await asyncio.gather(*good) == ["x"] * 4
    for outcome in await asyncio.gather(*bad, return_exceptions=True):
        assert isinstance(outcome, FenceLost)
    assert await store.read(numbers) == [1, 2, 4, 5]


async def test_mistakes_in_the_sql_reach_the_caller(store: Engine) -> None:
    def mistaken() -> Op[None]:
        yield sql("SELECT id FROM nowhere")

    with pytest.raises(Exception, match="nowhere"):
        await store.run(mistaken)
    with pytest.raises(Exception, match="nowhere"):
        await store.read(mistaken)
    assert store.trouble() is None


async def test_a_broken_constraint_reaches_the_caller(store: Engine) -> None:
    def insert_twice() -> Op[None]:
        yield sql("INSERT INTO item (id, body) VALUES (1, 'x')")
        yield sql("INSERT INTO item (id, body) VALUES (1, 'y')")

    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.run(insert_twice)
    assert await store.run(put, 1, "z") == "z"


async def test_wrong_arguments_reach_the_caller(store: Engine) -> None:
    with pytest.raises(TypeError):
        await store.run(put, 1)  # type: ignore[call-arg]
    assert await store.run(put, 1, "x") == "x"


async def test_a_read_cannot_write(store: Engine) -> None:
    with pytest.raises(Exception, match=r"(?i)read-?only"):
        await store.read(put, 1, "x")
    assert await store.read(count) == 0
    assert store.trouble() is None


async def test_what_was_read_under_a_lock_does_not_change_before_it_is_written(store: Engine) -> None:
    values = await asyncio.gather(*(store.run(add_one, "n") for _ in range(100)))
    assert sorted(values) == list(range(1, 101))


async def test_cancelling_the_caller_does_not_undo_the_operation(store: Engine) -> None:
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


async def test_a_cancelled_operation_is_found_after_closing(fresh_store_url: str, tmp_path: Path) -> None:
    schema = make_schema(tmp_path / "schema")
    store = await open_store(fresh_store_url, schema=schema)
    store.run(put, 1, "kept").cancel()
    await store.close()
    again = await open_store(fresh_store_url, schema=schema)
    assert await again.read(find, 1) == "kept"
    await again.close()


async def test_closing_finishes_what_was_accepted(fresh_store_url: str, tmp_path: Path) -> None:
    store = await open_store(fresh_store_url, schema=make_schema(tmp_path / "schema"))
    calls = [store.run(put, number, "x") for number in range(1000)]
    reads = [store.read(count) for _ in range(20)]
    await store.close()
    assert all(call.done() and call.result() == "x" for call in calls)
    assert all(read.done() for read in reads)


async def test_a_closed_store_refuses_and_closes_again(store: Engine) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.run(put, 1, "x")
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read(count)
    await store.close()


async def test_it_counts_operations_and_commits(store: Engine) -> None:
    await asyncio.gather(*(store.run(put, number, "x") for number in range(50)))
    assert store.operations == 50
    assert 1 <= store.commits <= 50


async def test_an_instance_is_alive_while_it_is_locked(store: Engine) -> None:
    assert await store.alive() == set()
    await store.lock_instance(7)
    assert await store.alive() == {7}
    assert store.trouble() is None


async def test_it_tells_the_time_and_settles(store: Engine) -> None:
    assert abs(await store.now() - time.time()) < WAIT_S
    async with within():
        await store.locks_settled()
