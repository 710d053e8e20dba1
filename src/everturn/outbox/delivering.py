"""Sends one reply: its unsent parts, the final text of a streaming message, or a file; records each part when it is sent."""

from __future__ import annotations

import asyncio

from everturn import points
from everturn.errors import Refused, TryLater
from everturn.home.rules.files import Upload
from everturn.inbox.rules import backlog
from everturn.lifecycle.parts import Parts
from everturn.model import Bubble, Reply, SessionSource, StoredFile
from everturn.outbox.bubbles import Bubbles
from everturn.outbox.rows.bubbles import REPLY
from everturn.outbox.rows.outbox import SILENCE, record_part, record_progress, record_sent, record_shown, record_silence
from everturn.outbox.rules import unknown_texts
from everturn.outbox.rules.delivery import marked
from everturn.outbox.rules.display import answering
from everturn.outbox.rules.files import LOST, beneath_file, not_here
from everturn.outbox.rules.streaming import Look, visible
from everturn.outbox.rules.text import split
from everturn.outbox.screens import MessageScreen
from everturn.outbox.shaping import shape
from everturn.outbox.writer import DeliveryHeld, MessageWriter
from everturn.people.rules.admission_texts import answer_buttons
from everturn.platform.interface import CanAsk, CanEdit, CanReadBack, CanSend, CanSendFiles, Choice, Outgoing
from everturn.turns.rows.progress import PROGRESS
from everturn.turns.rules.approval_texts import buttons

NOT_CONNECTED_S = 60.0


