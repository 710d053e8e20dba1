"""The local Telegram in a process of its own, which outlives a killed gateway, and the client that controls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx2

from everturn.testing.waiting import WAIT_S

PROGRAM = (sys.executable, "-P", "-m", "everturn.testing.telegram")


class TelegramProcess:
    """`python -m everturn.testing.telegram`: `with TelegramProcess() as telegram`."""

    def __init__(self, state: Path | None = None, port: int = 0) -> None:
        self._command = [*PROGRAM, "--port", str(port), *(["--state", str(state)] if state else [])]
        self._process: subprocess.Popen[str] | None = None
        self._client = httpx2.Client(timeout=WAIT_S, verify=False)
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)  # noqa: S603  ourselves
        output = self._process.stdout
        self.url = output.readline().partition("listening on ")[2].strip() if output else ""
        if not self.url:
            raise RuntimeError("the local Telegram does not listen; see its standard error")
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def act(self, who: str, does: str, **how: Any) -> Any:
        """Let a person do something."""
        return self._post("/control/people", {"who": who, "does": does, "with": how})["result"]

    def person(self, who: str) -> int:
        """The id of a person, which is also that of their chat with the bot."""
        number: int = self._post("/control/people", {"who": who})["id"]
        return number

    def fail(self, *faults: dict[str, Any]) -> None:
        """Order faults."""
        self._post("/control/faults", list(faults))

    def clear_faults(self) -> None:
        """Remove the faults that were not met."""
        self._client.delete(f"{self.url}/control/faults").raise_for_status()

    def texts(self, chat: int) -> list[str]:
        """The texts of the bot that a person sees there."""
        found: list[str] = self._client.get(f"{self.url}/control/screens/{chat}").raise_for_status().json()
        return found

    def calls(self) -> list[dict[str, Any]]:
        """Every request of the bot."""
        found: list[dict[str, Any]] = self._client.get(f"{self.url}/control/calls").raise_for_status().json()
        return found

    def _post(self, path: str, order: object) -> Any:
        return self._client.post(f"{self.url}{path}", json=order).raise_for_status().json()
