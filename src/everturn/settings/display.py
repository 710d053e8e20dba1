"""`[display]`: what is shown in chats beside the words of an answer, and what is left away."""
# ruff: noqa: RUF009  `setting` and `named` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from everturn.settings.agent import CHAT_NAME, PLATFORM_NAME
from everturn.settings.rules import named, setting

LONGEST_REACTION = 8
Silence = Literal["drop", "send"]
Quote = Literal["groups", "always", "never"]


def _reaction_problem(mark: str) -> str | None:
    return None if len(mark) <= LONGEST_REACTION else f"it has more than {LONGEST_REACTION} characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayOverride:
    """What is different on one platform or in one chat; None means as everywhere."""

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
        "An answer that only says that there is nothing to say, such as (silent) or a lone dot, is not sent to a chat."
        " It stands in the transcript, and `everturn explain` tells that it was not sent.",
        choices=("drop", "send"),
    )
    reasoning: bool = setting(False, "Blocks in which a model thinks aloud (<think>) are shown.")
    progress: bool = setting(True, "How a long turn goes is told: that it still works, and what is tried again.")
    typing: bool = setting(True, "That somebody is at work is shown, where the platform can.")
    reaction: str = setting(
        "",
        "The mark that a message gets while it is worked on, where the platform has such marks. Empty: none.",
        form="one emoji that the platform allows",
        check=_reaction_problem,
    )
    quote: Quote = setting(
        "groups", "Where an answer names the message that it answers.", choices=("groups", "always", "never")
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
        "What is different in one chat; it goes before the platform's table.",
        placeholder='"PLATFORM:CHAT"',
        name=CHAT_NAME,
        name_form='a chat is written "PLATFORM:CHAT"',
        overrides=True,
    )

    def everywhere(self) -> dict[str, Any]:
        """The values where nothing else is said."""
        return {name: getattr(self, name) for name in DisplayOverride.__slots__}
