"""Room for connections: each is an open file, of which a process may have few unless it asks for more; and peers that
vanish without a word must not keep theirs.
"""

from __future__ import annotations

import contextlib
import socket
import sys

SPARE = 512  # open files for everything else: the store, models, tools
LEAST = 64  # however little room there is
IDLE_S, EVERY_S, TIMES = 30, 10, 3  # a silent peer is asked whether it is still there
UNHEARD_MS = 60_000  # so long may what was sent stay unconfirmed


if sys.platform == "win32":

    def room_for(connections: int) -> int:
        """As many as are wanted: there is no such limit there."""
        return connections
else:
    import resource

    def room_for(connections: int) -> int:
        """Ask for the open files that so many connections need; how many connections there is room for."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed, wanted = (_many(soft), connections + SPARE)
        if allowed < wanted:
            with contextlib.suppress(ValueError, OSError):  # it stays as it is
                resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(wanted, _many(hard))), hard))
            allowed = _many(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        return int(min(connections, max(LEAST, allowed - SPARE)))

    def _many(limit: int) -> float:
        return float("inf") if limit == resource.RLIM_INFINITY else limit


def notice_the_vanished(listener: socket.socket) -> None:
    """Let the system end connections whose other side is gone without a FIN; accepted sockets inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": EVERY_S, "TCP_KEEPCNT": TIMES, "TCP_USER_TIMEOUT": UNHEARD_MS}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            with contextlib.suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, option, value)
