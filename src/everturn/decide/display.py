"""How answers are shown in a chat: what was set for the chat, else for its platform, else for all, else what is built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from msgspec import structs

from everturn.decide.streaming import PLAIN, Look, Pace
from everturn.model import SessionSource

T = TypeVar("T", Pace, Look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The settings of the gateway; a terminal that talks to it has its own, which never come here."""

    everywhere: Pace = Pace()  # noqa: RUF009  frozen
    look_everywhere: Look = PLAIN
    by_platform: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_chat: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # "platform:chat"

    def pace(self, source: SessionSource) -> Pace:
        """How an answer to this source is shown while it grows."""
        return self._resolved(self.everywhere, source)

    def look(self, source: SessionSource) -> Look:
        """What of it is shown, and what beside it."""
        return self._resolved(self.look_everywhere, source)

    def _resolved(self, everywhere: T, source: SessionSource) -> T:
        if not self.by_platform and not self.by_chat:
            return everywhere
        own = [self.by_platform.get(source.platform, {})]
        # A chat that moved is known by the number it had, too; what was set for the new one goes first.
        own += [self.by_chat.get(f"{source.platform}:{chat}", {}) for chat in (source.chat_id_alt, source.chat_id)]
        return _overridden(everywhere, *own)


def answering(to: SessionSource, look: Look, place: int) -> SessionSource:
    """Where a part of an answer goes: only the first names the message that is answered, and only where that is wanted."""
    named = place == 0 and look.quotes(to.chat_type)
    return to if named or to.message_id is None else structs.replace(to, message_id=None)


def _overridden(values: T, *own: Mapping[str, Any]) -> T:
    names = {each.name for each in fields(values)}
    for table in own:
        values = replace(values, **{name: value for name, value in table.items() if name in names})
    return values
