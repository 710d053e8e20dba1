"""The home: the directory of one gateway, its files, its API token, and the lock that admits one process at a time."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from everturn.errors import ConfigError, HomeLocked

log = logging.getLogger("everturn.home.folder")
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  nothing is bound: these are replaced
ASKING_S = 5.0
RETRY_S = 0.01


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a home, as it wrote into the lock file. `url` is empty until its server listens."""

    pid: int = 0
    host: str = ""
    started_at: float = 0.0
    url: str = ""

    def __str__(self) -> str:
        """As text, for a person."""
        if not self.pid:
            return "another process"
        since = datetime.fromtimestamp(self.started_at, UTC)
        address = f" at {self.url}" if self.url else ""
        return f"process {self.pid} on {self.host}{address}, since {since:%Y-%m-%d %H:%M:%S} UTC"


def reachable(url: str) -> str:
    """A gateway's URL for requests from this machine, also when it listens on every address."""
    parts = urlsplit(url)
    host = ANY_ADDRESS.get(parts.hostname or "", parts.hostname or "")
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{parts.port or 80}"


class Home:
    """The home directory and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.config_file = self.path / "everturn.toml"
        self.database = self.path / "everturn.db"
        self.token_file = self.path / "api_token"
        self.lock_file = self.path / "gateway.lock"
        self.supervisor_file = self.path / "supervisor.lock"
        self.files = self.path / "files"

    @classmethod
    def find(cls, given: Path | None, env: Mapping[str, str]) -> Self:
        """The home of this command: the given path, `$EVERTURN_HOME`, or `~/.everturn`."""
        return cls(given or Path(env.get("EVERTURN_HOME") or "~/.everturn"))

    def create(self) -> None:
        """Make the directory, for its owner only, unless it exists."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = "a file is in its place" if self.path.exists() else error.strerror
            raise ConfigError(f"the home {self.path} cannot be made: {reason}; choose another with --home") from error
        # A directory the user made may be shared on purpose: warn about its mode, do not change it.
        if os.name == "posix" and self.path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            log.warning("other users can write in the home %s; to change that: chmod go-w %s", self.path, self.path)

    def api_token(self) -> str:
        """The owner's token for the HTTP API, made at first use."""
        self.create()
        token = self._stored_token()
        if token:
            return token
        try:
            _write_new(self.token_file, secrets.token_urlsafe(32))
        except OSError as error:
            raise ConfigError(f"the API token {self.token_file} cannot be written: {error.strerror}") from error
        return self._stored_token()

    def _stored_token(self) -> str:
        try:
            _keep_private(self.token_file)
            token = self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise ConfigError(f"the API token {self.token_file} cannot be read: {error}") from error
        if not token:
            log.warning("the API token %s was empty; making a new one", self.token_file)
            self.token_file.unlink(missing_ok=True)
        return token


