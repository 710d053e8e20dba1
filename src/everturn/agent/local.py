"""The agent of `kind = "local"`: messages go to a real model on this machine, `work` and `crash` to the demo."""

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
# Tried among others on plain questions: a model of this size wanders off with most prompts, also with the one it was trained with.
INSTRUCTIONS = "You are a helpful AI assistant. You always answer in English."
MOST_OUTPUT_TOKENS = 300

MakeAgent = Callable[[Address], Agent]
"""Makes the agent for the model at an address; called in a thread, because it loads libraries."""


@runtime_checkable
class _CanClose(Protocol):
    async def close(self) -> None: ...


class LocalAgent:
    """Answers `work` and `crash` with the demo, and everything else with a model that needs no key and no network."""

    def __init__(self, demo: Agent, server: LocalServer, make: MakeAgent) -> None:
        self._demo = demo
        self._server = server
        self._make = make
        self._current: tuple[Address, Agent] | None = None
        self._making = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer with the demo or with the model. Raises Unanswerable, with a text for the user, when the model is down."""
        if is_for_demo(turn.text):
            return await self._demo.run(turn)
        agent = await self._agent(await self._server.address())
        return await agent.run(turn)

    def start(self) -> None:
        """Begin to load the model and its libraries in the background, before the first message."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="local-agent")

    async def close(self) -> None:
        """End the model's process."""
        if self._warming is not None:
            self._warming.cancel()
            with suppress(asyncio.CancelledError):
                await self._warming
        await self._close_agent()
        await self._server.close()

    async def _warm(self) -> None:
        with suppress(Unanswerable):  # a turn that needs the model reports it
            await self._agent(await self._server.address())

    async def _agent(self, address: Address) -> Agent:
        """The agent for this address; a new one only when the model had to move to another port."""
        async with self._making:
            if self._current is None or self._current[0] != address:
                await self._close_agent()
                self._current = (address, await asyncio.to_thread(self._make, address))
            return self._current[1]

    async def _close_agent(self) -> None:
        current, self._current = self._current, None
        if current is not None and isinstance(current[1], _CanClose):
            await current[1].close()
