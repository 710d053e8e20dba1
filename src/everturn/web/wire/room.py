"""Open files for connections: raises the limit of the process, and lets TCP keepalive close connections whose peer
is gone.
"""

from __future__ import annotations

import contextlib
import socket
import sys

SPARE = 512  # open files for everything else: the store, models, tools
LEAST = 64  # however low the limit is
IDLE_S, EVERY_S, TIMES = 30, 10, 3  # TCP keepalive probes to a silent peer
UNHEARD_MS = 60_000  # how long sent data may stay unacknowledged


if sys.platform == "win32":

    def room_for(connections: int) -> int:
        """Return `connections`: Windows has no such limit."""
        return connections
else:
    import resource

    def room_for(connections: int) -> int:
        """Raise the limit of open files for this many connections. Returns how many connections fit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed, wanted = (_many(soft), connections + SPARE)
        if allowed < wanted:
            with contextlib.suppress(ValueError, OSError):  # it stays as it is
                resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(wanted, _many(hard))), hard))
            allowed = _many(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        return int(min(connections, max(LEAST, allowed - SPARE)))

    def _many(limit: int) -> float:
        return float("inf") if limit == resource.RLIM_INFINITY else limit


def enable_keepalive(listener: socket.socket) -> None:
    """Let the system close connections whose peer is gone without a FIN; accepted sockets inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": EVERY_S, "TCP_KEEPCNT": TIMES, "TCP_USER_TIMEOUT": UNHEARD_MS}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            with contextlib.suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, option, value)
