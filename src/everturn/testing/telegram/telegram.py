"""The local Telegram, in this process or in another."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx2

from everturn.testing.clock import WAIT_S, within
from everturn.testing.telegram.state import BOT_ID, ChatState, Object, Queue, keep, load, marked_in

KINDS = ("flood", "server", "reset", "slow", "error")
POSTS = {"message": "channel_post", "edited_message": "edited_channel_post"}  # what they are called in a channel
SERVICE = frozenset({"new_chat_members", "forum_topic_created", "migrate_to_chat_id", "migrate_from_chat_id"})
PROGRAM = (sys.executable, "-P", "-m", "everturn.testing.telegram")


@dataclass(frozen=True)
class BotFault:
    """A fault of the next calls of a method (`*`: of any).

    `flood`: 429 with `retry_after`; `server`: 502; `reset`: the connection breaks in the middle of the response; `slow`: the
    response takes `seconds`; `error`: any `code` and `description`. `accepted`: the request is handled all the same.
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
class BotRequest:
    """A request of the bot, as it arrived."""

    method: str
    given: dict[str, Any]
    fault: str | None = None


def text_of(message: Object) -> str:
    """The text of a message, or its caption."""
    return str(message.get("text") or message.get("caption") or "")


class Telegram:
    """The local Telegram of one bot: what people see, and what the bot may call."""

    def __init__(self, file: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self.state = load(file)
        self.queue = Queue(self.state, now)
        self.now = now
        self.calls: list[BotRequest] = []
        self.faults: list[BotFault] = []
        self.webhook_urls: dict[str, str] = {}  # the local URL of a public one of the bot; "" while it is unreachable
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
        self.faults.append(BotFault(kind, method, **about))

    def called(self, method: str, given: dict[str, Any]) -> BotFault | None:
        """Record a call; returns the fault that it meets, which is used up."""
        place = next((place for place, each in enumerate(self.faults) if each.method in {"*", method}), None)
        fault = None if place is None else self.faults[place]
        if place is not None and fault is not None:
            self.faults[place : place + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
        self.calls.append(BotRequest(method, given, fault.kind if fault else None))
        self.queue.notify()
        return fault

    def called_with(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every call of a method."""
        return [call.given for call in self.calls if call.method == method]

    def webhook_url(self, url: str) -> str:
        """The local URL for a public one of the bot: without its host name and the proxy that terminates TLS."""
        public = next((each for each in self.webhook_urls if url.startswith(each)), None)
        return url if public is None else self.webhook_urls[public] + url.removeprefix(public)

    # -- what is on the screens ----------------------------------------------------------------------------------------

    def screen(self, chat_id: int, thread: int | None = None) -> list[Object]:
        """The messages that a person sees in a chat, oldest first; in one topic only, if it is named."""
        messages = self.state.rooms[chat_id].messages.values() if chat_id in self.state.rooms else ()
        return [each for each in messages if thread is None or each.get("message_thread_id") == thread]

    def texts(self, chat_id: int, thread: int | None = None) -> list[str]:
        """The texts of the bot that a person sees there."""
        ours = (each for each in self.screen(chat_id, thread) if each.get("from", {}).get("id") == BOT_ID)
        return [text_of(each) for each in ours if not SERVICE & each.keys()]

    async def until(self, true: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition on this Telegram. A failure reports the screens, and the last calls."""
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

    def put(self, room: ChatState, message: Object) -> Object:
        """Put a message into a chat. Its id grows, its date is now. https://core.telegram.org/bots/api#message"""
        state = self.state
        whole = {"message_id": state.next_message, "date": int(self.now()), "chat": room.chat, **message}
        state.next_message += 1
        room.messages[whole["message_id"]] = whole
        self.changed()
        return whole

    def said(self, room: ChatState, person: Object, message: Object) -> Object:
        """Let somebody write: the message appears, and the bot gets an update if it may.

        In a channel no sender is named, only the channel: https://core.telegram.org/bots/api#message says of `from` "may be
        empty for messages sent to channels".
        """
        by = {"sender_chat": room.chat} if room.chat["type"] == "channel" else {"from": person}
        whole = self.put(room, {**by, **message})
        self.tell(room, "message", whole)
        return whole

    def tell(self, room: ChatState, kind: str, message: Object) -> None:
        """Queue an update about a message for the bot, unless privacy mode keeps it from bots.

        https://core.telegram.org/bots/api#update (`message` and `channel_post`, new and edited)
        """
        if self._may_hear(room, message):
            self.queue.add(POSTS[kind] if room.chat["type"] == "channel" else kind, message)
        self.changed()

    def changed(self) -> None:
        """Save the state, and wake everything that waits."""
        keep(self.state, self._file)
        self.queue.notify()

    def _may_hear(self, room: ChatState, message: Object) -> bool:
        """Whether the bot sees a message: with privacy mode only commands, replies to it, service messages and mentions.

        https://core.telegram.org/bots/features#privacy-mode
        """
        if room.chat["type"] in {"private", "channel"} or self.state.reads_groups or SERVICE & message.keys():
            return True
        replied = message.get("reply_to_message", {})
        to_us = replied.get("from", {}).get("id") == BOT_ID and "forum_topic_created" not in replied
        name = f"@{self.bot['username']}"
        marked = marked_in(text_of(message))
        return to_us or any(
            each == name or (each.startswith("/") and "@" not in each.replace(name, "")) for each in marked
        )


class TelegramProcess:
    """The local Telegram in a process of its own, which outlives a killed gateway: `with TelegramProcess() as telegram`."""

    def __init__(self, state: Path | None = None, port: int = 0) -> None:
        self._command = [*PROGRAM, "--port", str(port), *(["--state", str(state)] if state else [])]
        self._process: subprocess.Popen[str] | None = None
        self._client = httpx2.Client(timeout=WAIT_S, verify=False)
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)  # noqa: S603  ourselves
        output = self._process.stdout
        self.url = output.readline().partition("listening on ")[2].strip() if output else ""
        if not self.url:
            raise RuntimeError("the local Telegram does not listen; see its standard error")
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def act(self, who: str, does: str, **how: Any) -> Any:
        """Let a person do something."""
        return self._post("/control/people", {"who": who, "does": does, "with": how})["result"]

    def person(self, who: str) -> int:
        """The id of a person, which is also that of their chat with the bot."""
        number: int = self._post("/control/people", {"who": who})["id"]
        return number

    def fail(self, *faults: dict[str, Any]) -> None:
        """Order faults."""
        self._post("/control/faults", list(faults))

    def clear_faults(self) -> None:
        """Remove the faults that were not met."""
        self._client.delete(f"{self.url}/control/faults").raise_for_status()

    def texts(self, chat: int) -> list[str]:
        """The texts of the bot that a person sees there."""
        found: list[str] = self._client.get(f"{self.url}/control/screens/{chat}").raise_for_status().json()
        return found

    def calls(self) -> list[dict[str, Any]]:
        """Every request of the bot."""
        found: list[dict[str, Any]] = self._client.get(f"{self.url}/control/calls").raise_for_status().json()
        return found

    def _post(self, path: str, order: object) -> Any:
        return self._client.post(f"{self.url}{path}", json=order).raise_for_status().json()
