"""The settings of what is shown: display, streaming, files, and telemetry."""
# ruff: noqa: RUF009  `setting` and `named` make dataclass fields

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from everturn.settings.agent import url_problem, variable_problem
from everturn.settings.rules import CHAT_NAME, PLATFORM_NAME, named, setting

LONGEST_REACTION = 8
Silence = Literal["drop", "send"]
Quote = Literal["groups", "always", "never"]
LONGEST_CURSOR = 8


def _reaction_problem(mark: str) -> str | None:
    return None if len(mark) <= LONGEST_REACTION else f"it has more than {LONGEST_REACTION} characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayOverride:
    """The display settings of one platform or chat; None means as everywhere."""

    silence: Silence | None = None
    reasoning: bool | None = None
    progress: bool | None = None
    typing: bool | None = None
    reaction: str | None = None
    quote: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayConfig:
    """`[display]`."""

    silence: Silence = setting(
        "drop",
        "What happens to an answer that only says that there is nothing to say, such as (silent) or a lone dot. drop: it is not"
        " sent to the chat; it stays in the transcript, and `everturn explain` shows that it was not sent.",
        choices=("drop", "send"),
    )
    reasoning: bool = setting(False, "Whether chats show the blocks in which a model thinks aloud (<think>).")
    progress: bool = setting(True, "Whether chats get notices about a long turn: that it still runs, and retries.")
    typing: bool = setting(True, "Whether chats show a typing indicator, where the platform has one.")
    reaction: str = setting(
        "",
        "The reaction that a message gets while the agent works on it, where the platform has reactions. Empty: none.",
        form="one emoji that the platform allows",
        check=_reaction_problem,
    )
    quote: Quote = setting(
        "groups", "Where an answer quotes the message that it answers.", choices=("groups", "always", "never")
    )
    platform: Mapping[str, DisplayOverride] = named(
        DisplayOverride,
        "What is different on one platform.",
        placeholder="PLATFORM",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
        overrides=True,
    )
    chat: Mapping[str, DisplayOverride] = named(
        DisplayOverride,
        "What is different in one chat. This table overrides the platform's.",
        placeholder='"PLATFORM:CHAT"',
        name=CHAT_NAME,
        name_form='a chat is written "PLATFORM:CHAT"',
        overrides=True,
    )

    def everywhere(self) -> dict[str, Any]:
        """The values for chats without a table of their own."""
        return {name: getattr(self, name) for name in DisplayOverride.__slots__}


def _cursor_problem(cursor: str) -> str | None:
    return None if len(cursor) <= LONGEST_CURSOR else f"it has more than {LONGEST_CURSOR} characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingOverride:
    """The streaming settings of one platform or chat; None means as everywhere."""

    enabled: bool | None = None
    interval_s: float | None = None
    min_chars: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConfig:
    """`[streaming]`."""

    enabled: bool = setting(
        True,
        "Whether chats show an answer while the agent writes it, on platforms that can edit messages. Else it is sent whole.",
    )
    interval_s: float = setting(
        0.8, "The gateway edits a streaming message at most once in so many seconds.", between=(0.05, 60)
    )
    min_chars: int = setting(
        24, "The gateway edits it when so many characters are new; fewer wait for three intervals.", between=(1, 4_000)
    )
    cursor: str = setting(
        " ▌", "The text at the end of an unfinished answer.", form="up to 8 characters", check=_cursor_problem
    )
    platform: Mapping[str, StreamingOverride] = named(
        StreamingOverride,
        "What is different on one platform.",
        placeholder="PLATFORM",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
        overrides=True,
    )
    chat: Mapping[str, StreamingOverride] = named(
        StreamingOverride,
        "What is different in one chat. This table overrides the platform's.",
        placeholder='"PLATFORM:CHAT"',
        name=CHAT_NAME,
        name_form='a chat is written "PLATFORM:CHAT"',
        overrides=True,
    )

    def everywhere(self) -> dict[str, Any]:
        """The values for chats without a table of their own."""
        return {name: getattr(self, name) for name in StreamingOverride.__slots__}


def given(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values that each table sets, without those that it leaves out."""
    return {
        name: {key: value for key, value in asdict(own).items() if value is not None} for name, own in tables.items()
    }


def _type_problem(kind: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[a-z0-9.+-]+/([a-z0-9.+-]+|\*)", kind)
        else 'types look like "application/zip" or "video/*"'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaConfig:
    """`[media]`."""

    fetch_s: float = setting(
        30.0,
        "How many seconds the gateway waits for the files of a message. If one is missing then, the sender gets a notice, and"
        " the agent answers without it.",
        between=(0.1, 3_600),
    )
    keep_hours: float = setting(
        24.0,
        "How many hours the gateway keeps files that came with messages or were sent. Files dropped into the page stay.",
        between=(0.1, 100_000),
    )
    text_chars: int = setting(
        20_000,
        "How many characters of all text documents of a message stand in the message itself. 0: none, the agent's tools read them.",
        between=(0, 1_000_000),
    )
    forbidden: tuple[str, ...] = setting(
        ("application/x-executable",),
        "File types that the gateway refuses, as the file's bytes show them.",
        form='types such as "application/zip", or "video/*"',
        check=_type_problem,
    )


def _service_problem(name: str) -> str | None:
    return None if re.fullmatch(r"\S{1,100}", name) else "it is empty, too long, or has a space"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """`[telemetry]`."""

    endpoint: str = setting(
        "", "The collector to which the gateway sends traces, by OTLP over HTTP. Empty: no traces. Needs everturn[otel].",
        form='empty, or "http://HOST:4318"', check=url_problem, secret=True,
    )  # fmt: skip
    service_name: str = setting(
        "everturn", "The name of this gateway in traces. Gateways that share a database use the same name; others have their own.",
        form="a name without spaces", check=_service_problem,
    )  # fmt: skip
    headers_env: str = setting(
        "", "The NAME of the environment variable with headers for the collector, as name=value,name=value.",
        form="the name of an environment variable in capitals, such as OTEL_HEADERS", check=variable_problem, hide=True,
    )  # fmt: skip
    sample_ratio: float = setting(
        1.0, "The share of messages that the gateway traces. 0: none, as without a collector.", between=(0, 1)
    )
