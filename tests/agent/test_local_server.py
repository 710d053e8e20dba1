"""The process of the local model, with the real model: ready, closed to others, started again, and never outliving us."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from everturn.agent.local import Address, LocalServer, LocalSettings, free_threads, missing, weights
from everturn.agent.local_program import FIRST_TO_END
from everturn.clock import SystemClock
from everturn.errors import Unanswerable
from everturn.testing import ManualClock
from tests.waiting import WAIT_S, poll, within

LOADED_S = 8 * WAIT_S  # a real model is loaded, on whatever machine this is
QUESTION = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12}
PARENT = """
import asyncio
from everturn.agent.local import LocalServer
from everturn.clock import SystemClock

async def main():
    server = LocalServer(SystemClock())
    print((await server.address()).url, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
SAYS_ADDRESS = (
    'import sys; sys.stdin.readline(); print(\'{"url": "http://127.0.0.1:1"}\', flush=True); sys.stdin.read()'
)


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    served = LocalServer(SystemClock())
    yield served
    await served.close()


async def ask(address: Address, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {address.key if key is None else key}"}
    async with httpx.AsyncClient(timeout=LOADED_S, trust_env=False) as client:
        return await client.post(f"{address.url}/v1/chat/completions", json=QUESTION, headers=headers)


def score_of(pid: int | str | None) -> int | None:
    """How early Linux ends a process when memory runs out; other systems do not say."""
    file = Path(f"/proc/{pid}/oom_score_adj")
    return int(file.read_text()) if file.exists() else None


def program(text: str, **settings: float) -> tuple[LocalServer, ManualClock]:
    """A server whose program is this text, on a clock that is moved by hand."""
    clock = ManualClock()
    wanted = LocalSettings(**settings)  # type: ignore[arg-type]
    return LocalServer(clock, wanted, [sys.executable, "-c", text], lambda: None), clock


async def refuses(url: str) -> bool:
    """Whether nobody listens there."""
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False  # it is just ending
    writer.close()
    return False


def test_everything_it_needs_is_installed() -> None:
    found = weights()
    assert (missing(), found and found.suffix) == (None, ".gguf")


async def test_the_model_answers_whoever_knows_the_key_on_loopback(server: LocalServer) -> None:
    address = await server.address()
    answer = await ask(address)
    refused = await ask(address, "guessed")
    assert address.url.startswith("http://127.0.0.1:")
    assert answer.json()["choices"][0]["message"]["content"].strip()
    assert refused.status_code == 401
    assert address.key not in repr(address)
    assert "xllamacpp" not in sys.modules


@pytest.mark.prove
async def test_a_model_that_dies_is_started_again_at_the_same_address(server: LocalServer) -> None:
    address, pid = await server.address(), server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSEGV)
    await poll(lambda: server.pid not in {None, pid}, LOADED_S, seen=lambda: server.pid)
    assert await server.address() == address
    assert (await ask(address)).status_code == 200


@pytest.mark.prove
async def test_when_memory_runs_out_the_model_ends_before_the_gateway(server: LocalServer) -> None:
    await server.address()
    ours, its = await asyncio.to_thread(lambda: (score_of("self"), score_of(server.pid)))
    assert its == (None if ours is None else max(FIRST_TO_END, ours))


@pytest.mark.prove
async def test_the_model_ends_with_a_killed_gateway() -> None:
    pipe = asyncio.subprocess.PIPE
    parent = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", PARENT, stdout=pipe, stderr=pipe)
    assert parent.stdout is not None
    url = ""
    async with within(LOADED_S, lambda: url):
        while not (url := (await parent.stdout.readline()).decode().strip()).startswith("http"):
            pass
    parent.kill()
    await parent.communicate()
    async with within(WAIT_S, lambda: f"{url} still answers"):
        while not await refuses(url):
            pass


async def test_closing_ends_it_and_asking_again_starts_it() -> None:
    served, _ = program(SAYS_ADDRESS)
    first = await served.address()
    await served.close()
    assert served.pid is None
    assert await served.address() == first
    await served.close()


async def test_a_program_that_fails_is_told_with_its_last_words_and_tried_later() -> None:
    served, clock = program("import sys; sys.exit('no memory left')", first_pause_s=30)
    for pause in (30, 60):
        with pytest.raises(Unanswerable, match=rf"code 1: no memory left\); the next start is in {pause} s"):
            await served.address()
        clock.advance(pause)
        await asyncio.sleep(0)  # it wakes
    await served.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [("print('hello')", "something else than its address"), ("import os; os.kill(os.getpid(), 9)", "by signal 9")],
)
async def test_a_strange_program_is_trouble_that_is_told(text: str, why: str) -> None:
    served, _ = program(text)
    with pytest.raises(Unanswerable, match=why):
        await served.address()
    await served.close()


async def test_a_program_that_is_never_ready_is_given_up() -> None:
    served, _ = program("import sys; sys.stdin.read()", ready_s=0.2)
    with pytest.raises(Unanswerable, match="was not ready within"):
        await served.address()
    await served.close()


async def test_a_package_that_is_not_installed_is_named_with_the_remedy() -> None:
    served = LocalServer(ManualClock(), lacks=lambda: "xllamacpp")
    with pytest.raises(Unanswerable, match="xllamacpp is missing; `make run` installs it"):
        await served.address()


async def test_a_program_that_does_not_exist_is_told() -> None:
    served = LocalServer(ManualClock(), program=["no-such-program"], lacks=lambda: None)
    with pytest.raises(Unanswerable, match="no-such-program"):
        await served.address()
    await served.close()


@pytest.mark.parametrize(
    ("last_s", "ran_s", "pause_s"), [(0, 0, 0.2), (0.2, 1, 0.4), (40, 1, 60), (60, 59, 60), (60, 60, 0.2)]
)
def test_the_pause_grows_until_a_run_was_healthy(last_s: float, ran_s: float, pause_s: float) -> None:
    assert LocalSettings().pause_s(last_s, ran_s) == pause_s


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (4, 3), (64, 4)])
def test_a_core_is_left_for_the_gateway(cores: int | None, threads: int) -> None:
    assert free_threads(cores) == threads
