"""A disk that fails when a test tells it to: an SQLite VFS on top of the real one."""

import asyncio
import itertools
import threading
from typing import Any

import apsw

from tests.waiting import WAIT_S

_numbers = itertools.count()


class FaultyDisk(apsw.VFS):
    """Actions are `read`, `write`, `sync` (after the data was really synced) and `open`.

    A fault in `faults` lasts until it is taken out; one in `once` is used up. `only` limits them to files with that suffix.
    """

    def __init__(self, only: str = "") -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.faults: dict[str, Exception] = {}
        self.once: dict[str, Exception] = {}
        self._only = only
        self._hits = threading.Semaphore(0)
        super().__init__(self.name, "")

    def excepthook(self, *_: object) -> bool:
        """SQLite asks in places where an error has nowhere to go."""
        return True

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  SQLite's name
        self.act("open", str(name.filename() if isinstance(name, apsw.URIFilename) else name))
        return FaultyFile(self, name, flags)

    def act(self, action: str, path: str) -> None:
        if not path.endswith(self._only):
            return
        fault = self.once.pop(action, None) or self.faults.get(action)
        if fault is not None:
            self._hits.release()
            raise type(fault)(*fault.args)

    async def hit(self, times: int = 1) -> None:
        """Wait until so many faults were met. From the second on, the first has been noticed."""
        for _ in range(times):
            assert await asyncio.to_thread(self._hits.acquire, timeout=WAIT_S)


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.act("read", self._path)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.act("write", self._path)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.act("sync", self._path)
