"""The agent of `kind = "python"`: an object, a class or an async function of the owner's module."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.errors import ConfigError
from everturn.objects import load_object


class FunctionAgent:
    """An async function as an agent; it may return just a text."""

    def __init__(self, run: Callable[[TurnContext], Awaitable[Answer | str]]) -> None:
        self._run = run

    async def run(self, turn: TurnContext) -> Answer:
        """Call the function."""
        answer = await self._run(turn)
        return Answer(answer) if isinstance(answer, str) else answer


def load(name: str) -> Agent:
    """Import the agent at `module:object`. Raises ConfigError with the reason. Imports code: not for the event loop."""
    found: Any = load_object(name)
    try:
        if inspect.isclass(found):
            found = found()
    except Exception as error:  # whatever the owner's class raises
        raise ConfigError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    if inspect.iscoroutinefunction(found):
        return FunctionAgent(found)
    if inspect.iscoroutinefunction(getattr(found, "run", None)):
        return FunctionAgent(found.run)
    raise ConfigError(
        f"{name} is not an agent: it needs an `async def run(self, turn)`, or to be an async function of the turn"
    )