def _keep_private(file: Path) -> None:
    mode = stat.S_IMODE(file.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        file.chmod(0o600)
        log.warning("others could read %s (mode %o); it is owner-only now. Delete it to get a new token", file, mode)


def _write_new(file: Path, text: str) -> None:
    """Create a complete, owner-only file; one that another process just created stays."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(number)
        _rename_unless_there(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _rename_unless_there(draft: Path, file: Path) -> None:
    """Move the file, or leave it when the name is taken: a link fails then, as a rename does on Windows."""
    try:
        if os.name == "posix":
            os.link(draft, file)
        else:
            draft.rename(file)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        draft.replace(file)


if sys.platform == "win32":
    import msvcrt

    # Windows locks forbid reading, so the locked byte lies far behind the text.
    _LOCKED_BYTE = 1 << 30

    def _try_lock(number: int) -> bool:
        os.lseek(number, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _is_held(number: int) -> bool:
        # There are no shared locks here: only time tells a holder from another process that asks.
        for _ in range(20):
            if _try_lock(number):
                os.lseek(number, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(number, msvcrt.LK_UNLCK, 1)
                return False
            time.sleep(RETRY_S)
        return True
else:
    import fcntl

    def _try_lock(number: int, kind: int = fcntl.LOCK_EX) -> bool:
        try:
            fcntl.flock(number, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_held(number: int) -> bool:
        # A process that asks shares the lock, so processes that ask never take each other for a holder.
        if _try_lock(number, fcntl.LOCK_SH):
            fcntl.flock(number, fcntl.LOCK_UN)
            return False
        return True


def _lock(number: int) -> bool:
    """Take the lock; False as soon as it has a holder. A process that only asks delays us for a moment."""
    until = time.monotonic() + ASKING_S
    while not _try_lock(number):
        if _is_held(number) or time.monotonic() > until:
            return False
        time.sleep(RETRY_S)
    return True


def _opened(file: Path, flags: int) -> int:
    # Python opens files as not inheritable: no program that we start gets this one.
    try:
        return os.open(file, flags, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"the lock {file} cannot be opened: {error.strerror}") from error


def _read_holder(number: int) -> Holder:
    os.lseek(number, 0, os.SEEK_SET)
    try:
        return Holder(**json.loads(os.read(number, 4096).split(b"\n")[0]))
    except (ValueError, TypeError):
        return Holder()


def holder(home: Home) -> Holder | None:
    """The process that holds the home now. None when its lock is free, whatever the file says: a pid proves nothing."""
    return _holder_of(home.lock_file)


def supervisor(home: Home) -> Holder | None:
    """The supervisor of this home, also in the pause before the next start of the gateway."""
    return _holder_of(home.supervisor_file)


def _holder_of(file: Path) -> Holder | None:
    try:
        number = _opened(file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _read_holder(number) if _is_held(number) else None
    finally:
        os.close(number)


class _FileLock:
    """A lock on a file, held while its descriptor is open."""

    _number = -1

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes lock two files of one name."""
        if self._number >= 0:
            os.ftruncate(self._number, 0)
            self.forget()

    def forget(self) -> None:
        """Close our end without unlocking: in a forked child the parent keeps the lock."""
        number, self._number = self._number, -1
        _HELD.discard(self)
        if number >= 0:
            os.close(number)


class HomeLock(_FileLock):
    """The lock of a home, or of its supervisor. The operating system releases it when the process ends, however it
    ends.
    """

    def __init__(self, home: Home, file: Path | None = None) -> None:
        self._home = home
        self._file = file or home.lock_file
        self._holder = Holder()

    def acquire(self) -> Self:
        """Take the lock, or raise HomeLocked with the process that holds it."""
        self._home.create()
        number = _opened(self._file, os.O_RDWR | os.O_CREAT)
        if not _lock(number):
            other = _read_holder(number)
            os.close(number)
            raise HomeLocked(
                f"the home {self._home.path} is locked by {other}; to end it: everturn stop --home {self._home.path}"
            )
        self._number = number
        _HELD.add(self)
        self._write(Holder(pid=os.getpid(), host=socket.gethostname(), started_at=time.time()))
        return self

    def update(self, url: str) -> None:
        """Write the gateway's address into the lock file."""
        self._write(replace(self._holder, url=url))

    def _write(self, holder: Holder) -> None:
        self._holder = holder
        line = json.dumps(asdict(holder)).encode() + b"\n"
        try:
            os.lseek(self._number, 0, os.SEEK_SET)
            os.write(self._number, line)
            os.ftruncate(self._number, len(line))
        except OSError as error:  # a full disk: we hold the lock all the same
            log.warning("cannot write the holder of the home into %s: %s", self._file, error.strerror)

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class CredentialLock(_FileLock):
    """The lock of a credential on this machine, whatever the home: a file named by the secret's hash, in the user's own
    folder. The operating system releases it when the process ends.
    """

    def __init__(self, folder: Path, secret_hash: str, home: str) -> None:
        self._file = folder / f"{secret_hash}.lock"
        self._home = home

    def acquire(self) -> str | None:
        """Take the lock. Returns None if it is ours, else its holder as text. Without the folder, log a warning and go on."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = _opened(self._file, os.O_RDWR | os.O_CREAT)
        except (OSError, ConfigError) as error:
            log.warning("cannot check whether another process on this machine uses the credential: %s", error)
            return None
        if not _lock(number):
            os.lseek(number, 0, os.SEEK_SET)
            other = os.read(number, 4096).decode(errors="replace").strip()
            os.close(number)
            return other or "another process"
        self._number = number
        _HELD.add(self)
        try:
            os.ftruncate(number, 0)
            os.write(number, f"process {os.getpid()} on {socket.gethostname()} with the home {self._home}\n".encode())
        except OSError as error:  # a full disk: we hold the lock all the same
            log.warning("cannot write the user of the credential into %s: %s", self._file, error.strerror)
        return None


def credentials_folder(env: Mapping[str, str]) -> Path:
    """The folder in which the gateways of one user on this machine lock their credentials."""
    return Path(env.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "everturn" / "credentials"


_HELD: set[_FileLock] = set()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
