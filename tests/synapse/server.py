"""Synapse in a process of its own: started when it is ready, killed like a machine that fails, on the same data again.

Synapse itself reports that it is ready, as to systemd: nobody polls a port.
"""

import base64
import hashlib
import hmac
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.postgres import free_port, memory
from tests.synapse.people import Person
from tests.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
NAME = "everturn.test"
STARTS_WITHIN_S = 4 * WAIT_S  # a large program
UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}
LOGS = {
    "version": 1,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"error": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"level": "WARNING", "handlers": ["error"]},
    "disable_existing_loggers": False,
}


@dataclass(frozen=True)
class Running:
    """The folder, port, secret and process id of a running server."""

    folder: str
    port: int
    secret: str
    pid: int


class SynapseServer:
    """One homeserver on a port of this machine, with its data in a folder of its own. People are made by `person`."""

    def __init__(self, running: Running | None = None, **settings: Any) -> None:
        """A new server, or one that another process started."""
        self.port = running.port if running else free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = Path(running.folder if running else tempfile.mkdtemp(prefix="everturn-synapse-", dir=memory()))
        self.secret = running.secret if running else secrets.token_hex(16)
        self.pid = running.pid if running else 0  # of the process, while it runs
        self._process: subprocess.Popen[bytes] | None = None
        self._people: dict[str, Person] = {}
        self._strangers = itertools.count(1)
        if running is None:
            self._write(settings)

    def known(self) -> Running:
        """How another process finds it."""
        return Running(str(self.folder), self.port, self.secret, self.pid)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self, *, shared: bool = False) -> None:
        """Return when it answers; starting a running server does nothing. One that is shared outlives this process."""
        if self.running():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (self.folder / "log").open("ab") as log:
            address = self.folder / "ready"
            address.unlink(missing_ok=True)
            ready.bind(str(address))
            ready.settimeout(0.5)
            command = [find_python(), "-m", "synapse.app.homeserver", "-c", str(self.folder / "homeserver.yaml")]
            environment = {"PATH": os.environ.get("PATH", ""), "NOTIFY_SOCKET": str(address)}
            if shared:
                detach = ["sh", "-c", 'setsid "$@" <&- >&2 & echo $!', "sh", *command]
                done = subprocess.run(
                    detach, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=log, check=True
                )
                self.pid = int(done.stdout)
            else:
                self._process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
                self.pid = self._process.pid
            self._until_told(ready)

    def kill(self) -> None:
        """Kill it, in the middle of whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it, and start it on the same port with the same data."""
        self.kill()
        self.start()

    def running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return bool(self.pid) and Path(f"/proc/{self.pid}").exists()

    def remove(self) -> None:
        """End it and delete its files."""
        self.kill()
        self.disconnect()
        shutil.rmtree(self.folder, ignore_errors=True)

    def disconnect(self) -> None:
        """End the connections of the people that this process made."""
        for person in self._people.values():
            person.close()
        self._people.clear()

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def memory_kb(self) -> int:
        """What the process holds at present (Linux)."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def person(self, name: str) -> Person:
        """Somebody of this name with an account here, always the same; the password is the name."""
        if name not in self._people:
            self._people[name] = Person(self.url, **self.register(name))
        return self._people[name]

    def stranger(self, name: str) -> Person:
        """Somebody of a name that nobody had, so that tests on one server do not meet each other's rooms."""
        return self.person(f"{name}-{os.getpid()}-{next(self._strangers)}".lower())

    def register(self, name: str, *, admin: bool = False) -> dict[str, str]:
        """A new account: user_id, access_token, device_id. By the shared secret, as an administrator does it.

        https://element-hq.github.io/synapse/latest/admin_api/register_api.html
        """
        with httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False) as client:
            nonce = client.get("/_synapse/admin/v1/register").json()["nonce"]
            parts = [nonce, name, name, "admin" if admin else "notadmin"]
            mac = hmac.new(self.secret.encode(), "\0".join(parts).encode(), hashlib.sha1).hexdigest()
            wanted = {"nonce": nonce, "username": name, "password": name, "admin": admin, "mac": mac}
            answer = client.post("/_synapse/admin/v1/register", json=wanted).raise_for_status().json()
        return {key: answer[key] for key in ("user_id", "access_token", "device_id")}

    def _until_told(self, ready: socket.socket) -> None:
        until = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < until and self.running():
            try:
                if b"READY=1" in ready.recv(1024):
                    return
            except TimeoutError:
                continue
        self.kill()
        raise RuntimeError(f"Synapse did not start: {self.log()}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(WAIT_S)
        elif self.pid:  # somebody else's child, who may be gone
            with suppress(ProcessLookupError):
                os.kill(self.pid, how)
        self._process, self.pid = None, 0

    def _write(self, settings: dict[str, Any]) -> None:
        """Its configuration; JSON is YAML, too."""
        seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_test {seed}\n", encoding="ascii")
        (self.folder / "logs.yaml").write_text(json.dumps(LOGS), encoding="utf-8")
        whole = configuration(self.folder, self.port, self.secret) | settings
        (self.folder / "homeserver.yaml").write_text(json.dumps(whole), encoding="utf-8")


def configuration(folder: Path, port: int, secret: str) -> dict[str, Any]:
    """On this machine alone, without limits, with passwords that are checked fast, and without what nobody here looks at (search,
    statistics, the directory of users, pushes): that is half of the work of a new room.
    """
    resources = [{"names": ["client"], "compress": False}]
    return {
        "server_name": NAME,
        "public_baseurl": f"http://127.0.0.1:{port}/",
        "pid_file": str(folder / "pid"),
        "listeners": [{"port": port, "type": "http", "bind_addresses": ["127.0.0.1"], "resources": resources}],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
        "log_config": str(folder / "logs.yaml"),
        "media_store_path": str(folder / "media"),
        "signing_key_path": str(folder / "signing.key"),
        "registration_shared_secret": secret,
        "macaroon_secret_key": secret,
        "form_secret": secret,
        "bcrypt_rounds": 4,
        "report_stats": False,
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "federation_domain_whitelist": [],
        "url_preview_enabled": False,
        "presence": {"enabled": False},
        "stats": {"enabled": False},
        "user_directory": {"enabled": False},
        "enable_search": False,
        "push": {"enabled": False},
        "caches": {"sync_response_cache_duration": "0s"},  # "what is new" means now, not two minutes ago
        "rc_message": UNLIMITED,
        "rc_registration": UNLIMITED,
        "rc_login": {"address": UNLIMITED, "account": UNLIMITED, "failed_attempts": UNLIMITED},
        "rc_admin_redaction": UNLIMITED,
        "rc_joins": {"local": UNLIMITED, "remote": UNLIMITED},
        "rc_joins_per_room": UNLIMITED,
        "rc_invites": {"per_room": UNLIMITED, "per_user": UNLIMITED, "per_issuer": UNLIMITED},
        "rc_room_creation": UNLIMITED,
        "rc_media_create": UNLIMITED,
    }


def find_python() -> str:
    """The interpreter that has Synapse: beside ours, or the one that EVERTURN_SYNAPSE names."""
    named = os.environ.get("EVERTURN_SYNAPSE")
    found = Path(named) if named else ROOT / ".venv-synapse" / "bin" / "python"
    if not found.exists():
        raise RuntimeError("Synapse is not installed: run `make .venv-synapse/.synapse`")
    return str(found)
