"""Checks across settings: settings that need each other, names that must exist, routes that contradict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING

from everturn.settings.agent import MAIN, AgentConfig, RouteConfig
from everturn.settings.rules import nearest, shown
from everturn.settings.tools import BUILT_IN

if TYPE_CHECKING:
    from everturn.settings import Config

EVERY = "*"
NEEDS = {"llm": "model", "python": "object", "process": "command", "http": "url"}


def problems_of(config: Config) -> Iterator[str]:
    """Everything that is wrong with a configuration as a whole. Each begins with the place it is about."""
    tools = (*BUILT_IN, *config.mcp, EVERY)
    yield from _agent_problems("agent", config.agent, tools)
    for name, agent in config.agents.items():
        if name == MAIN:
            yield f"agents.{MAIN} is not allowed: the agent {shown(MAIN)} is that of [agent]; give this one another name"
        yield from _agent_problems(f"agents.{name}", agent, tools)
    yield from _route_problems(config.routes, (MAIN, *config.agents))
    yield from _target_problems(config)
    yield from _server_problems(config)


def _agent_problems(table: str, agent: AgentConfig, tools: tuple[str, ...]) -> Iterator[str]:
    wanted = NEEDS.get(agent.kind)
    if wanted and not getattr(agent, wanted):
        yield f"{table}.kind is {shown(agent.kind)}, which needs {table}.{wanted}"
    for each in agent.tools:
        if each not in tools:
            near = shown(nearest(each, tools))
            yield f"{table}.tools names {shown(each)}, an unknown tool; the nearest known one is {near}"


def _server_problems(config: Config) -> Iterator[str]:
    for name, server in config.mcp.items():
        if bool(server.command) == bool(server.url):
            yield f"mcp.{name} needs a command or a url, and not both"
        if name in BUILT_IN:
            yield f"mcp.{name} is not allowed: {shown(name)} is the name of a built-in tool; give the server another name"


def _target_problems(config: Config) -> Iterator[str]:
    for name, target in config.tools.send.target.items():
        if not target.platform or not target.chat:
            yield f"tools.send.target.{name} needs a platform and a chat"


def _route_problems(routes: tuple[RouteConfig, ...], agents: tuple[str, ...]) -> Iterator[str]:
    seen: dict[tuple[str, ...], int] = {}
    for number, route in enumerate(routes, 1):
        if not route.agent:
            yield f"routes.{number}.agent is missing: name the agent that answers there"
        elif route.agent not in agents:
            near = nearest(route.agent, agents)
            yield f"routes.{number}.agent is {shown(route.agent)}, an unknown agent; the nearest known one is {shown(near)}"
        place = astuple(route)[1:]
        if place in seen:
            yield f"routes.{number} is for the same place as routes.{seen[place]}: remove one of them"
        seen.setdefault(place, number)
