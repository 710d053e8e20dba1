"""Makes the agents of one gateway from its settings. Libraries of a kind are loaded only when a table names it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import structlog

from everturn.agent.cache import Cache
from everturn.agent.demo import DemoAgent
from everturn.agent.interface import Agent, Answer, CanDescribe, TurnContext
from everturn.agent.python_object import look_in
from everturn.agent.rules import no_such_agent
from everturn.clock import Clock
from everturn.errors import ConfigError, Unanswerable
from everturn.model import SessionSource
from everturn.sessions.rules.keys import agent_of
from everturn.settings import MAIN, AgentConfig, CompactionConfig, Config

if TYPE_CHECKING:
    from everturn.agent.llm.settings import LlmSettings
    from everturn.agent.local import Address, LocalServer
    from everturn.agent.toolbox import ToolSource
    from everturn.agent.wire import WireSettings

log = structlog.get_logger()
PRICES = "genai_prices"
# Where a provider's libraries look for a key that nobody named.
USUAL_VARIABLES = {"openai": "OPENAI_API_KEY", "openai-chat": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


class NamedTools(Protocol):
    """Finds tools by their names; without `every`, `*` names none."""

    def __call__(self, names: Sequence[str], *, every: bool = True) -> Sequence[ToolSource]: ...


def _no_tools(names: Sequence[str], *, every: bool = True) -> Sequence[ToolSource]:  # noqa: ARG001
    return ()


@runtime_checkable
class CanStart(Protocol):
    """An agent that prepares something before the first message."""

    def start(self) -> None:
        """Start the preparation; does not wait for it."""
        ...


@runtime_checkable
class ClosableAgent(Protocol):
    """An agent that holds resources."""

    async def close(self) -> None:
        """Release them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What agents are made with."""

    home: Path
    env: Mapping[str, str]
    clock: Clock
    tools: NamedTools = _no_tools
    compaction: CompactionConfig = CompactionConfig()  # noqa: RUF009  frozen
    cache: Cache[Any] | None = None
    installed: Callable[[str], object] = find_spec  # what is known of a library, by its name


class Agents:
    """Passes each turn to the agent that its session key names, with the settings of its platform and chat."""

    def __init__(self, config: Config, given: AgentParts) -> None:
        self._configs: dict[str, AgentConfig] = {MAIN: config.agent, **config.agents}
        # Agents with foreign code in this process; whether there is a local model makes no difference to that.
        self._foreign = {name for name, each in self._configs.items() if kind_of(each, lambda: None) == "python"}
        self._given = given
        self._spending = config.spending
        self._made: dict[tuple[str, str], Agent] = {}

    async def open(self) -> None:
        """Make all agents, in a thread: their libraries are large. Raises ConfigError with the wrong setting."""
        self._check_prices()
        making = _Making(self._given)
        for name, config in self._configs.items():
            table = "agent" if name == MAIN else f"agents.{name}"
            for variant, own in variants(config):
                self._made[name, variant] = await asyncio.to_thread(making.make, own, table)
        for agent in self._made.values():
            if isinstance(agent, CanStart):
                agent.start()

    def _check_prices(self) -> None:
        """Raise ConfigError for a limit in money that nothing would count towards."""
        limits = {name: getattr(self._spending, name) for name in ("turn_cost", "person_cost_day", "total_cost_day")}
        asks = any(kind_of(each, lambda: None) == "llm" for each in self._configs.values())
        if asks and any(limits.values()) and not self._given.installed(PRICES):
            name = next(name for name, value in limits.items() if value)
            raise ConfigError(
                f"spending.{name} is an amount of money, but no prices of models are installed: install everturn[prices],"
                " or set a limit in tokens"
            )

    async def run(self, turn: TurnContext) -> Answer:
        """Answer a turn with its agent. Raises Unanswerable when there is none of that name any more."""
        return await self.of(turn.key, turn.source).run(turn)

    def marks_calls(self, key: str) -> bool:
        """Whether a crash before `turn.calling()` cannot be the agent's fault. Foreign code in this process may end it on any
        line; a program or an endpoint runs elsewhere, and our side of it marks each request.
        """
        return not self._foreign or agent_of(key) not in self._foreign

    def sees(self, turn: TurnContext) -> bool:
        """Whether the turn's agent gets pictures."""
        agent = self.of(turn.key, turn.source)
        return isinstance(agent, CanDescribe) and agent.sees(turn)

    async def describe(self, turn: TurnContext, question: str) -> str:
        """Ask the turn's agent a question about a picture; returns its answer."""
        agent = self.of(turn.key, turn.source)
        return await agent.describe(turn, question) if isinstance(agent, CanDescribe) else ""

    def of(self, key: str, source: SessionSource) -> Agent:
        """The agent that answers messages from this source under this key."""
        name = agent_of(key)
        config = self._configs.get(name)
        if config is None:
            raise Unanswerable(no_such_agent(name, self._configs), "no_such_agent")
        return self._made[name, variant_of(config, source)]

    async def close(self) -> None:
        """Close all agents and the cache."""
        for agent in {id(each): each for each in self._made.values()}.values():
            if isinstance(agent, ClosableAgent):
                await agent.close()
        if self._given.cache is not None:
            await self._given.cache.close()


