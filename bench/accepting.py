"""Accepting messages over HTTP, of the api and of the page, against a bare hello handler on the same server under the same
load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

from bench.disk import folder
from bench.load import Load, MakeRequest, post, run
from bench.report import Line, at_least, say, shown
from bench.rounds import Block, Sample, in_turn, median_ratio, rate
from bench.running import Running
from bench.serving import HOST, TOKEN, bare, cookie_of, front_of, raw_hello, starlette_hello
from everturn.lifecycle.settings import Settings

METHOD = (
    "64 keep-alive connections from a process of its own post messages (16 to a chat, then the next chat); acknowledged after "
    "the commit, turns held back; against a Starlette route that answers hello to the same requests on the same server; "
    "in turn, ratio of neighbours, median; then with turns running. By the page: the same messages with a browser's cookie and origin"
)
ROUNDS = 4
BLOCK_S = 2.0
PER_CHAT = 16
SETTINGS = Settings(queue_per_session=64)
HELLO = "/api/hello/messages"


def message(connection: int, turn: int) -> bytes:
    """A new message; sixteen to each chat."""
    body = f'{{"id": "m{turn}", "text": "please look at this for me"}}'.encode()
    return post(HOST, f"/api/chats/c{connection}-{turn // PER_CHAT}/messages", TOKEN, body)


def hello(connection: int, turn: int) -> bytes:
    """The same to the bare handler."""
    body = f'{{"id": "m{turn}", "text": "please look at this for me"}}'.encode()
    return post(HOST, f"{HELLO}?{connection}", TOKEN, body)


def page_message(cookie: str, port: int, connection: int, turn: int) -> bytes:
    """The same as the page sends it."""
    body = f'{{"id": "m{turn}", "text": "please look at this for me"}}'.encode()
    own = f"{HOST}:{port}"
    head = f"POST /web/conversations/w{connection}-{turn // PER_CHAT}/messages HTTP/1.1\r\nHost: {own}\r\nOrigin: http://{own}\r\n"
    return f"{head}Cookie: {cookie}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def measure() -> list[Line]:
    """Held back, hello, raw hello in turn; then with turns running, whose backlog is worked off before the next block."""
    with folder() as path:
        async with AsyncExitStack() as stack:
            held = await Running.open(f"sqlite:///{path / 'held.db'}", api=True, settings=SETTINGS)
            busy = await Running.open(f"sqlite:///{path / 'busy.db'}", api=True, settings=SETTINGS)
            held.gateway.turns.close()
            hello_side = _side((await stack.enter_async_context(bare(starlette_hello(HELLO)))).port, hello)
            front = await stack.enter_async_context(front_of(held))
            sides = {
                "held": _side(front.port, message),
                "page": _side(front.port, partial(page_message, await cookie_of(front), front.port)),
                "hello": hello_side,
                "raw": _side((await stack.enter_async_context(bare(raw_hello))).port, hello),
            }
            samples = await in_turn(sides, ROUNDS)
            busy_side = _side((await stack.enter_async_context(front_of(busy))).port, message)
            with_turns = await in_turn({"busy": _then(busy_side, busy.idle), "hello": hello_side}, 2, warm_up=0)
        await held.abandon()
        await busy.abandon()
    return _lines(samples, with_turns)


async def held_and_hello(rounds: int) -> dict[str, list[Sample]]:
    """Only what `accept / hello` is made of, in turn."""
    with folder() as path:
        held = await Running.open(f"sqlite:///{path / 'held.db'}", api=True, settings=SETTINGS)
        held.gateway.turns.close()
        async with front_of(held) as front, bare(starlette_hello(HELLO)) as other:
            samples = await in_turn({"held": _side(front.port, message), "hello": _side(other.port, hello)}, rounds)
        await held.abandon()
    return samples


def accept_line(held: list[Sample], hello_: list[Sample]) -> Line:
    """What has a target."""
    return Line(name="accept / hello", value=median_ratio(held, hello_), target=at_least(0.6, aim=0.7))


def _then(measure_it: Block, after: Callable[[], Awaitable[None]]) -> Block:
    async def both() -> Sample:
        sample = await measure_it()
        await after()
        return sample

    return both


def _side(port: int, request: MakeRequest) -> Block:
    shifts = count(0, 1_000_000)
    return partial(_block, port, request, shifts)


async def _block(port: int, request: MakeRequest, shifts: count[int]) -> Sample:
    result = await run(Load(HOST, port, request, seconds=BLOCK_S, shift=next(shifts)))
    if set(result.statuses) - {200, 202, 429}:
        raise RuntimeError(f"unexpected answers: {result.statuses}")
    return Sample(result.requests, result.seconds, 0.0)


def _lines(samples: dict[str, list[Sample]], with_turns: dict[str, list[Sample]]) -> list[Line]:
    held, hello_, raw, busy = samples["held"], samples["hello"], samples["raw"], with_turns["busy"]
    rates = {
        "accept, turns held back": held,
        "accept by the page": samples["page"],
        "hello": hello_,
        "hello without Starlette": raw,
        "accept, turns running": busy,
    }
    for name, each in rates.items():
        say(f"  {name:24} {shown(rate(each)):>7} requests/s")
    return [
        Line(name="accepted a second, turns held back", value=rate(held), unit="/s"),
        Line(name="accepted a second by the page", value=rate(samples["page"]), unit="/s"),
        Line(name="accept by the page / hello", value=median_ratio(samples["page"], hello_)),
        accept_line(held, hello_),
        Line(name="accept / hello without Starlette", value=median_ratio(held, raw)),
        Line(name="accept with turns running / hello", value=median_ratio(busy, with_turns["hello"])),
    ]