class Delivering:
    """Sends each kind of reply through its platform."""

    def __init__(self, parts: Parts, bubbles: Bubbles) -> None:
        self._parts = parts
        self._bubbles = bubbles

    async def send(self, reply: Reply) -> bool:
        """Send and record every unsent part; True when there is more to send. Raises PlatformError, DeliveryHeld."""
        platform = self._parts.sender(reply.source.platform)
        if platform is None:
            raise TryLater(f"{reply.source.platform} is not connected", NOT_CONNECTED_S)
        if reply.file is not None:
            return await self._send_file(platform, reply, reply.file)
        if reply.kind == PROGRESS and reply.sent_parts and isinstance(platform, CanEdit):
            return await self._edit(platform, reply)
        if reply.bubble is not None and (screen := self._parts.screen(reply.source.platform)) is not None:
            return await self._shape(platform, screen, reply, reply.bubble)
        look = self._parts.settings.display.look(reply.source)
        said = visible(reply.text, finished=True, look=look) if reply.kind == REPLY else reply.text
        if not said and reply.kind == REPLY:
            return await self._silent(reply)
        text = marked(said) if reply.marked else said
        return await self._send_each(platform, reply, split(text, platform.limits.text, platform.limits.unit), look)

    async def _send_each(self, platform: CanSend, reply: Reply, pieces: list[str], look: Look) -> bool:
        """Send the unsent parts, each with its key, and record each when it is sent."""
        out = reply.sent_parts
        for place in range(len(out), len(pieces)):
            key, piece = f"{reply.id}-{place}", pieces[place]
            points.reached("send.before")
            number = None
            if reply.look and place == len(reply.sent_parts) and isinstance(platform, CanReadBack):
                number = await platform.find(reply.source, key, piece)  # it may be out since the send that was cut off
            last = place + 1 == len(pieces)
            to = answering(reply.source, look, place)
            if number is None and place == 0 and reply.file is not None and isinstance(platform, CanSendFiles):
                number = await platform.send_file(to, await self._outgoing(reply.file, piece), key)
            out = (*out, number or await _send(platform, reply, to, piece, key, last=last))
            points.reached("send.after")
            if not last:
                await self._parts.store.run(record_part, reply, out)
        return await self._sent(reply, out)

    async def _shape(self, platform: CanSend, screen: MessageScreen, reply: Reply, bubble: Bubble) -> bool:
        """Deliver the final text of a streaming message, with what this process knows of its parts."""
        live = await self._bubbles.settle(bubble, reply.id, reply.claim)
        if live is not None and live.hold_s > 0:
            raise TryLater(f"{reply.source.platform} asked us to wait", live.hold_s)
        writer = live.writer if live is not None else None
        if writer is None:
            writer = MessageWriter(
                self._parts, reply.source, platform, screen,
                row=reply.id, claim=reply.claim, out=reply.sent_parts, bubble=bubble,
            )  # fmt: skip
        try:
            spoken = await shape(writer, reply, live, self._parts.settings.display.look(reply.source))
        except DeliveryHeld:
            await writer.mark_for_resend()
            raise
        kind = reply.kind if spoken or reply.kind != REPLY else SILENCE
        more = await self._parts.store.run(record_shown, reply, kind, writer.out, writer.known, self._parts.clock.now())
        self._bubbles.forget(live)
        points.reached("send.committed")
        return more

    async def _silent(self, reply: Reply) -> bool:
        """Record, without sending, an answer that only says that there is nothing to say."""
        more = await self._parts.store.run(record_silence, reply, self._parts.clock.now())
        points.reached("send.committed")
        return more

    async def _send_file(self, platform: CanSend, reply: Reply, file: StoredFile) -> bool:
        """Send one file with its text as the caption or after it; only its name where the platform takes no files."""
        limits = platform.limits
        if isinstance(platform, CanSendFiles):
            caption = limits.text if limits.caption is None else limits.caption
            pieces = beneath_file(reply.text, caption, limits.text, limits.unit, unknown=reply.marked)
        else:
            text = marked(reply.text) if reply.marked else reply.text
            pieces = split(not_here(file.name, text), limits.text, limits.unit)
        return await self._send_each(platform, reply, pieces, self._parts.settings.display.look(reply.source))

    async def _outgoing(self, file: StoredFile, text: str) -> Outgoing:
        media, upload = self._parts.media, Upload(file.id, file.name)
        if media is None or not await asyncio.to_thread(media.touch, upload):
            raise Refused(LOST)
        return Outgoing(media.path_of(upload), file.name, file.type, text)

    async def _edit(self, platform: CanEdit, reply: Reply) -> bool:
        """Edit the message that was sent; repeating the edit does no harm."""
        points.reached("send.before")
        await platform.edit(reply.source, reply.sent_parts[0], reply.text)
        points.reached("send.after")
        return await self._sent(reply, reply.sent_parts)

    async def _sent(self, reply: Reply, out: tuple[str, ...]) -> bool:
        store, now = self._parts.store, self._parts.clock.now()
        if reply.kind == PROGRESS:
            more = await store.run(record_progress, reply, out, now)
        else:
            more = await store.run(record_sent, reply, out, now)
        points.reached("send.committed")
        self._parts.contacts.sent(reply.source.platform, reply.source.account)
        return more


async def _send(platform: CanSend, reply: Reply, to: SessionSource, piece: str, key: str, *, last: bool) -> str:
    """Send a part. No part of a request has markup; the last one has the buttons, where the platform has them."""
    choices = _choices(reply)
    if choices and isinstance(platform, CanAsk):  # asked last: it is slow
        return await platform.ask(to, piece, choices if last else [], key)
    return await platform.send(to, piece, key)


def _choices(reply: Reply) -> list[Choice]:
    """The buttons of a request; none for other replies."""
    match reply.kind:
        case backlog.BACKLOG_REQUEST | backlog.BACKLOG_REQUEST_OF_ONE:
            shown = answer_buttons(several=reply.kind == backlog.BACKLOG_REQUEST)
        case "approval_request":
            shown = buttons(reply.id)
        case "delivery_request" if reply.turn is not None:
            shown = unknown_texts.buttons(reply.turn)
        case _:
            return []
    return [Choice(label, command) for label, command in shown]
