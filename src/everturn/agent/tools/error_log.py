"""The log of what an MCP server's program writes to its standard error."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from everturn.agent.rules.secrets import scrub
from everturn.clock import Clock
from everturn.turns.rules.approvals import exact

log = structlog.get_logger()
LINE_CHARS = 1_000
BUFFERED_BYTES = 8_000  # more than a logged line may have: a secret is removed before its line is cut
WINDOW_S = 60.0
WINDOW_LINES = 200  # a program that writes without end must not fill the disk with our log


class ErrorLog:
    """Logs each line of a program's standard error as one event: bounded in length and number, without secrets."""

    def __init__(self, server: str, secrets: Iterable[str], clock: Clock) -> None:
        self._server = server
        self._secrets = sorted({line for secret in secrets for line in secret.splitlines()}, key=len, reverse=True)
        self._clock = clock
        self._line = bytearray()
        self._window_began = clock.monotonic()
        self._logged = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Take what the program wrote; complete lines are logged."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._keep(piece)
            self._log_line()
        self._keep(rest)

    def close(self) -> None:
        """Log a last line that has no end, and how many lines were left out."""
        self._log_line()
        self._begin_window()

    def _keep(self, piece: bytes) -> None:
        self._line += piece[: BUFFERED_BYTES - len(self._line)]

    def _log_line(self) -> None:
        text = self._line.decode(errors="replace").strip()
        self._line.clear()
        if not text:
            return
        if self._clock.monotonic() - self._window_began >= WINDOW_S:
            self._begin_window()
        if self._logged == WINDOW_LINES:
            self._left_out += 1
            return
        self._logged += 1
        log.info("mcp_server_stderr", server=self._server, line=exact(scrub(text, self._secrets))[:LINE_CHARS])

    def _begin_window(self) -> None:
        if self._left_out:
            log.warning("mcp_server_stderr_left_out", server=self._server, lines=self._left_out)
        self._window_began, self._logged, self._left_out = self._clock.monotonic(), 0, 0
