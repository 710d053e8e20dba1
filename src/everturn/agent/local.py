"""The agent of `kind = "local"`: plain talk goes to a real model on this machine, `work` and `crash` to the demo."""

from __future__ import annotations

from collections.abc import Callable

from everturn.agent.demo import is_for_demo
from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.agent.local_server import Address, LocalServer

MODEL = "smollm2-135m-instruct"
INSTRUCTIONS = "You are a helpful assistant."  # a model of this size follows no longer ones
MOST_OUTPUT_TOKENS = 300

MakeAgent = Callable[[Address], Agent]
"""Makes the agent that talks to the model at an address; it may load its libraries."""


class LocalAgent:
    """Shows recovery through the demo's words, and speaks for the rest through a model that needs no key and no network."""

    def __init__(self, demo: Agent, server: LocalServer, make: MakeAgent) -> None:
        self._demo = demo
        self._server = server
        self._make = make
        self._talking: tuple[Address, Agent] | None = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer with the demo or with the model. Raises Unanswerable, with words for the user, when the model is down."""
        if is_for_demo(turn.words):
            return await self._demo.run(turn)
        return await self._agent(await self._server.address()).run(turn)

    def start(self) -> None:
        """Begin to load the model, so that the first message finds it ready."""
        self._server.start()

    async def close(self) -> None:
        """End the model's process."""
        await self._server.close()

    def _agent(self, address: Address) -> Agent:
        """The agent for this address; another one only when the model had to move to another port."""
        if self._talking is None or self._talking[0] != address:
            self._talking = (address, self._make(address))
        return self._talking[1]
