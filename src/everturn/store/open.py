"""Opens the store that a url names. Each engine and its library is loaded only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from everturn.errors import ConfigError
from everturn.store.engines import SCHEMA, OnDeath, end_process, sqlite_path, without_password

if TYPE_CHECKING:
    from everturn.store.postgres import PostgresStore
    from everturn.store.sqlite import SQLiteStore

_POSTGRES = ("postgresql://", "postgres://")


async def open_store(
    url: str, *, schema: Path | None = None, on_death: OnDeath = end_process
) -> SQLiteStore | PostgresStore:
    """Open `sqlite:///absolute/path` or `postgresql://...` and migrate its schema."""
    path = sqlite_path(url)
    if path is not None:
        return await _open_sqlite(path, schema or SCHEMA, on_death)
    if url.startswith(_POSTGRES):
        return await _open_postgres(url, schema or SCHEMA, on_death)
    raise ConfigError(
        f"store.url {without_password(url)!r} names no store: write sqlite:///absolute/path or postgresql://..."
    )


async def _open_sqlite(path: Path, schema: Path, on_death: OnDeath) -> SQLiteStore:
    from everturn.store.sqlite import SQLiteStore  # noqa: PLC0415  not needed on PostgreSQL

    return await SQLiteStore.open(path, schema=schema, on_death=on_death)


async def _open_postgres(url: str, schema: Path, on_death: OnDeath) -> PostgresStore:
    try:
        from everturn.store.postgres import PostgresStore  # noqa: PLC0415  its library is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            "store.url names PostgreSQL, whose library is missing: pip install everturn[postgres]"
        ) from error
    return await PostgresStore.open(url, schema=schema, on_death=on_death)
