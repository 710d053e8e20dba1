"""The servers that all processes of one test run share: one PostgreSQL, one Synapse.

The first test that needs one starts it, whichever worker that is; the process that began the run ends them. What a run that
was killed left behind is ended by the next one.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.postgres import PostgresServer
from tests.synapse import Running, SynapseServer

FOLDER = "EVERTURN_TEST_SERVERS"  # the variable by which workers find the folder of their run
PREFIX = "everturn-servers-"


class Run:
    """The servers of one test run, kept by the process that began it."""

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            end_if_abandoned(left)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = lock(self.folder / "run", wait=True)
        os.environ[FOLDER] = str(self.folder)

    def end(self) -> None:
        """End every server that was started, and forget the run."""
        end_all(self.folder)
        os.environ.pop(FOLDER, None)
        if self._lock is not None:
            os.close(self._lock)


def shared_postgres() -> PostgresServer:
    """The run's PostgreSQL, running. Nobody stops it: a test that wants to has a server of its own."""
    with started("postgres") as known:
        if known is not None:
            return PostgresServer(made=(Path(known["directory"]), known["port"]))
        server = PostgresServer()
        server.start()
        remember("postgres", {"directory": str(server.directory), "port": server.port})
        return server


def shared_synapse() -> SynapseServer:
    """The run's homeserver, running. Nobody stops it: a test that wants to has a server of its own."""
    with started("synapse") as known:
        if known is not None:
            return SynapseServer(Running(**known))
        server = SynapseServer()
        server.start(shared=True)
        remember("synapse", asdict(server.known()))
        return server


@contextmanager
def started(name: str) -> Iterator[dict[str, Any] | None]:
    """The address of a server that runs already, or None for the caller that starts it now; others wait until it runs."""
    number = lock(folder() / f"{name}.lock", wait=True)
    assert number is not None
    try:
        file = folder() / f"{name}.json"
        yield json.loads(file.read_text()) if file.exists() else None
    finally:
        os.close(number)


def remember(name: str, how: dict[str, Any]) -> None:
    (folder() / f"{name}.json").write_text(json.dumps(how))


def folder() -> Path:
    return Path(os.environ[FOLDER])


def lock(file: Path, *, wait: bool) -> int | None:
    """A file's lock, which ends with this process at the latest; None where somebody else has it."""
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(number)
        return None
    return number


def end_if_abandoned(left: Path) -> None:
    """End the servers of a run whose process is gone. One that does not end is left alone: it is no part of this run."""
    with suppress(OSError, RuntimeError):
        number = lock(left / "run", wait=False)
        if number is not None:
            end_all(left)
            os.close(number)


def end_all(left: Path) -> None:
    """End the servers that are remembered in this folder."""
    for file in left.glob("*.json"):
        known = json.loads(file.read_text())
        if file.stem == "postgres":
            PostgresServer(made=(Path(known["directory"]), known["port"])).remove()
        else:
            SynapseServer(Running(**known)).remove()
    shutil.rmtree(left, ignore_errors=True)
