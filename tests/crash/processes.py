"""Lives as processes: forked from a clean server, so that a death costs milliseconds and no thread is inherited. A life in which
nothing dies needs no process of its own: it is what a gateway does that starts where another one died, wherever it runs.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from everturn import points
from tests.crash.lives import DONE, Life, live, play
from tests.waiting import WAIT_S

# There is one such server for all who use it in a process, and one list: what is not on it every child imports anew.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.crash.lives",
        "tests.crash.random_lives",
        "tests.crash.scenarios",
        "tests.crash.models",
        "tests.crash.asking",
        "tests.crash.matrix_lives",
        "tests.crash.telegram_lives",
        "tests.crash.streaming",
        "everturn.store.sqlite",
        "everturn.store.postgres",
        # What the first request to a model would import.
        "pydantic_ai.providers.openai",
        "openai.resources.chat.completions.completions",
        "genai_prices.data",
        "anyio._backends._asyncio",
        "jiter",
    ]
)
LONGEST_S = 4 * WAIT_S  # longer than any of them waits itself


def run_process(target: Callable[..., None], *args: object) -> int:
    """Another kind of life, to its end; the exit code."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    process.join(LONGEST_S)
    code = process.exitcode
    process.kill()
    process.join()
    process.close()
    return -1 if code is None else code


def run_here(life: Coroutine[Any, Any, int]) -> int:
    """Live a life without a death in this process; what would be its exit code. What still runs of one that failed is abandoned."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        code = runner.run(life)
    finally:
        points.install(None)
    if code == DONE:
        runner.close()
    return code


def run_life(life: Life) -> int:
    """Live it to its end; the exit code. An agent that asks a model keeps connections, which the end of a process closes."""
    return run_lives([life])[0] if life.death or life.asked else run_here(play(life))


def run_lives(lives: Sequence[Life]) -> list[int]:
    """Live them at the same time."""
    processes = [CONTEXT.Process(target=live, args=(life,)) for life in lives]
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
