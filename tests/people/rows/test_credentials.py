"""Keys, logins and visits on both engines: each secret opens what it should, once where it should, and no longer."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.people.rows.credentials import (
    LoginOutcome,
    RevokedKey,
    Visit,
    add_key,
    add_login,
    find_key,
    find_visit,
    is_login,
    key_used,
    list_keys,
    log_in,
    log_out,
    revoke_key,
)
from everturn.store.engines import SCHEMA
from everturn.store.interface import Op, Store, sql
from everturn.store.open import open_store


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
        assert await store.run(log_in, "c", "v", "browser", 2.0, 1000.0) is LoginOutcome.OPEN


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
    assert await store.run(log_in, "nonsense", "v0", "b", 2.0, 1000.0) is LoginOutcome.UNKNOWN
    assert await store.run(log_in, "c", "v1", "b", 2.0, 1000.0) is LoginOutcome.OPEN
    assert await store.run(log_in, "c", "v2", "b", 3.0, 1000.0) is LoginOutcome.USED
    assert await store.run(log_in, "late", "v3", "b", 100.0, 1000.0) is LoginOutcome.EXPIRED
    assert [await store.read(find_visit, name, 5.0) for name in ("v0", "v1", "v2", "v3")] == [None, Visit(), None, None]


async def test_a_visit_ends_by_time_or_by_logging_out(store: Store) -> None:
    for number in range(3):
        await store.run(add_login, f"c{number}", 1.0, 100.0)
        await store.run(log_in, f"c{number}", f"v{number}", "b", 2.0, 1000.0)
    assert [await store.read(find_visit, "v0", at) for at in (999.0, 1000.0)] == [Visit(), None]
    assert await store.run(log_out, "v0") == 1
    assert [await store.read(find_visit, name, 5.0) for name in ("v0", "v1")] == [None, Visit()]
    assert await store.run(log_out, None) == 2
    assert await store.read(find_visit, "v1", 5.0) is None


async def test_what_is_long_over_is_forgotten(store: Store) -> None:
    await store.run(add_login, "old", 1.0, 100.0)
    await store.run(add_login, "new", 1_000_000.0, 1_000_100.0)
    assert await store.run(log_in, "old", "v", "b", 1_000_000.0, 2_000_000.0) is LoginOutcome.UNKNOWN


async def test_a_login_opens_as_long_as_the_store_says_so(store: Store) -> None:
    await store.run(add_login, "c", 1.0, 100.0)
    assert [await store.read(is_login, "c", at) for at in (99.0, 100.0)] == [True, False]
    await store.run(log_in, "c", "v", "b", 2.0, 1000.0)
    assert [await store.read(is_login, name, 3.0) for name in ("c", "nonsense")] == [False, False]


async def family(store: Store) -> None:
    """An admin's key, a key that it made, one that this one made, and one of the owner's."""
    await store.run(add_key, "h1", "boss", "ev_a", ("admin",), 1.0)
    await store.run(add_key, "h2", "child", "ev_b", ("admin",), 2.0, "h1")
    await store.run(add_key, "h3", "grandchild", "ev_c", ("chat",), 3.0, "h2")
    await store.run(add_key, "h4", "other", "ev_d", ("chat",), 4.0)


async def test_who_revokes_a_key_sees_what_it_made_and_is_still_in_force(store: Store) -> None:
    await family(store)
    for _ in range(2):  # an operation may run twice
        assert await store.run(revoke_key, "boss", 9.0) == RevokedKey(left=("child", "grandchild"))
    assert not await store.run(add_key, "h5", "late", "ev_e", ("chat",), 10.0, "h1")
    assert [(key.name, key.made_by, key.maker_revoked) for key in await store.read(list_keys)] == [
        ("other", "owner", False),
        ("grandchild", "child", False),
        ("child", "boss", True),
        ("boss", "owner", False),
    ]


async def test_what_a_key_made_ends_with_it_where_that_is_asked_for(store: Store) -> None:
    await family(store)
    for _ in range(2):
        assert await store.run(revoke_key, "boss", 9.0, with_made=True) == RevokedKey(also=("child", "grandchild"))
    assert [key.name for key in await store.read(list_keys) if key.revoked_at is None] == ["other"]


async def test_a_visit_of_a_key_has_the_key_and_ends_with_it(store: Store) -> None:
    await store.run(add_key, "h1", "bot", "ev_a", ("admin",), 1.0)
    for code in ("used", "open"):
        await store.run(add_login, code, 1.0, 100.0, "h1")
    assert await store.run(log_in, "used", "v1", "b", 2.0, 1000.0) is LoginOutcome.OPEN
    visit = await store.read(find_visit, "v1", 3.0)
    assert visit == Visit(key=await store.read(find_key, "h1"), key_hash="h1")
    await store.run(revoke_key, "bot", 4.0)
    await store.run(add_key, "h2", "bot", "ev_b", ("admin",), 5.0)  # another of the same name
    assert await store.read(find_visit, "v1", 6.0) is None
    assert await store.run(log_in, "open", "v2", "b", 6.0, 1000.0) is LoginOutcome.EXPIRED


def old_visit(visit_hash: str, scopes: str) -> Op[None]:
    """A browser that logged in before its key was recorded, and a key of that time."""
    yield sql(
        "INSERT INTO access_key (hash, name, prefix, scopes, made_at) VALUES ('h', 'bot', 'ev_a', $1, 1.0)", scopes
    )
    yield sql("INSERT INTO visit (hash, browser, made_at, expires_at) VALUES ($1, 'b', 1.0, 1000.0)", visit_hash)


@pytest.mark.parametrize(("scopes", "stays"), [(("admin",), False), (("chat", "ops"), True)])
async def test_an_older_visit_ends_where_a_key_may_have_made_it(
    fresh_store_url: str, tmp_path: Path, scopes: tuple[str, ...], *, stays: bool
) -> None:
    for path in SCHEMA.rglob("*.sql"):
        if path.name < next(SCHEMA.rglob("*_logins_of_keys.sql")).name:
            (tmp_path / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / path.parent.name)
    before = await open_store(fresh_store_url, schema=tmp_path)
    await before.run(old_visit, "v", " ".join(scopes))
    await before.close()
    store = await open_store(fresh_store_url)
    assert await store.read(find_visit, "v", 5.0) == (Visit() if stays else None)
    assert [key.made_by for key in await store.read(list_keys)] == [None]
    await store.close()