def variants(config: AgentConfig) -> Iterator[tuple[str, AgentConfig]]:
    """The agent's settings: the general ones, and those of each platform and chat with a table of its own."""
    yield "", config.at("")
    for platform in config.platform:
        yield platform, config.at(platform)
    for chat in config.chat:
        yield chat, config.at(*chat.split(":", 1))


def variant_of(config: AgentConfig, source: SessionSource) -> str:
    """Which of the variants answers here."""
    ids = (source.chat_id, source.chat_id_alt, source.parent_chat_id)
    chats = (f"{source.platform}:{each}" for each in ids if each)
    platform = source.platform if source.platform in config.platform else ""
    return next((chat for chat in chats if chat in config.chat), platform)


def kind_of(config: AgentConfig, lacks_local: Callable[[], str | None]) -> str:
    """The agent's kind: the one that is set, else the one that the other settings name."""
    if config.kind != "auto":
        return config.kind
    named = {"llm": config.model, "python": config.object, "process": config.command, "http": config.url}
    found = next((kind for kind, value in named.items() if value), None)
    return found or ("demo" if lacks_local() else "local")


def _lacks_local() -> str | None:
    from everturn.agent.local import missing

    return missing()


class _Making:
    """Makes agents; they share the demo and the local model server."""

    def __init__(self, given: AgentParts) -> None:
        self._given = given
        self._demo = DemoAgent(given.home / "demo-ledger.txt", given.clock)
        self._server: LocalServer | None = None

    def make(self, config: AgentConfig, table: str) -> Agent:
        """The agent of one table. Raises ConfigError."""
        kinds: dict[str, Callable[[AgentConfig, str], Agent]] = {
            "demo": self._make_demo,
            "llm": self._make_llm,
            "local": self._make_local,
            "python": self._make_python,
            "process": self._make_process,
            "http": self._make_http,
        }
        kind = kind_of(config, _lacks_local)
        log.info("agent", table=table, kind=kind)
        return kinds[kind](config, table)

    def _make_demo(self, _config: AgentConfig, _table: str) -> Agent:
        return self._demo

    def _make_llm(self, config: AgentConfig, table: str) -> Agent:
        from everturn.agent.llm.settings import LlmSettings

        return self._language_model(
            LlmSettings(
                model=config.model,
                base_url=config.base_url or None,
                api_key=self._key(config, table),
                api_key_env=config.api_key_env or USUAL_VARIABLES.get(config.model.partition(":")[0]),
                **self._instructions(config, table),
                max_steps=config.max_steps,
                max_output_tokens=config.max_output_tokens or None,
                context_tokens=config.context_tokens,
                fallback=config.fallback,
                models=config.models,
                stall_s=config.stall_s,
                retries=config.retries,
                images=config.images,
                uploads=self._given.home / "files",
                compact_at=self._given.compaction.at,
                compact_keep=self._given.compaction.keep,
            ),
            self._given.tools(config.tools),
        )

    def _language_model(self, settings: LlmSettings, tools: Sequence[ToolSource]) -> Agent:
        from everturn.agent.llm.agent import LlmAgent
        from everturn.agent.llm.providers import AgentModels

        return LlmAgent(settings, tools, self._given.clock, models=AgentModels(settings, self._given.cache))

    def _make_local(self, config: AgentConfig, table: str) -> Agent:
        from everturn.agent.llm.settings import LlmSettings
        from everturn.agent.local import INSTRUCTIONS, MODEL, MOST_OUTPUT_TOKENS, LocalAgent, LocalServer, LocalSettings

        numbers = LocalSettings()
        self._server = self._server or LocalServer(self._given.clock, numbers)
        given = {"instructions": INSTRUCTIONS} | self._instructions(config, table)

        def make(address: Address) -> Agent:
            return self._language_model(
                LlmSettings(
                    model=f"openai:{MODEL}",
                    base_url=f"{address.url}/v1",
                    on_this_machine=True,
                    api_key=address.key,
                    **given,
                    tell_place=False,
                    max_steps=config.max_steps,
                    max_output_tokens=config.max_output_tokens or MOST_OUTPUT_TOKENS,
                    context_tokens=numbers.context_tokens,
                    stall_s=config.stall_s,
                    retries=config.retries,
                ),
                self._given.tools(config.tools, every=False),
            )

        return LocalAgent(self._demo, self._server, make)

    def _make_python(self, config: AgentConfig, table: str) -> Agent:
        from everturn.agent.python_object import load

        look_in(self._given.home)
        try:
            return load(config.object)
        except ConfigError as error:
            raise ConfigError(f"{table}.object: {error}") from error

    def _make_process(self, config: AgentConfig, table: str) -> Agent:
        from everturn.agent.outside import ProcessAgent

        settings = self._wire_settings(config, table)
        return ProcessAgent(config.command, self._given.home, self._given.env, self._given.clock, settings)

    def _make_http(self, config: AgentConfig, table: str) -> Agent:
        from everturn.agent.outside import EndpointAgent

        key = self._variable(config.api_key_env, table) if config.api_key_env else None
        return EndpointAgent(config.url, key, self._given.clock, self._wire_settings(config, table))

    def _wire_settings(self, config: AgentConfig, table: str) -> WireSettings:
        from everturn.agent.wire import WireSettings

        given = self._instructions(config, table)
        return WireSettings(**given, max_steps=config.max_steps, retries=config.retries, stall_s=config.stall_s)

    def _instructions(self, config: AgentConfig, table: str) -> dict[str, Any]:
        """The owner's instructions, from the settings and a file; none when both are empty, so that the kind's default holds."""
        texts = [config.instructions]
        if config.instructions_file:
            path = self._given.home / config.instructions_file
            try:
                texts.append(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise ConfigError(f"{table}.instructions_file: {path} cannot be read: {why}") from error
        text = "\n\n".join(each.strip() for each in texts if each.strip())
        return {"instructions": text} if text else {}

    def _key(self, config: AgentConfig, table: str) -> str | None:
        if config.api_key_env:
            return self._variable(config.api_key_env, table)
        usual = USUAL_VARIABLES.get(config.model.partition(":")[0])
        if usual is None or config.base_url:
            return None  # the provider's library finds the key itself, or a server that may need none
        return self._variable(usual, table)

    def _variable(self, name: str, table: str) -> str:
        if value := self._given.env.get(name, "").strip():
            return value
        raise ConfigError(
            f"the environment variable {name} is not set, but the agent of [{table}] needs the key in it;"
            f" set it, or name another one in {table}.api_key_env"
        )
