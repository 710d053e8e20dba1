"""Connects to the PostgreSQL server, migrates its schema and explains its errors. No password leaves this file."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncpg

from everturn.errors import ConfigError, StoreError, StoreUnavailable, StoreUnusable
from everturn.store.engines import (
    CREATE_TABLE,
    INSERT_VERSION,
    SELECT_VERSION,
    TABLE,
    Migration,
    missing,
    tables_of,
    without_password,
)

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

STATEMENTS = 512  # prepared statements a connection keeps
CONNECT_WITHIN_S = 10.0
MIGRATE_WITHIN_S = 86_400.0  # a large table takes its time; it is not the network that is dead
MIGRATION_LOCK = 0x6576657274757271  # a number that no other program should use
SETTINGS = {
    "application_name": "everturn",
    "jit": "off",  # our statements are short, compiling them costs more than running them
    "idle_in_transaction_session_timeout": "15000",  # a frozen process must not keep its row locks
}

REFUSED = ("28", "3D", "42501")  # authentication, unknown database, missing privilege
CONFLICTS = ("40001", "40P01", "55P03")  # another transaction was quicker: run it again
SCHEMA_FAULTS = ("3F", "42501")  # our tables are missing or closed: a backup is restored, or rights were revoked
UNDEFINED_TABLE = "42P01"  # the same, if it is one of ours
DAMAGED = ("XX001", "XX002")  # a page or an index
FAULTS = ("08", "53", "57", "58", "40", "25006", "25P03", "55P03")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One database on one server."""

    url: str = field(repr=False)
    command_timeout_s: float
    name: str
    tables: frozenset[str]  # ours

    @classmethod
    def at(cls, url: str, command_timeout_s: float, migrations: list[Migration]) -> PostgresServer:
        return cls(url, command_timeout_s, without_password(url), tables_of(migrations))

    async def connect(self) -> Connection:
        """Open a connection; its commands time out, so that a dead network is noticed."""
        return await asyncpg.connect(
            self.url,
            timeout=CONNECT_WITHIN_S,
            command_timeout=self.command_timeout_s,
            statement_cache_size=STATEMENTS,
            max_cached_statement_lifetime=0,
            server_settings=SETTINGS,
        )

    async def prepare(self, migrations: list[Migration]) -> Connection:
        """Migrate the schema; of several starts at once, one does it. Returns the connection that was used."""
        try:
            connection = await self.connect()
            try:
                await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK, timeout=MIGRATE_WITHIN_S)
                await self._migrate(connection, migrations)
                await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)
            except BaseException:
                connection.terminate()  # the server frees the lock
                raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            raise self.explain(error) from None  # the chain might show the url
        return connection

    async def _migrate(self, connection: Connection, migrations: list[Migration]) -> None:
        known = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", TABLE)
        version = await connection.fetchval(SELECT_VERSION) if known else 0
        if wanted := missing(migrations, version, self.name):
            async with connection.transaction():
                await connection.execute(CREATE_TABLE)
                for migration in wanted:
                    await connection.execute(migration.text, timeout=MIGRATE_WITHIN_S)
                    await connection.execute(INSERT_VERSION, migration.version, time.time())

    def is_schema_fault(self, error: Exception) -> bool:
        """Tell whether our tables are missing or not permitted: it passes when an administrator repairs it."""
        if sqlstate(error) == UNDEFINED_TABLE:
            return any(f'"{name}"' in str(error) for name in self.tables)
        return sqlstate(error).startswith(SCHEMA_FAULTS)

    def explain(self, error: Exception) -> StoreError | ConfigError:
        """Return the error for the owner that an error at the start means."""
        if is_fault(error):
            return StoreUnavailable(self.text(error))
        state = sqlstate(error)
        if state.startswith(REFUSED):
            return StoreUnusable(f"{self.name} refuses access ({error}): correct store.url, or the server's rights")
        if is_damage(error):
            return StoreUnusable(f"{self.name} is damaged ({error}): restore a backup")
        if state:
            return StoreUnusable(f"{self.name} cannot be used ({error})")
        if not isinstance(error, ValueError):  # the client closed a connection
            return StoreUnavailable(self.text(error))
        return ConfigError(
            f"store.url {self.name!r} is not a PostgreSQL address: write postgresql://user@host/database"
        )

    def text(self, error: Exception) -> str:
        """Return one sentence for a fault of the server or the network."""
        if sqlstate(error) == "53100":
            return f"the disk of {self.name} is full: free some space there"
        if sqlstate(error) and not sqlstate(error).startswith("08"):
            return f"{self.name} cannot serve requests now ({error})"
        return f"{self.name} cannot be reached ({str(error) or type(error).__name__}): check the server and the network"


def sqlstate(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_fault(error: Exception) -> bool:
    """Tell whether the error is temporary: the network, the server, or a conflicting transaction."""
    return isinstance(error, OSError) or sqlstate(error).startswith(FAULTS)


def is_damage(error: Exception) -> bool:
    """Tell whether the server found its own files damaged."""
    return sqlstate(error) in DAMAGED


def is_conflict(error: Exception) -> bool:
    return sqlstate(error) in CONFLICTS
