"""Runs gateways as processes: forked from a clean server, so that a death costs milliseconds and no thread is inherited. A
gateway that does not die needs no process of its own: it starts where another one died, wherever it runs.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from everturn import points
from tests.crash.gateway_process import DONE, CrashProcess, play, run_to_exit
from tests.waiting import WAIT_S

# There is one such server for all who use it in a process, and one list: what is not on it every child imports anew.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.crash.gateway_process",
        "tests.crash.random_processes",
        "tests.crash.scenarios",
        "tests.crash.models",
        "tests.crash.asking",
        "tests.crash.matrix_processes",
        "tests.crash.telegram_processes",
        "tests.crash.streaming",
        "everturn.store.sqlite",
        "everturn.store.postgres",
        "anyio._backends._asyncio",
    ]
)
LONGEST_S = 4 * WAIT_S  # longer than any of them waits itself


def run_process(target: Callable[..., None], *args: object) -> int:
    """Run a function as a process, to its end; the exit code."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    process.join(LONGEST_S)
    code = process.exitcode
    process.kill()
    process.join()
    process.close()
    return -1 if code is None else code


def run_here(gateway_process: Coroutine[Any, Any, int]) -> int:
    """Run a gateway without a death in this process; what would be its exit code. What still runs of a failed one is abandoned."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        code = runner.run(gateway_process)
    finally:
        points.install(None)
    if code == DONE:
        runner.close()
    return code


def run_gateway(gateway_process: CrashProcess) -> int:
    """Run it to its end; the exit code. An agent that calls a model keeps connections, which the end of a process closes."""
    return (
        run_gateways([gateway_process])[0]
        if gateway_process.death or gateway_process.asked
        else run_here(play(gateway_process))
    )


def run_gateways(gateways: Sequence[CrashProcess]) -> list[int]:
    """Run them at the same time; their exit codes."""
    processes = [CONTEXT.Process(target=run_to_exit, args=(gateway_process,)) for gateway_process in gateways]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONGEST_S)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
        process.close()
    return [-1 if code is None else code for code in codes]
