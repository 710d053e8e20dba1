"""What the local Telegram knows: text entities (https://core.telegram.org/bots/api#messageentity), people and chats with their
messages, and the updates that wait for the bot (https://core.telegram.org/bots/api#getting-updates).
"""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

_TOKEN = re.compile(r"<(/?)([A-Za-z0-9-]*)((?:\s+[A-Za-z-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]*))?)*)\s*>|<|&(#?\w+);")
_ATTRIBUTE = re.compile(r"([A-Za-z-]+)(?:=[\"']?([^\"'>]*)[\"']?)?")
_SPECIAL = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@\w+)?|(?<!\w)@[A-Za-z]\w{3,31}")
_KINDS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
    "span": "spoiler", "a": "text_link", "code": "code", "pre": "pre", "blockquote": "blockquote",
    "tg-emoji": "custom_emoji",
}  # fmt: skip
_NAMED = frozenset({"lt", "gt", "amp", "quot"})
Object: TypeAlias = dict[str, Any]  # an object of the Bot API, as it is on the wire
BOT_ID = 4_200_000
TOKEN = f"{BOT_ID}:local-token-for-tests-0123456789abc"
DAY_S = 86_400.0
MOST = 100
REMEMBERED = 1000
NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
OTHER_POLLER = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
HOOKED = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


def units(text: str) -> int:
    """The length in UTF-16 code units, which is how every offset and limit is counted."""
    return len(text.encode("utf-16-le")) // 2


def found_in(text: str) -> list[Object]:
    """The entities (commands and mentions) that Telegram itself marks in what people write.

    https://core.telegram.org/bots/api#messageentity
    """
    return [
        {
            "type": "bot_command" if match[0].startswith("/") else "mention",
            "offset": units(text[: match.start()]),
            "length": units(match[0]),
        }
        for match in _SPECIAL.finditer(text)
    ]


def marked_in(text: str) -> list[str]:
    """The texts of those commands and mentions."""
    return _SPECIAL.findall(text)


def parsed(text: str, mode: str | None) -> tuple[str, list[Object]]:
    """The visible text and its entities. HTML and plain text are supported, no other parse mode."""
    if not mode:
        return text, found_in(text)
    if mode.lower() != "html":
        raise bad("unsupported parse_mode")
    return _Html().read(text)


class _Html:
    """Parses one text with tags."""

    def __init__(self) -> None:
        self._out = ""
        self._open: list[tuple[str, int, Object]] = []
        self._entities: list[Object] = []

    def read(self, text: str) -> tuple[str, list[Object]]:
        place = 0
        for match in _TOKEN.finditer(text):
            self._out += text[place : match.start()]
            place = match.end()
            self._token(match, len(text[: match.start()].encode()))
        if self._open:
            raise bad(f"can't parse entities: Can't find end tag corresponding to start tag \"{self._open[-1][0]}\"")
        self._out += text[place:]
        entities = sorted((each for each in self._entities if each["length"]), key=lambda each: int(each["offset"]))
        return self._out, entities

    def _token(self, match: re.Match[str], at: int) -> None:
        closing, tag, attributes, character = match[1], (match[2] or "").lower(), match[3] or "", match[4]
        if character is not None:
            known = character in _NAMED or character.startswith("#")
            self._out += html.unescape(match[0]) if known else match[0]
        elif closing:
            self._end(tag, at)
        elif tag not in _KINDS:
            raise bad(f'can\'t parse entities: Unsupported start tag "{tag}" at byte offset {at}')
        else:
            about = {name: html.unescape(value or "") for name, value in _ATTRIBUTE.findall(attributes)}
            self._open.append((tag, units(self._out), _entity(tag, about)))

    def _end(self, tag: str, at: int) -> None:
        if not self._open:
            raise bad(f"can't parse entities: Unexpected end tag at byte offset {at}")
        name, start, entity = self._open.pop()
        if tag not in {name, ""}:
            raise bad(
                f'can\'t parse entities: Unmatched end tag at byte offset {at}, expected "</{name}>", found "</{tag}>"'
            )
        self._entities.append(
            {"type": entity.pop("type"), "offset": start, "length": units(self._out) - start, **entity}
        )


