"""The settings: their tables, what each means and which values it takes. `config` reads them; `make docs` documents them."""
# ruff: noqa: RUF009  `section`, `named` and `listed` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everturn.settings.agent import AGENT_NAME, MAIN, AgentConfig, AgentOverride, McpConfig, RouteConfig, ToolsConfig
from everturn.settings.core import (
    CHAT_TYPES,
    OVERRIDABLE,
    CacheConfig,
    CompactionConfig,
    DrainConfig,
    LimitsConfig,
    PatienceConfig,
    RecoveryConfig,
    ResetConfig,
    ResetOverride,
    ServerConfig,
    SessionsConfig,
    SpendingConfig,
    StoreConfig,
)
from everturn.settings.display import DisplayConfig, MediaConfig, StreamingConfig, TelemetryConfig
from everturn.settings.platforms import (
    ApprovalsConfig,
    MatrixConfig,
    OwnPlatformConfig,
    PlatformConfig,
    PlatformsConfig,
    RightsConfig,
    TelegramConfig,
)
from everturn.settings.rules import dotted, listed, masked, named, nearest, section, shown
from everturn.settings.tree import (
    PREFIX,
    PRESENT,
    Keys,
    Setting,
    SettingPlace,
    Table,
    tables_below,
    value_at,
    variable_of,
)
from everturn.settings.tree import built as _built
from everturn.settings.tree import place_of as _place_of
from everturn.settings.tree import setting_at as _setting_at

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
    "SettingPlace",
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

    store: StoreConfig = section(StoreConfig, "The database in which the gateway keeps everything.")
    agent: AgentConfig = section(AgentConfig, "The agent.")
    agents: Mapping[str, AgentConfig] = named(
        AgentConfig,
        "More agents. Each takes the settings of [agent] with their defaults; it does not inherit the values of [agent].",
        placeholder="NAME",
        name=AGENT_NAME,
        name_form="an agent's name has small letters, digits, - and _, and at most 32 of them",
    )
    routes: tuple[RouteConfig, ...] = listed(
        RouteConfig,
        "Which agent answers where. The most exact route that matches decides: one that names the person goes before one that"
        " names the thread, then the chat, then the platform. Where none matches, the agent of [agent] answers.",
    )
    platforms: PlatformsConfig = section(PlatformsConfig, "The chat platforms. A platform is off unless it is enabled.")
    streaming: StreamingConfig = section(StreamingConfig, "How chats show an answer while the agent writes it.")
    display: DisplayConfig = section(DisplayConfig, "What chats show besides the text of an answer.")
    media: MediaConfig = section(MediaConfig, "Files that come with messages, and files that are sent.")
    sessions: SessionsConfig = section(SessionsConfig, "Conversations, and when they reset.")
    tools: ToolsConfig = section(ToolsConfig, "The agent's tools. A tool is off unless its table switches it on.")
    mcp: Mapping[str, McpConfig] = named(
        McpConfig,
        "A server that offers tools through the Model Context Protocol; its tools are called NAME_TOOL.",
        placeholder="NAME",
        name=r"[a-z][a-z0-9_-]{0,31}",
        name_form="a server's name has small letters, digits, - and _, and at most 32 of them",
    )
    approvals: ApprovalsConfig = section(ApprovalsConfig, "Approval requests to people before a tool may act.")
    spending: SpendingConfig = section(
        SpendingConfig, "Limits on what models use. At a limit, the sender gets a notice."
    )
    compaction: CompactionConfig = section(CompactionConfig, "When the gateway summarises a long conversation.")
    patience: PatienceConfig = section(
        PatienceConfig, "How long a turn may show no activity: until its user gets a notice, and until it fails."
    )
    cache: CacheConfig = section(
        CacheConfig, "What is costly to build and kept for a while: clients of models that sessions chose."
    )
    rights: RightsConfig = section(RightsConfig, "Who may use which command.")
    recovery: RecoveryConfig = section(RecoveryConfig, "What happens after a crash or a restart.")
    drain: DrainConfig = section(DrainConfig, "How a stop or restart treats running turns.")
    limits: LimitsConfig = section(LimitsConfig, "Limits of the gateway. At a limit, the sender gets a notice.")
    server: ServerConfig = section(ServerConfig, "The HTTP server.")
    telemetry: TelemetryConfig = section(TelemetryConfig, "Traces of messages, for an OpenTelemetry collector.")


TABLES: tuple[Table, ...] = tuple(tables_below(Config))
SETTINGS: Mapping[str, Setting] = {each.key: each for table in TABLES if not table.open for each in table.settings()}


def find_setting(keys: Keys) -> Setting | None:
    """The setting at these keys of the file; None when there is none."""
    return _setting_at(Config, keys)


def find_place(keys: Keys) -> SettingPlace:
    """Where these keys lead in the tree of tables, as far as they are known."""
    return _place_of(Config, keys)


def build(values: Mapping[Keys, object]) -> Config:
    """The configuration with these values."""
    config: Config = _built(Config, values)
    return config
