"""The state of the local Telegram: people, chats with their messages, and updates that wait for the bot.

It is plain data, so that it can be saved in a file and outlive the process that serves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

Object: TypeAlias = dict[str, Any]  # an object of the Bot API, as it is on the wire

BOT_ID = 4_200_000
TOKEN = f"{BOT_ID}:local-token-for-tests-0123456789abc"
DAY_S = 86_400.0


class ApiError(Exception):
    """An error response. https://core.telegram.org/bots/api#making-requests"""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def bad(description: str) -> ApiError:
    """The error of an invalid request. https://core.telegram.org/bots/api#making-requests"""
    return ApiError(400, f"Bad Request: {description}")


@dataclass
class ChatState:
    """A chat: its members, its messages, its topics."""

    chat: Object
    messages: dict[int, Object] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    moved_to: int | None = None  # the supergroup that it became
    closed: str = ""  # why the bot may not write here: blocked, kicked
    typing: int = 0  # how often the bot showed the typing indicator


@dataclass
class PendingUpdate:
    """An update that the bot has not confirmed. https://core.telegram.org/bots/api#getting-updates"""

    update: Object
    at: float


@dataclass
class Hook:
    """A webhook. https://core.telegram.org/bots/api#setwebhook"""

    url: str
    secret: str = ""
    max_connections: int = 40
    last_error: str = ""
    last_error_at: int = 0


@dataclass
class State:
    """The whole state."""

    rooms: dict[int, ChatState] = field(default_factory=dict)
    people: dict[int, Object] = field(default_factory=dict)
    waiting: list[PendingUpdate] = field(default_factory=list)
    again: list[PendingUpdate] = field(default_factory=list)  # confirmed, and delivered once more all the same
    confirmed: list[PendingUpdate] = field(default_factory=list)  # the latest of those that were
    allowed: list[str] | None = None
    next_update: int = 700_000_001
    next_message: int = 2  # a forum's general topic is number 1
    next_number: int = 1
    files: dict[str, bytes] = field(default_factory=dict)
    presses: dict[str, bool] = field(default_factory=dict)  # by the id of the query: whether it was answered
    commands: dict[str, list[Object]] = field(default_factory=dict)  # by scope
    hook: Hook | None = None
    revoked: bool = False
    reads_groups: bool = False  # whether the bot's privacy mode is off

    def number(self) -> int:
        """A number that was not used before."""
        self.next_number += 1
        return self.next_number

    def room(self, chat_id: object) -> ChatState:
        """The chat that a request names, by its id or its @name. Raises ApiError with the new id for one that moved.

        https://core.telegram.org/bots/api#sendmessage (`chat_id`), https://core.telegram.org/bots/api#responseparameters
        """
        text = str(chat_id)
        found = self.rooms.get(int(text)) if text.lstrip("-").isdigit() else self._by_name(text)
        if found is None:
            raise bad("chat not found")
        if found.moved_to is not None:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=found.moved_to,
            )
        return found

    def _by_name(self, name: str) -> ChatState | None:
        return next((room for room in self.rooms.values() if f"@{room.chat.get('username')}" == name), None)


def load(file: Path | None) -> State:
    """Load the state of an earlier process; a new state without one."""
    if file is None or not file.exists():
        return State()
    return msgspec.json.decode(file.read_bytes(), type=State)


def keep(state: State, file: Path | None) -> None:
    """Save the state, whole or not at all."""
    if file is None:
        return
    draft = file.with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(state))
    draft.replace(file)
