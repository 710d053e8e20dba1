"""Keys, logins and visits on both engines: each secret opens what it should, once where it should, and no longer."""

from collections.abc import AsyncIterator

import pytest

from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.store.operations.access import (
    Entrance,
    add_key,
    add_login,
    find_key,
    is_visit,
    key_used,
    list_keys,
    log_in,
    log_out,
    revoke_key,
)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await open_store(store_url)
    yield opened
    await opened.close()


async def test_a_key_is_found_by_its_hash_until_it_is_revoked(store: Store) -> None:
    assert await store.run(add_key, "h1", "bot", "ev_abc", ("chat", "read"), 10.0)
    found = await store.read(find_key, "h1")
    assert found is not None
    assert (found.name, found.prefix, found.scopes, found.used_at) == ("bot", "ev_abc", ("chat", "read"), None)
    assert await store.read(find_key, "h2") is None
    assert await store.run(revoke_key, "bot", 20.0)
    assert await store.read(find_key, "h1") is None
    assert [(key.name, key.revoked_at) for key in await store.read(list_keys)] == [("bot", 20.0)]


async def test_what_is_run_twice_says_the_same(store: Store) -> None:
    for _ in range(2):
        assert await store.run(add_key, "h1", "bot", "ev_abc", ("chat",), 10.0)
    for _ in range(2):
        assert await store.run(revoke_key, "bot", 20.0)
    assert not await store.run(revoke_key, "bot", 30.0)
    await store.run(add_login, "c", 1.0, 100.0)
    for _ in range(2):
        assert await store.run(log_in, "c", "v", "browser", 2.0, 1000.0) is Entrance.OPEN


async def test_a_name_is_free_again_after_its_key_is_revoked(store: Store) -> None:
    assert await store.run(add_key, "h1", "bot", "ev_a", ("chat",), 10.0)
    assert not await store.run(add_key, "h2", "bot", "ev_b", ("chat",), 11.0)
    await store.run(revoke_key, "bot", 12.0)
    assert await store.run(add_key, "h2", "bot", "ev_b", ("chat",), 13.0)
    assert [key.prefix for key in await store.read(list_keys)] == ["ev_b", "ev_a"]


async def test_when_a_key_was_used_is_kept(store: Store) -> None:
    await store.run(add_key, "h1", "bot", "ev_a", ("chat",), 10.0)
    await store.run(key_used, "h1", 50.0)
    assert [key.used_at for key in await store.read(list_keys)] == [50.0]


async def test_a_login_opens_once_and_not_for_long(store: Store) -> None:
    await store.run(add_login, "c", 1.0, 100.0)
    await store.run(add_login, "late", 1.0, 100.0)
    assert await store.run(log_in, "nonsense", "v0", "b", 2.0, 1000.0) is Entrance.UNKNOWN
    assert await store.run(log_in, "c", "v1", "b", 2.0, 1000.0) is Entrance.OPEN
    assert await store.run(log_in, "c", "v2", "b", 3.0, 1000.0) is Entrance.USED
    assert await store.run(log_in, "late", "v3", "b", 100.0, 1000.0) is Entrance.EXPIRED
    assert [await store.read(is_visit, name, 5.0) for name in ("v0", "v1", "v2", "v3")] == [False, True, False, False]


async def test_a_visit_ends_by_time_or_by_logging_out(store: Store) -> None:
    for number in range(3):
        await store.run(add_login, f"c{number}", 1.0, 100.0)
        await store.run(log_in, f"c{number}", f"v{number}", "b", 2.0, 1000.0)
    assert [await store.read(is_visit, "v0", at) for at in (999.0, 1000.0)] == [True, False]
    assert await store.run(log_out, "v0") == 1
    assert [await store.read(is_visit, name, 5.0) for name in ("v0", "v1")] == [False, True]
    assert await store.run(log_out, None) == 2
    assert not await store.read(is_visit, "v1", 5.0)


async def test_what_is_long_over_is_forgotten(store: Store) -> None:
    await store.run(add_login, "old", 1.0, 100.0)
    await store.run(add_login, "new", 1_000_000.0, 1_000_100.0)
    assert await store.run(log_in, "old", "v", "b", 1_000_000.0, 2_000_000.0) is Entrance.UNKNOWN
