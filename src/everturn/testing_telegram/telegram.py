"""The local Telegram itself: one bot, its chats and their screens, and what goes wrong on order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from everturn.testing_telegram.entities import marked_in
from everturn.testing_telegram.queue import Queue
from everturn.testing_telegram.state import BOT_ID, Object, Room, keep, load
from everturn.testing_waiting import WAIT_S, within

KINDS = ("flood", "server", "reset", "slow", "error")
POSTS = {"message": "channel_post", "edited_message": "edited_channel_post"}  # what they are called in a channel
SERVICE = frozenset({"new_chat_members", "forum_topic_created", "migrate_to_chat_id", "migrate_from_chat_id"})


@dataclass(frozen=True)
class Fault:
    """What goes wrong with the next calls of a method (`*`: of any).

    `flood`: 429 with `retry_after`; `server`: 502; `reset`: the connection breaks in the middle of the answer; `slow`: the
    answer takes `seconds`; `error`: any `code` and `description`. `accepted`: what was asked is done all the same.
    https://core.telegram.org/bots/api#responseparameters (`retry_after`) and https://core.telegram.org/bots/api#making-requests
    """

    kind: str
    method: str = "*"
    times: int = 1
    accepted: bool = False
    retry_after: int = 1
    seconds: float = 1.0
    code: int = 400
    description: str = "Bad Request: on order"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no fault named {self.kind!r}; there are {', '.join(KINDS)}")


@dataclass(frozen=True)
class Call:
    """A request of the bot, as it came."""

    method: str
    given: dict[str, Any]
    fault: str | None = None


def words_of(message: Object) -> str:
    """Its text, or what stands beneath its file."""
    return str(message.get("text") or message.get("caption") or "")


class Telegram:
    """What a person sees, and what the bot may ask for."""

    def __init__(self, file: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self.state = load(file)
        self.queue = Queue(self.state, now)
        self.now = now
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.doors: dict[str, str] = {}  # where on this machine a public address of the bot is; "" while it is nowhere
        self.bot: Object = {
            "id": BOT_ID,
            "is_bot": True,
            "first_name": "Everturn",
            "username": "everturn_bot",
            "can_join_groups": True,
            "can_read_all_group_messages": self.state.reads_groups,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }
        self._file = file

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def fail(self, kind: str, method: str = "*", **about: Any) -> None:
        """Order a fault."""
        self.faults.append(Fault(kind, method, **about))

    def called(self, method: str, given: dict[str, Any]) -> Fault | None:
        """Note a request; the fault that it meets, which is used up."""
        place = next((place for place, each in enumerate(self.faults) if each.method in {"*", method}), None)
        fault = None if place is None else self.faults[place]
        if place is not None and fault is not None:
            self.faults[place : place + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
        self.calls.append(Call(method, given, fault.kind if fault else None))
        self.queue.notify()
        return fault

    def called_with(self, method: str) -> list[dict[str, Any]]:
        """What every call of a method was given."""
        return [call.given for call in self.calls if call.method == method]

    def door(self, url: str) -> str:
        """Where an address of the bot really is: behind its name and what takes https away."""
        public = next((each for each in self.doors if url.startswith(each)), None)
        return url if public is None else self.doors[public] + url.removeprefix(public)

    # -- what is on the screens ----------------------------------------------------------------------------------------

    def screen(self, chat_id: int, thread: int | None = None) -> list[Object]:
        """The messages that a person sees in a chat, oldest first; in one topic only, if it is named."""
        messages = self.state.rooms[chat_id].messages.values() if chat_id in self.state.rooms else ()
        return [each for each in messages if thread is None or each.get("message_thread_id") == thread]

    def texts(self, chat_id: int, thread: int | None = None) -> list[str]:
        """What a person sees of the bot there."""
        ours = (each for each in self.screen(chat_id, thread) if each.get("from", {}).get("id") == BOT_ID)
        return [words_of(each) for each in ours if not SERVICE & each.keys()]

    async def until(self, true: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait for something to be true of this world. A failure tells what is on the screens, and the last calls."""
        async with within(timeout_s, self._screens_and_calls):
            while not true():
                await self.queue.changed.wait()

    def _screens_and_calls(self) -> str:
        texts = {chat: self.texts(chat) for chat in self.state.rooms}
        last = [(each.method, each.fault) for each in self.calls[-10:]]
        waiting = len(self.state.waiting)
        return (
            f"texts by chat {texts}; {waiting} updates wait; {len(self.calls)} calls, the last (method, fault): {last}"
        )

    # -- what happens --------------------------------------------------------------------------------------------------

    def put(self, room: Room, message: Object) -> Object:
        """A message appears in a chat. Its id grows, its date is now. https://core.telegram.org/bots/api#message"""
        state = self.state
        whole = {"message_id": state.next_message, "date": int(self.now()), "chat": room.chat, **message}
        state.next_message += 1
        room.messages[whole["message_id"]] = whole
        self.changed()
        return whole

    def said(self, room: Room, person: Object, message: Object) -> Object:
        """Somebody writes: it appears, and the bot hears of it if it may.

        In a channel nobody is named, only the channel: https://core.telegram.org/bots/api#message says of `from` "may be
        empty for messages sent to channels".
        """
        by = {"sender_chat": room.chat} if room.chat["type"] == "channel" else {"from": person}
        whole = self.put(room, {**by, **message})
        self.tell(room, "message", whole)
        return whole

    def tell(self, room: Room, kind: str, message: Object) -> None:
        """Let the bot hear of a message, unless it is one of those that a group keeps from bots.

        https://core.telegram.org/bots/api#update (`message` and `channel_post`, new and edited)
        """
        if self._may_hear(room, message):
            self.queue.add(POSTS[kind] if room.chat["type"] == "channel" else kind, message)
        self.changed()

    def changed(self) -> None:
        """Keep what is now, and wake who waits."""
        keep(self.state, self._file)
        self.queue.notify()

    def _may_hear(self, room: Room, message: Object) -> bool:
        """Privacy mode: in groups a bot hears commands, replies to it, service messages and what mentions it.

        https://core.telegram.org/bots/features#privacy-mode
        """
        if room.chat["type"] in {"private", "channel"} or self.state.reads_groups or SERVICE & message.keys():
            return True
        replied = message.get("reply_to_message", {})
        to_us = replied.get("from", {}).get("id") == BOT_ID and "forum_topic_created" not in replied
        name = f"@{self.bot['username']}"
        marked = marked_in(words_of(message))
        return to_us or any(
            each == name or (each.startswith("/") and "@" not in each.replace(name, "")) for each in marked
        )
