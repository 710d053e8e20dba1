"""A small disk of its own for a test: a tmpfs in a mount namespace, which can be filled, freed and made read-only.

A process that waits for the end of its input holds the namespace, so that nothing is left when the test is gone. Without
root a user namespace gives the right to mount.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.waiting import WAIT_S

CHUNKS = (1 << 20, 1 << 12, 1)


class SmallDisk:
    """The disk at `path`, which only programs with our `prefix` see there; we see it at `seen`."""

    def __init__(self, path: Path, kib: int = 65_536) -> None:
        self.path = path
        self._mount = f'mount -t tmpfs -o size={kib}k,mode=700 tmpfs "$1" && echo mounted && exec cat'

    async def __aenter__(self) -> Self:
        self.path.mkdir()
        own = [] if os.getuid() == 0 else ["--map-root-user"]
        self._holder = await asyncio.create_subprocess_exec(
            "unshare", *own, "--mount", "sh", "-c", self._mount, "sh", str(self.path),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert await asyncio.wait_for(self._holder.stdout.readline(), WAIT_S) == b"mounted\n"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        await self._holder.wait()

    @property
    def prefix(self) -> list[str]:
        """What makes a program see the disk."""
        own = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._holder.pid), *own, "--mount", "--"]

    @property
    def seen(self) -> Path:
        """Where we see it."""
        return Path(f"/proc/{self._holder.pid}/root") / self.path.relative_to("/")

    def fill(self) -> None:
        """Take every byte that is left."""
        with (self.seen / "ballast").open("ab", buffering=0) as file:
            for size in CHUNKS:
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Give it back."""
        (self.seen / "ballast").unlink()

    async def run(self, *command: str) -> None:
        """Run a program that sees the disk."""
        process = await asyncio.create_subprocess_exec(*self.prefix, *command)
        assert await process.wait() == 0, command

    async def make_read_only(self) -> None:
        """Refuse every write from now on."""
        await self.run("mount", "-o", "remount,bind,ro", str(self.path))
