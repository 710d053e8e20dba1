"""A real `everturn run` as a child process: when it is ready, what it says, how much memory it takes, its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 0.002
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Child:
    """A started gateway."""

    process: subprocess.Popen[bytes]
    port: int
    home: Path
    started_at: float

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """One request; the status and the JSON answer."""
        token = (self.home / "api_token").read_text(encoding="utf-8").strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def wait_ready(self) -> float:
        """Seconds from its start until /ready answers 200."""
        while time.perf_counter() < self.started_at + PATIENCE_S:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._is_ready():
                    return time.perf_counter() - self.started_at
            if self.process.poll() is not None:
                raise RuntimeError(f"the gateway ended with {self.process.returncode}")
            time.sleep(LOOK_S)
        raise TimeoutError("the gateway was not ready in time")

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200


@contextlib.contextmanager
def gateway(home: Path, *, prefix: Sequence[str] = (), **settings: object) -> Iterator[Child]:
    """Start it, by a command that starts another one if there is a prefix; afterwards it is stopped, if it still runs."""
    port = free_port()
    command = [*prefix, sys.executable, "-P", "-m", "everturn", "run", "--home", str(home), "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN_")}
    env |= {"EVERTURN_AGENT_KIND": "demo"}
    env |= {f"EVERTURN_{name.upper()}": str(value) for name, value in settings.items()}
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        yield Child(process, port, home, began)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
