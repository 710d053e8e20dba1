"""The settings: their tables, what each means and which values it takes. `config` reads them; documents are made from them."""
# ruff: noqa: RUF009  `section`, `named` and `listed` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everturn.settings.agent import (
    AGENT_NAME,
    MAIN,
    AgentConfig,
    AgentOverride,
    RouteConfig,
)
from everturn.settings.core import (
    CHAT_TYPES,
    OVERRIDABLE,
    DrainConfig,
    LimitsConfig,
    RecoveryConfig,
    ResetConfig,
    ResetOverride,
    ServerConfig,
    SessionsConfig,
    StoreConfig,
)
from everturn.settings.display import DisplayConfig
from everturn.settings.media import MediaConfig
from everturn.settings.platforms import MatrixConfig, OwnPlatformConfig, PlatformConfig, PlatformsConfig, TelegramConfig
from everturn.settings.rules import dotted, listed, masked, named, nearest, section, shown
from everturn.settings.streaming import StreamingConfig
from everturn.settings.telemetry import TelemetryConfig
from everturn.settings.tools import McpConfig, ToolsConfig
from everturn.settings.tree import PREFIX, PRESENT, Keys, Place, Setting, Table, tables_below, value_at, variable_of
from everturn.settings.tree import built as _built
from everturn.settings.tree import place_of as _place_of
from everturn.settings.tree import setting_at as _setting_at
from everturn.settings.use import (
    ApprovalsConfig,
    CacheConfig,
    CompactionConfig,
    PatienceConfig,
    RightsConfig,
    SpendingConfig,
)

__all__ = [
    "CHAT_TYPES",
    "MAIN",
    "OVERRIDABLE",
    "PREFIX",
    "PRESENT",
    "SETTINGS",
    "TABLES",
    "AgentConfig",
    "AgentOverride",
    "ApprovalsConfig",
    "CacheConfig",
    "CompactionConfig",
    "Config",
    "DisplayConfig",
    "DrainConfig",
    "Keys",
    "LimitsConfig",
    "MatrixConfig",
    "McpConfig",
    "MediaConfig",
    "OwnPlatformConfig",
    "PatienceConfig",
    "Place",
    "PlatformConfig",
    "PlatformsConfig",
    "RecoveryConfig",
    "ResetConfig",
    "ResetOverride",
    "RightsConfig",
    "RouteConfig",
    "ServerConfig",
    "SessionsConfig",
    "Setting",
    "SpendingConfig",
    "StoreConfig",
    "StreamingConfig",
    "Table",
    "TelegramConfig",
    "TelemetryConfig",
    "ToolsConfig",
    "build",
    "dotted",
    "find_place",
    "find_setting",
    "masked",
    "nearest",
    "shown",
    "value_at",
    "variable_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting of a gateway, checked."""

    store: StoreConfig = section(StoreConfig, "Where everything is kept.")
    agent: AgentConfig = section(AgentConfig, "The agent.")
    agents: Mapping[str, AgentConfig] = named(
        AgentConfig,
        "More agents. Each takes the settings of [agent], and its defaults: what [agent] says is not repeated here.",
        placeholder="NAME",
        name=AGENT_NAME,
        name_form="an agent's name has small letters, digits, - and _, and at most 32 of them",
    )
    routes: tuple[RouteConfig, ...] = listed(
        RouteConfig,
        "Who answers where. The most exact route that fits decides: one that names the person goes before one that"
        " names the thread, then the chat, then the platform. Where none fits, the agent of [agent] answers.",
    )
    platforms: PlatformsConfig = section(PlatformsConfig, "Where people write. A platform is off unless it is enabled.")
    streaming: StreamingConfig = section(StreamingConfig, "How answers are shown in chats while they grow.")
    display: DisplayConfig = section(DisplayConfig, "What is shown in chats beside the words of an answer.")
    media: MediaConfig = section(MediaConfig, "Files that come with messages, and files that are sent.")
    sessions: SessionsConfig = section(SessionsConfig, "Conversations and when they start afresh.")
    tools: ToolsConfig = section(ToolsConfig, "What the agent can do. A tool is off unless its table switches it on.")
    mcp: Mapping[str, McpConfig] = named(
        McpConfig,
        "A server that offers tools through the Model Context Protocol; its tools are called NAME_TOOL.",
        placeholder="NAME",
        name=r"[a-z][a-z0-9_-]{0,31}",
        name_form="a server's name has small letters, digits, - and _, and at most 32 of them",
    )
    approvals: ApprovalsConfig = section(ApprovalsConfig, "Questions to people before a tool may act.")
    spending: SpendingConfig = section(SpendingConfig, "Limits on what models use. Who reaches one is told.")
    compaction: CompactionConfig = section(CompactionConfig, "When a long conversation is summarised.")
    patience: PatienceConfig = section(PatienceConfig, "How long a running turn is waited for without a word.")
    cache: CacheConfig = section(
        CacheConfig, "What is dear to build and kept for a while: clients of models that sessions chose."
    )
    rights: RightsConfig = section(RightsConfig, "Who may use which command.")
    recovery: RecoveryConfig = section(RecoveryConfig, "What happens after a crash or a restart.")
    drain: DrainConfig = section(DrainConfig, "How a stop or restart treats running turns.")
    limits: LimitsConfig = section(LimitsConfig, "Bounds. Who hits one is told.")
    server: ServerConfig = section(ServerConfig, "The HTTP server.")
    telemetry: TelemetryConfig = section(TelemetryConfig, "Traces of messages, for who has a collector.")


TABLES: tuple[Table, ...] = tuple(tables_below(Config))
SETTINGS: Mapping[str, Setting] = {each.key: each for table in TABLES if not table.open for each in table.settings()}


def find_setting(keys: Keys) -> Setting | None:
    """The setting at this place of the file."""
    return _setting_at(Config, keys)


def find_place(keys: Keys) -> Place:
    """Where keys lead, as far as they are known."""
    return _place_of(Config, keys)


def build(values: Mapping[Keys, object]) -> Config:
    """The configuration with these values."""
    config: Config = _built(Config, values)
    return config
