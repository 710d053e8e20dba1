"""`[display]`: what chats show besides the text of an answer, and what the gateway leaves out."""
# ruff: noqa: RUF009  `setting` and `named` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from everturn.settings.names import CHAT_NAME, PLATFORM_NAME
from everturn.settings.rules import named, setting

LONGEST_REACTION = 8
Silence = Literal["drop", "send"]
Quote = Literal["groups", "always", "never"]


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
