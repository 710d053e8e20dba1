"""Writes to Matrix: messages under a transaction id, edits, files, reactions and typing.

A transaction id is made from the key of a reply, so that a repetition appears once. The server recognises it for a day, and
for the device that our token belongs to; therefore the key stands in the message as well, and history can be searched for it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any

from everturn.errors import Refused
from everturn.model import Attachment, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import Choice, Outgoing, TextLimits
from everturn.platform.matrix.calls import Homeserver, best_effort
from everturn.platform.matrix.reading import is_last
from everturn.platform.matrix.rooms import KnownRooms
from everturn.platform.matrix.rules import NO_PLAIN_TEXT, TEXT_WEIGHT, MatrixNotFound, exact_html, to_html, weight
from everturn.platform.matrix.wire import CHOICES, MARKS, MatrixEvent, content_of, understood

KEY = "org.everturn.key"
HTML = "org.matrix.custom.html"
TYPING_S = 6.0
PAGES = 10  # how far back a message is searched for: in our own events, of which each edit is one
FALLBACK_CHARS = 200
KEPT = 10_000
KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


class MatrixWriter:
    """Sends, edits and deletes. Matrix recognises our keys for a day: class A; after that messages can be read back."""

    surety = Surety.KEYED
    limits = TextLimits(text=TEXT_WEIGHT, unit=weight)

    def __init__(self, server: Homeserver, user: str, rooms: KnownRooms) -> None:
        self._server = server
        self._rooms = rooms
        self._user = user
        self._there: dict[str, bool] = {}  # of messages that this process sent or edited: whether they are still there

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Send one message; the same key again is the same message."""
        return await self._put(to, _text(text), key)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace the text of a message. Each edit is an event of its own: the last one is what people see.

        A homeserver accepts an edit of a redacted message, too, and nobody sees it: that is refused here.
        """
        await self._check(to.chat_id or "")
        if not await self._is_there(to.chat_id or "", message_id):
            raise Refused("the message was deleted")
        new = _text(text)
        cut = text if len(text) <= FALLBACK_CHARS else f"{text[:FALLBACK_CHARS]}…"
        content = {
            "msgtype": "m.text",
            "body": f"* {cut}",  # for clients without edits
            "m.new_content": {**new, "m.mentions": {}},
            "m.mentions": {},
            "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
        }
        await self._server.put(to.chat_id or "", "m.room.message", content, uuid.uuid4().hex)

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Delete a message."""
        with suppress(MatrixNotFound):
            await self._server.redact(to.chat_id or "", message_id, uuid.uuid4().hex)
        self.gone(message_id)

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """Send an approval request, its text as it is. Matrix has no buttons: each choice is an emoji reaction of ours beneath
        it, for people to press.
        """
        offered = dict(zip(MARKS, choices, strict=False))
        lines = "\n".join(f"{mark} {choice.label}" for mark, choice in offered.items())
        whole = f"{text}\n\n{lines}" if lines else text
        content = {"msgtype": "m.text", "body": whole, "format": HTML, "formatted_body": exact_html(whole)}
        commands = {mark: choice.command for mark, choice in offered.items()}
        number = await self._put(to, {**content, CHOICES: commands}, key)
        await self._offer(to.chat_id or "", number, offered, key)
        return number

    async def _offer(self, room: str, number: str, marks: Iterable[str], key: str) -> None:
        """Put the emoji beneath an approval request; a repetition does no harm."""
        for place, mark in enumerate(marks):
            await best_effort(self._mark(room, number, mark, f"everturn-{key}-{place}"))

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:  # noqa: ARG002  the key is enough
        """The id of the message with this key, among our newest messages in that room. A crash may have left an approval
        request without some of its emoji: they are added now.
        """
        wanted, place = json.dumps({"senders": [self._user], "types": ["m.room.message"]}), ""
        for _ in range(PAGES):
            page = await self._server.messages(to.chat_id or "", place, wanted)
            for event in understood(page.chunk):
                if event.sender == self._user and event.content.get(KEY) == key:
                    await self._offer(to.chat_id or "", event.event_id, _offered(event), key)
                    return event.event_id
            if is_last(page, place):
                return None
            place = page.end or ""
        return None

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Send one file as an image, audio or other file."""
        await self._check(to.chat_id or "")
        content = await asyncio.to_thread(file.path.read_bytes)
        address = await self._server.upload(content, file.name, file.mime)
        message = {
            **(_text(file.text) if file.text else {"body": file.name}),
            "msgtype": KINDS.get(file.mime.partition("/")[0], "m.file"),
            "filename": file.name,
            "url": address,
            "info": {"mimetype": file.mime, "size": len(content)},
        }
        return await self._put(to, message, key)

    async def typing(self, to: SessionSource) -> None:
        """Show the typing indicator."""
        await best_effort(self._server.typing(to.chat_id or "", self._user, TYPING_S))

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put an emoji on a message, in place of our last one."""
        await best_effort(self._react(to.chat_id or "", message_id, mark))

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Download a file in chunks."""
        return self._server.download(attachment.ref)

    async def _put(self, to: SessionSource, content: dict[str, Any], key: str) -> str:
        await self._check(to.chat_id or "")
        whole = {**content, **_related(to), KEY: key}
        number = await self._server.put(to.chat_id or "", "m.room.message", whole, f"everturn-{key}")
        self._note(number, there=True)
        return number

    async def _check(self, room: str) -> None:
        """Raise Refused for an encrypted room: the homeserver must not read what is written there, nor our answer."""
        if await self._rooms.is_encrypted(room):
            raise Refused(NO_PLAIN_TEXT)

    def gone(self, message_id: str) -> None:
        """Record that somebody deleted a message."""
        self._note(message_id, there=False)

    async def _is_there(self, room: str, message_id: str) -> bool:
        """Whether a message of ours still exists: asked once for one of an earlier process; later deletions are noticed."""
        if message_id not in self._there:
            self._note(message_id, there=bool((await self._server.event(room, message_id)).content))
        return self._there[message_id]

    def _note(self, message_id: str, *, there: bool) -> None:
        if len(self._there) >= KEPT:
            self._there.pop(next(iter(self._there)))
        self._there[message_id] = there

    async def _react(self, room: str, message_id: str, mark: str) -> None:
        ours = [
            each
            for each in understood((await self._server.reactions(room, message_id)).chunk)
            if each.sender == self._user
        ]
        for each in ours:
            if content_of(each.content).key != mark:
                await self._server.redact(room, each.event_id, uuid.uuid4().hex)
        if mark and all(content_of(each.content).key != mark for each in ours):
            await self._mark(room, message_id, mark, uuid.uuid4().hex)

    async def _mark(self, room: str, message_id: str, mark: str, txn: str) -> None:
        relation = {"rel_type": "m.annotation", "event_id": message_id, "key": mark}
        await self._server.put(room, "m.reaction", {"m.relates_to": relation}, txn)


def _text(text: str) -> dict[str, Any]:
    content = {"msgtype": "m.text", "body": text}
    html = to_html(text)
    return {**content, "format": HTML, "formatted_body": html} if html is not None else content


def _offered(event: MatrixEvent) -> list[str]:
    choices = event.content.get(CHOICES)
    return [mark for mark in MARKS if mark in choices] if isinstance(choices, dict) else []


def _related(to: SessionSource) -> dict[str, Any]:
    """The relation of a message: its thread, and the message that it replies to, whose sender alone is mentioned."""
    reply: dict[str, Any] = {"m.in_reply_to": {"event_id": to.message_id}} if to.message_id else {}
    mentions = {"user_ids": [to.user_id]} if reply and to.user_id and to.chat_type != "dm" else {}
    if to.thread_id:
        last = reply or {"m.in_reply_to": {"event_id": to.thread_id}}
        reply = {"rel_type": "m.thread", "event_id": to.thread_id, "is_falling_back": not reply, **last}
    return {"m.mentions": mentions} | ({"m.relates_to": reply} if reply else {})
