"""How answers are shown in a chat: the setting of the chat, else of its platform, else of all, else the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from msgspec import structs

from everturn.model import SessionSource
from everturn.outbox.rules.streaming import PLAIN, Look, Pace

T = TypeVar("T", Pace, Look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The display settings of the gateway; a terminal that talks to it has its own, which never come here."""

    everywhere: Pace = Pace()  # noqa: RUF009  frozen
    look_everywhere: Look = PLAIN
    by_platform: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_chat: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # "platform:chat"

    # By platform, by chat, and for all ("", as no platform has such a name): a turn asks several times.
    _places: dict[str, tuple[Pace, Look]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Merge the settings of all, of platforms and of chats once."""
        everywhere = self.everywhere, self.look_everywhere
        places = {"": everywhere}
        for platform, own in self.by_platform.items():
            places[platform] = _overridden(everywhere, own)
        for chat, own in self.by_chat.items():
            places[chat] = _overridden(places.get(chat.partition(":")[0], everywhere), own)
        object.__setattr__(self, "_places", places)

    def pace(self, source: SessionSource) -> Pace:
        """How an answer to this source is shown while it streams."""
        return self._at(source)[0]

    def look(self, source: SessionSource) -> Look:
        """What of an answer to this source is shown, and what beside it."""
        return self._at(source)[1]

    def _at(self, source: SessionSource) -> tuple[Pace, Look]:
        places, platform = self._places, source.platform
        if self.by_chat:
            # A chat that moved is known by the number it had, too; what was set for the new one goes first.
            chat, before = f"{platform}:{source.chat_id}", f"{platform}:{source.chat_id_alt}"
            if chat in places and before in places:
                return _overridden(places[before], self.by_chat[chat])
            if found := places.get(chat) or places.get(before):
                return found
        return places.get(platform) or places[""]


def answering(to: SessionSource, look: Look, place: int) -> SessionSource:
    """The target of a part of an answer: only the first names the message that is answered, and only if that is set."""
    named = place == 0 and look.quotes(to.chat_type)
    return to if named or to.message_id is None else structs.replace(to, message_id=None)


def _overridden(values: tuple[Pace, Look], own: Mapping[str, Any]) -> tuple[Pace, Look]:
    pace, look = values
    return _replaced(pace, own), _replaced(look, own)


def _replaced(values: T, own: Mapping[str, Any]) -> T:
    names = {each.name for each in fields(values)}
    return replace(values, **{name: value for name, value in own.items() if name in names})