def _entity(tag: str, about: dict[str, str]) -> Object:
    entity: Object = {"type": _KINDS[tag]}
    if tag == "a":
        entity["url"] = about.get("href", "")
    if tag == "code" and about.get("class", "").startswith("language-"):
        entity["language"] = about["class"].removeprefix("language-")
    return entity


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
    """The whole state: plain data, so that it can be saved in a file and outlive the process that serves it."""

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


@dataclass
class Queue:
    """The updates of one bot, as https://core.telegram.org/bots/api#getting-updates describes them.

    An update stays until a *later* getUpdates names a higher offset; it is kept for 24 hours at most; of two programs that poll
    at once the earlier is ended with 409; the list of allowed updates is remembered.
    """

    state: State
    now: Callable[[], float] = time.time
    reorder: bool = False  # on order: a batch comes in the wrong order
    polls: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _poller: asyncio.Event | None = None

    def add(self, kind: str, what: Object) -> int | None:
        """Queue an update; returns its id, None when the bot did not allow this kind.

        The queue holds a copy: an update shows what was so when it happened, whatever becomes of the message.
        """
        state = self.state
        wanted = kind in state.allowed if state.allowed else kind not in NOT_BY_DEFAULT
        if not wanted:
            return None
        update_id = state.next_update
        state.next_update += 1
        state.waiting.append(PendingUpdate({"update_id": update_id, kind: deepcopy(what)}, self.now()))
        self.notify()
        return update_id

    def jump(self, to: int = 1000) -> None:
        """Jump to another update id: after a week without updates the next one is random, and may be a lower one.

        https://core.telegram.org/bots/api#update
        """
        self.state.next_update = to

    def repeat(self, count: int = 1) -> None:
        """Deliver the latest confirmed updates once more, as after a confirmation that was lost."""
        self.state.again += self.state.confirmed[-count:] if count else []
        self.notify()

    def confirm(self, offset: int) -> None:
        """Confirm all updates before this offset; a negative one forgets all but so many.

        https://core.telegram.org/bots/api#getupdates (`offset`)
        """
        state = self.state
        self.forget_old()
        if offset <= 0:
            state.waiting = state.waiting[offset:] if offset else state.waiting
            return
        gone = [each for each in state.waiting if each.update["update_id"] < offset]
        state.waiting = [each for each in state.waiting if each.update["update_id"] >= offset]
        state.confirmed = [*state.confirmed, *gone][-REMEMBERED:]

    def forget_old(self) -> None:
        """Drop updates that are older than 24 hours. https://core.telegram.org/bots/api#getting-updates"""
        self.state.waiting = [each for each in self.state.waiting if self.now() - each.at < DAY_S]

    async def poll(self, offset: int, limit: int, timeout_s: float, allowed: Sequence[str] | None) -> list[Object]:
        """Wait up to `timeout_s` for the first update. https://core.telegram.org/bots/api#getupdates"""
        self.polls += 1
        if self.state.hook is not None:
            raise ApiError(409, HOOKED)
        if allowed is not None:
            self.state.allowed = list(allowed)
        if self._poller is not None:
            self._poller.set()
        sent_away = self._poller = asyncio.Event()
        self.confirm(offset)
        self.notify()
        try:
            return await self._wait(min(max(limit, 1), MOST), timeout_s, sent_away)
        finally:
            self._poller = None if self._poller is sent_away else self._poller

    async def _wait(self, limit: int, timeout_s: float, sent_away: asyncio.Event) -> list[Object]:
        until = asyncio.get_running_loop().time() + timeout_s
        while not (batch := self._batch(limit)):
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await either(self.changed, sent_away, timeout_s=left)
            if sent_away.is_set():
                raise ApiError(409, OTHER_POLLER)
        return batch

    def _batch(self, limit: int) -> list[Object]:
        state = self.state
        again, state.again = state.again[:limit], state.again[limit:]
        batch = [each.update for each in [*again, *state.waiting][:limit]]
        return batch[::-1] if self.reorder else batch

    def notify(self) -> None:
        """Wake everything that waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


async def either(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait for the first of the events, or until the timeout."""
    waits = {asyncio.ensure_future(each.wait()) for each in events}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
