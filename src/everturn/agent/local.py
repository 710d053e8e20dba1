"""The agent of `kind = "local"`: plain talk goes to a real model on this machine, `work` and `crash` to the demo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from everturn.agent.demo import is_for_demo
from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.agent.local_server import Address, LocalServer
from everturn.errors import Unanswerable

MODEL = "smollm2-135m-instruct"
# Tried among others on plain questions: a model of this size wanders off with most words, also with those it was trained with.
INSTRUCTIONS = "You are a helpful AI assistant. You always answer in English."
MOST_OUTPUT_TOKENS = 300

MakeAgent = Callable[[Address], Agent]
"""Makes the agent that talks to the model at an address; called in a thread, for it loads its libraries."""


@runtime_checkable
class _CanClose(Protocol):
    async def close(self) -> None: ...


class LocalAgent:
    """Shows recovery through the demo's words, and speaks for the rest through a model that needs no key and no network."""

    def __init__(self, demo: Agent, server: LocalServer, make: MakeAgent) -> None:
        self._demo = demo
        self._server = server
        self._make = make
        self._talking: tuple[Address, Agent] | None = None
        self._making = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer with the demo or with the model. Raises Unanswerable, with words for the user, when the model is down."""
        if is_for_demo(turn.words):
            return await self._demo.run(turn)
        agent = await self._agent(await self._server.address())
        return await agent.run(turn)

    def start(self) -> None:
        """Begin to load the model and its libraries, so that the first message finds them ready."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="local-agent")

    async def close(self) -> None:
        """End the model's process."""
        if self._warming is not None:
            self._warming.cancel()
            with suppress(asyncio.CancelledError):
                await self._warming
        await self._let_go()
        await self._server.close()

    async def _warm(self) -> None:
        with suppress(Unanswerable):  # who writes is told
            await self._agent(await self._server.address())

    async def _agent(self, address: Address) -> Agent:
        """The agent for this address; another one only when the model had to move to another port."""
        async with self._making:
            if self._talking is None or self._talking[0] != address:
                await self._let_go()
                self._talking = (address, await asyncio.to_thread(self._make, address))
            return self._talking[1]

    async def _let_go(self) -> None:
        talking, self._talking = self._talking, None
        if talking is not None and isinstance(talking[1], _CanClose):
            await talking[1].close()
