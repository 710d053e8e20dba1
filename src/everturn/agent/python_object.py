"""Objects of the owner's modules, named in the settings as `MODULE:OBJECT`; and those that are agents (`kind = "python"`)."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.errors import ConfigError


def look_in(home: Path) -> None:
    """Add the home to the import path, so that its modules are found."""
    if str(home) not in sys.path:
        sys.path.append(str(home))  # at the end: nothing in the home takes the place of a library


def load_object(name: str) -> Any:
    """Import the object with this name. Raises ConfigError with the reason. Imports code: not for the event loop."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever somebody else's module raises
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    return found


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
