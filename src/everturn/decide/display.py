"""How answers are shown in a chat: what was set for the chat, else for its platform, else for all, else what is built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from everturn.decide.streaming import Pace
from everturn.model import SessionSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The settings of the gateway; a terminal that talks to it has its own, which never come here (claim D1.20)."""

    everywhere: Pace = Pace()  # noqa: RUF009  frozen
    by_platform: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_chat: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # "platform:chat"

    def pace(self, source: SessionSource) -> Pace:
        """How an answer to this source is shown while it grows."""
        own = [self.by_platform.get(source.platform, {}), self.by_chat.get(f"{source.platform}:{source.chat_id}", {})]
        return _overridden(self.everywhere, *own) if any(own) else self.everywhere


def _overridden(pace: Pace, *own: Mapping[str, Any]) -> Pace:
    names = {each.name for each in fields(Pace)}
    for values in own:
        given = {name: value for name, value in values.items() if name in names and value is not None}
        pace = replace(pace, **given)
    return pace
