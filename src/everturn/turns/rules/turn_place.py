"""The sender and the chat of a turn, for the programs that its tools start or call.

It is made from the turn for every call and kept nowhere, so that it cannot be another person's. Every name is always there;
what is not known is empty, so that nothing inherited shows through.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from everturn.model import SessionSource
from everturn.people.rules.names import clean_text

PREFIX = "TURN_"
ID_CHARS = 400


def place_of_turn(source: SessionSource, key: str, session_id: str, turn: str) -> dict[str, str]:
    """The sender and chat of a turn as texts. Names were chosen by people in the chat: one line each, bounded."""
    ids = {
        "id": turn,
        "key": key,
        "session": session_id,
        "platform": source.platform,
        "account": source.account,
        "chat": source.chat_id,
        "chat_type": source.chat_type,
        "thread": source.thread_id,
        "user": source.user_id,
        "message": source.message_id,
    }
    names = {"chat_name": source.chat_name, "user_name": source.user_name}
    told = {name: clean_text(value, ID_CHARS) for name, value in ids.items()}
    return told | {name: clean_text(value) for name, value in names.items()}


def without_person(source: SessionSource) -> SessionSource:
    """The source of a turn that answers several people, without the person: it acts for none of them alone."""
    return replace(source, user_id=None, user_id_alt=None, user_name=None)


def as_variables(place: Mapping[str, str]) -> dict[str, str]:
    """The sender and chat as environment variables of a program: `TURN_USER`, `TURN_CHAT`, ..."""
    return {f"{PREFIX}{name.upper()}": value for name, value in place.items()}
