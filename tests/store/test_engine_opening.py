"""A store that must not be used is refused with a clear error, and not one byte of it changes."""

# ruff: noqa: ASYNC240  a test may block on its files

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import apsw
import pytest

from everturn.errors import ConfigError, StoreUnavailable, StoreUnusable
from everturn.store.engines import sqlite_path, without_password
from everturn.store.open import open_store
from everturn.store.sqlite import SQLiteStore
from tests.postgres import PostgresServer, free_port, make_directory, unprivileged_account
from tests.store.engine_operations import make_schema, put
from tests.store.faulty_vfs import FaultyDisk


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    return make_schema(tmp_path / "schema")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "everturn.db"


@pytest.fixture
async def used(path: Path, schema: Path) -> Path:
    """A store's file with some rows."""
    store = await SQLiteStore.open(path, schema=schema)
    for number in range(20):
        await store.run(put, number, "x" * 1000)
    await store.close()
    return path


def state(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


async def refused(path: Path, schema: Path, text: str) -> None:
    before = state(path.parent)
    with pytest.raises(StoreUnusable, match=text) as caught:
        await SQLiteStore.open(path, schema=schema)
    assert path.name in str(caught.value)
    assert state(path.parent) == before


@contextmanager
def as_ordinary_user(used: Path, mode: int) -> Iterator[tuple[Path, Path]]:
    """A copy of the file with that mode, and a schema, where modes count even if the tests run as root."""
    content = used.read_bytes()
    account = unprivileged_account()
    directory = make_directory(account)
    try:
        if account is not None:
            os.seteuid(account.pw_uid)
        copy = directory / "home" / "everturn.db"
        copy.parent.mkdir()
        copy.write_bytes(content)
        copy.chmod(mode)
        yield copy, make_schema(directory / "schema")
        copy.parent.chmod(0o700)
    finally:
        if account is not None:
            os.seteuid(0)
        shutil.rmtree(directory)


async def test_text_instead_of_a_database(path: Path, schema: Path) -> None:
    path.write_text("These are my notes.\n" * 500)
    await refused(path, schema, "is not an Everturn database: move it away")


async def test_noise_after_a_good_beginning(path: Path, schema: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + Random(8176).randbytes(8176))
    await refused(path, schema, "is damaged|is cut short")


async def test_a_damaged_schema(used: Path, schema: Path) -> None:
    content = bytearray(used.read_bytes())
    content[100:1000] = Random(900).randbytes(900)
    used.write_bytes(content)
    await refused(used, schema, "is damaged")


async def test_a_file_cut_short(used: Path, schema: Path) -> None:
    os.truncate(used, used.stat().st_size // 2)
    await refused(used, schema, "is cut short: restore a backup")


async def test_a_database_of_another_program(path: Path, schema: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE theirs (a)")
    await refused(path, schema, "belongs to another program")


async def test_a_newer_schema(used: Path, schema: Path) -> None:
    with closing(apsw.Connection(str(used))) as db:
        db.execute("INSERT INTO everturn_schema VALUES (7, 0)")
    await refused(used, schema, r"newer Everturn \(schema 7, this one knows 1\): install")


async def test_a_newer_schema_that_is_still_in_the_wal(used: Path, schema: Path) -> None:
    db = apsw.Connection(str(used))
    db.execute("INSERT INTO everturn_schema VALUES (7, 0)")
    copy = used.parent / "copy" / used.name
    copy.parent.mkdir()
    for file in (used, used.with_name(f"{used.name}-wal")):
        shutil.copy(file, copy.parent)
    db.close()
    before = {name: digest for name, digest in state(copy.parent).items() if not name.endswith("-shm")}
    with pytest.raises(StoreUnusable, match="newer"):
        await SQLiteStore.open(copy, schema=schema)
    assert {name: digest for name, digest in state(copy.parent).items() if not name.endswith("-shm")} == before


async def test_a_directory_in_its_place(path: Path, schema: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnusable, match="is a directory"):
        await SQLiteStore.open(path, schema=schema)


async def test_a_missing_directory(tmp_path: Path, schema: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"the directory .*absent does not exist: create it"):
        await SQLiteStore.open(tmp_path / "absent" / "everturn.db", schema=schema)
    assert not (tmp_path / "absent").exists()


async def test_a_read_only_file(used: Path) -> None:
    with as_ordinary_user(used, 0o400) as (copy, schema):
        await refused(copy, schema, "is read-only: make the file and its directory writable")


async def test_a_file_that_may_not_be_read(used: Path) -> None:
    with as_ordinary_user(used, 0o000) as (copy, schema), pytest.raises(StoreUnusable, match="denied"):
        await SQLiteStore.open(copy, schema=schema)


async def test_a_read_only_directory(used: Path) -> None:
    with as_ordinary_user(used, 0o600) as (copy, schema):
        copy.parent.chmod(0o500)
        await refused(copy, schema, "is read-only: make the file and its directory writable")
        with pytest.raises(StoreUnusable, match="denied"):
            await SQLiteStore.open(copy.with_name("new.db"), schema=schema)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (apsw.FullError("full"), "the disk is full"),
        (apsw.IOError("bad"), "the disk reports an error"),
        (OSError(errno.ENOSPC, "full"), "the disk"),
    ],
)
async def test_a_fault_of_the_disk_at_the_first_start_leaves_nothing(
    path: Path, schema: Path, fault: Exception, text: str
) -> None:
    disk = FaultyDisk()
    disk.faults["write"] = fault
    with pytest.raises(StoreUnavailable, match=text):
        await SQLiteStore.open(path, schema=schema, vfs=disk.name)
    assert state(path.parent) == {}
    disk.faults.clear()
    await (await SQLiteStore.open(path, schema=schema, vfs=disk.name)).close()


async def test_a_full_disk_before_a_migration_leaves_the_file(used: Path, tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.faults["write"] = apsw.FullError("full")
    before = state(used.parent)["everturn.db"]
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await SQLiteStore.open(used, schema=make_schema(tmp_path / "new", "CREATE TABLE more (a INT)"), vfs=disk.name)
    assert state(used.parent)["everturn.db"] == before


@pytest.mark.parametrize("url", ["", "everturn.db", "sqlite://", "sqlite:///", "mysql://ann:secret@host/x"])
async def test_an_address_of_no_store(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url") as caught:
        await open_store(url)
    assert "secret" not in str(caught.value)


def test_postgres_without_its_library_names_what_to_install() -> None:
    program = (
        "import asyncio, sys\n"
        "sys.modules['asyncpg'] = None\n"
        "from everturn.store.open import open_store\n"
        "asyncio.run(open_store('postgresql://ann:secret@127.0.0.1/x'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "everturn.errors.ConfigError" in done.stderr
    assert "pip install everturn[postgres]" in done.stderr
    assert "secret" not in done.stderr.splitlines()[-1]


async def test_no_server_at_the_address(schema: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await open_store(f"postgresql://ann:secret@127.0.0.1:{free_port()}/x", schema=schema)
    assert "secret" not in str(caught.value)


async def test_no_such_database(postgres: PostgresServer, schema: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"refuses access .*does not exist") as caught:
        await open_store(postgres.url("nowhere").replace("postgres@", "postgres:secret@"), schema=schema)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://ann:secret@host:port/x", "postgresql://ann:secret@[host/x"])
async def test_a_malformed_address(url: str, schema: Path) -> None:
    with pytest.raises(ConfigError, match="is not a PostgreSQL address") as caught:
        await open_store(url, schema=schema)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@host/x", "postgresql://ann@host/x"),
        ("postgresql://ann:se:c@ret/@host/x", "postgresql://ann@host/x"),
        ("postgresql://host/x?user=ann&password=secret&a=b", "postgresql://host/x?user=ann&password=***&a=b"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:///var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:///C:/x.db", "C:/x.db"),
        ("sqlite:////", None),
        ("sqlite://x.db", None),
    ],
)
def test_the_path_of_a_file(url: str, path: str | None) -> None:
    assert sqlite_path(url) == (path and Path(path))
