"""A real PostgreSQL server for tests, crash tests and benchmarks: started, stopped and killed at will.

Knows nothing of pytest, so that `bench` and child processes can use it too.
"""

import atexit
import fcntl
import io
import itertools
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Self

import asyncpg
import uvloop

from tests.waiting import read_until

OUR_FIRST_PORT = 20_000
DATABASES = itertools.count(1)  # of this process, on whatever server
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname=current_database() AND pid<>pg_backend_pid() AND backend_type='client backend'"
)
OUR_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname='public' AND tablename<>'everturn_schema' ORDER BY 1"
Rows = dict[str, bytes]  # by table, as PostgreSQL copies them
StopMode = Literal["smart", "fast", "immediate"]

SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "max_connections": "200",
    "logging_collector": "off",
    "log_checkpoints": "off",
}
# Safe against the death of any process, not of the machine: WAL still reaches the kernel at each commit.
FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
# Tests connect thousands of times and store little: what each new connection maps and reports costs more than what it asks.
FAST_SETTINGS |= {"shared_buffers": "16MB", "track_counts": "off", "update_process_title": "off"}
FAST_SETTINGS |= {"wal_level": "minimal", "max_wal_senders": "0"}


class PostgresServer:
    """One server in a directory of its own. `durable` keeps fsync on: for benchmarks, not for ordinary tests."""

    def __init__(self, *, durable: bool = False, made: tuple[Path, int] | None = None) -> None:
        """A new server, or the one that another process made in this directory, on this port."""
        self._programs = find_programs()
        self._account = unprivileged_account()
        self.directory, self.port = made or (make_directory(self._account, None if durable else memory()), free_port())
        if made is None:
            self._create_cluster({**SETTINGS, **({} if durable else FAST_SETTINGS), "port": str(self.port)})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Return when the server accepts connections; starting a running server does nothing."""
        if not self.running():
            self._control("start", "--log", str(self.directory / "log"))

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop it; `immediate` is a crash: the next start recovers from the WAL."""
        if self.running():
            self._control("stop", "--mode", mode)

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def running(self) -> bool:
        return self._run("pg_ctl", "status", "--pgdata", str(self._data), check=False).returncode == 0

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template0") -> str:
        """The url of a new database, empty or a copy of the database named `template`."""
        name = f"everturn_{os.getpid()}_{next(DATABASES)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop it whoever is still connected."""
        self.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run one statement outside any event loop; rows come back as unaligned text."""
        options = ("--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
        return self._run("psql", *options, "--command", statement, self.url(database)).stdout

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _create_cluster(self, settings: dict[str, str]) -> None:
        self._run("initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", str(self._data))
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", *arguments, "--wait", "--silent", "--pgdata", str(self._data))

    def _run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = run_as(self._account, [str(self._programs / program), *arguments], self.directory)
        if check and done.returncode != 0:
            raise RuntimeError(f"{program} {arguments[0]} failed: {done.stdout}{done.stderr}")
        return done


def find_programs() -> Path:
    """The folder that holds initdb, pg_ctl and psql: where PATH says, else Debian's newest version."""
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version_of, reverse=True)
    for folder in [*debian, *([Path(on_path).parent] if on_path else [])]:
        if all((folder / program).exists() for program in ("initdb", "postgres", "pg_ctl", "psql")):
            return folder
    raise RuntimeError("PostgreSQL's server programs were not found: run scripts/setup-test")


def version_of(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.parent.name)]


def unprivileged_account() -> pwd.struct_passwd | None:
    """The account that runs the server: PostgreSQL refuses root. None means our own."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name: account for account in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def memory() -> str | None:
    """A folder that no disk slows down, where there is one: what a killed process wrote there stays."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


def make_directory(account: pwd.struct_passwd | None, wanted: str | None = None) -> Path:
    """A fresh directory that `account` owns and can reach."""
    parents = [*([wanted] if wanted else []), tempfile.gettempdir(), "/var/tmp"]
    parent = next((parent for parent in parents if account is None or reachable_by_all(Path(parent))), parents[0])
    directory = Path(tempfile.mkdtemp(prefix="everturn-postgres-", dir=parent))
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    return directory


def reachable_by_all(directory: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in (directory, *directory.resolve().parents))


def run_as(
    account: pwd.struct_passwd | None, command: Sequence[str], directory: Path
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    user, group = (account.pw_uid, account.pw_gid) if account else (None, None)
    return subprocess.run(
        command,
        cwd=directory,
        env={**environment, "LC_ALL": "C"},
        user=user,
        group=group,
        extra_groups=None if account is None else [],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def free_port() -> int:
    """A port on which nobody listens and that is ours as long as this process lives.

    The system gives it to nobody, as it does with a port that was free a moment ago, and no other worker takes it: a
    server may begin late on it, or be down for a while.
    """
    tried = random.SystemRandom().sample(range(OUR_FIRST_PORT, systems_first_port()), 100)
    for port in tried:
        if claimed(port) and unused(port):
            return port
    raise RuntimeError(f"of 100 ports from {OUR_FIRST_PORT} on none is free")


def systems_first_port() -> int:
    """From here on the system gives ports to whoever does not ask for a certain one."""
    known = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(known.read_text().split()[0]) if known.exists() else 32_768
    return max(first, OUR_FIRST_PORT + 1_000)


def claimed(port: int) -> bool:
    """Whether it is ours among the tests that run on this machine now: their locks end with them."""
    folder = Path(tempfile.gettempdir()) / f"everturn-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    number = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return False
    return True


def unused(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def empty_database(url: str) -> None:
    """Every row gone, as in a new database, and nobody else connected; the schema stays. Far cheaper than a new one."""
    caretaker(url).erase()


@cache
def caretaker(url: str) -> "Caretaker":
    """Of this database, in this process."""
    return Caretaker(url)


class Caretaker:
    """Empties and fills one database again and again, outside any event loop, over a connection that stays: a new one costs more
    than the rest.
    """

    def __init__(self, url: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(url))
        atexit.register(self._close)

    def erase(self) -> None:
        """Returns when it is empty."""
        self._loop.run_until_complete(self._erase())

    def rows(self) -> Rows:
        """Everything that is committed."""
        return self._loop.run_until_complete(self._rows())

    def put(self, rows: Rows) -> None:
        """Have these rows and no others."""
        self._loop.run_until_complete(self._put(rows))

    async def _rows(self) -> Rows:
        found: Rows = {}
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            tables = [row[0] for row in await self._connection.fetch(OUR_TABLES)]
            filled = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {name})" for name in tables)
            for (name,) in await self._connection.fetch(filled):
                copied = io.BytesIO()
                await self._connection.copy_from_table(name, output=copied, format="binary")
                found[name] = copied.getvalue()
        return found

    async def _put(self, rows: Rows) -> None:
        await self._erase()
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL session_replication_role = replica")  # whatever refers to what
            for name, copied in rows.items():
                await self._connection.copy_to_table(name, source=io.BytesIO(copied), format="binary")

    async def _erase(self) -> None:
        # Until the last of them is gone: it may be committing, and as long as it lives an instance counts as alive.
        await read_until(lambda: self._connection.fetch(END_OTHERS), lambda ended: not ended, every_s=0.001)
        tables = [row[0] for row in await self._connection.fetch(OUR_TABLES)]
        # Deleting few rows is ten times faster than TRUNCATE, which makes new files; in one go, as each wait costs.
        if tables:
            await self._connection.fetch(
                f"WITH {', '.join(f'{name}_gone AS (DELETE FROM {name})' for name in tables)} SELECT 1"
            )

    def _close(self) -> None:
        self._connection.terminate()
        self._loop.close()
