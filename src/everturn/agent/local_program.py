"""The process that serves the local model: separate, because a fault in native code ends the process it is in.

It reads one line of JSON (an order), loads the model, answers with one line of JSON (its address), and serves until its
standard input ends: so it ends with the gateway, even with a killed one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NICE = 5  # the gateway goes first on a busy machine
FIRST_TO_END = 800  # when memory runs out, Linux kills this process and not the gateway
PROMPT_CACHE_MIB = 64
SAMPLING = {"temp": 0.0}  # the likeliest token: with chance or a penalty a model this small loses the thread
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which model to serve, and how."""

    weights: str
    key: str  # clients must send it: a web page in a browser on this machine does not know it
    port: int  # 0: any free one
    threads: int
    slots: int
    context_tokens: int

    def line(self) -> bytes:
        """The order as the line of JSON that the program reads."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> None:
    """Serve the model until standard input ends."""
    answer = _own_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway, which may still need us to drain
    order = Order(**json.loads(sys.stdin.buffer.readline()))
    ends = threading.Thread(target=_end_with_input, daemon=True)
    ends.start()
    _step_back()
    server = _serve(order)
    os.write(answer, json.dumps({"url": server.listening_address}).encode() + b"\n")
    ends.join()


def _own_output() -> int:
    """Keep standard output for the address alone; what native code prints goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def _step_back() -> None:
    if hasattr(os, "nice"):
        os.nice(NICE)
    with suppress(OSError):  # only Linux knows it
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(max(FIRST_TO_END, int(score.read_text(encoding="ascii")))), encoding="ascii")


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def _serve(order: Order) -> Any:
    library: Any = importlib.import_module("xllamacpp")
    try:
        return library.Server(_parameters(library, order))
    except Exception:
        if order.port == 0:
            raise
        return library.Server(_parameters(library, order, port=0))  # somebody else took our port meanwhile


def _parameters(library: Any, order: Order, port: int | None = None) -> Any:
    wanted = library.CommonParams()
    wanted.model.path = order.weights
    wanted.hostnames = [LOOPBACK]
    wanted.port = order.port if port is None else port
    wanted.api_keys = [order.key]
    wanted.n_parallel = order.slots
    wanted.n_ctx = order.context_tokens * order.slots
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = order.threads
    wanted.cpuparams.poll = wanted.cpuparams_batch.poll = 0  # an idle model uses no processor
    wanted.cache_ram_mib = PROMPT_CACHE_MIB
    wanted.offline, wanted.ui, wanted.endpoint_slots = True, False, False
    wanted.cors_origins = ""
    wanted.verbosity = 0
    for name, value in SAMPLING.items():
        setattr(wanted.sampling, name, value)
    return wanted


if __name__ == "__main__":
    main()
