"""`[streaming]`: how chats show an answer while the agent writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from everturn.settings.names import CHAT_NAME, PLATFORM_NAME
from everturn.settings.rules import named, setting

LONGEST_CURSOR = 8


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
