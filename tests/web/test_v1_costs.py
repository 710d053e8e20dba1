"""What a streamed call of a model through /v1 costs, in counts that do not depend on the machine. They only go down."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import httpx

from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from tests.agent.llm.scenes import Lines
from tests.raw_server import CHUNKED, END, RawConnection, RawServer, chunk
from tests.turn_costs import Meter
from tests.web.composition import AUTHORIZED, PLAIN, Web, running

TOKENS = 1_000
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
LOOKS = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c%d","type":"function","function":'
    b'{"name":"write","arguments":"{}"}}]},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
# A turn in a session that has a prompt: accepted and begun; what the agent reads; that the model is called, and again; its step, the
# tool's result and the answer; and what its program reads when it has ended.
STATEMENTS = 31
COMMITS = {"sqlite": 6, "postgresql": 9}  # on PostgreSQL three reads of several statements are transactions as well
MOST_EVENTS = 100  # of a thousand tokens that arrive together: one for each piece that the network makes of them


class Model:
    """Calls a tool first; then a thousand tokens at once, as fast servers send them."""

    def __init__(self) -> None:
        self._calls = count()

    async def __call__(self, connection: RawConnection) -> None:
        while True:
            await connection.request()
            told = b'"role":"tool"' in connection.bodies[-1].rpartition(b'"role":"user"')[2]
            said = TOKEN * TOKENS + LAST if told else LOOKS % next(self._calls)
            await connection.send(CHUNKED + chunk(said) + END)


@asynccontextmanager
async def programs(url: str, meter: Meter) -> AsyncIterator[tuple[Web, RawServer]]:
    async with RawServer(Model()) as server:
        agent = LlmAgent(LlmSettings(model="openai:m", base_url=f"{server.url}/v1"), [Lines()])
        async with running(url, agent, opened=meter.open) as web:
            yield web, server
        await agent.close()


async def frames(client: httpx.AsyncClient) -> list[str]:
    """A message in one session, until the stream has ended."""
    body = {"model": "main", "stream": True, "user": "ann", "messages": [{"role": "user", "content": "go on"}]}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        return [line async for line in response.aiter_lines() if line.startswith("data: ")]


async def test_a_call_costs_no_more_statements_and_commits_than_it_did(store_url: str) -> None:
    meter = Meter()
    async with programs(store_url, meter) as (web, server):
        async with httpx.AsyncClient(base_url=web.serving.url, headers=AUTHORIZED, **PLAIN) as client:

            async def turn() -> None:
                await frames(client)
                await web.world.gateway.turns.quiet()

            costs = await meter.of(turn, turns=3)
        assert len(server.connections) == 1
    print(*meter.statements_of_last, sep="\n")  # noqa: T201  for who looks why
    assert (costs.statements, costs.commits) == (STATEMENTS, COMMITS[store_url.partition(":")[0]])


async def test_tokens_that_arrive_together_travel_together(store_url: str) -> None:
    async with (
        programs(store_url, Meter()) as (web, _),
        httpx.AsyncClient(base_url=web.serving.url, headers=AUTHORIZED, **PLAIN) as client,
    ):
        seen = await frames(client)
    assert sum(each.count("word ") for each in seen) == TOKENS
    assert len(seen) < MOST_EVENTS
