"""Sending one reply: the parts that are not out yet, a bubble's last shape, or a file; each recorded when it is out."""

from __future__ import annotations

import asyncio

from everturn import points
from everturn.decide import backlog, doubt_words
from everturn.decide.admission_words import answer_buttons
from everturn.decide.approval_words import buttons
from everturn.decide.delivery import marked
from everturn.decide.display import answering
from everturn.decide.outgoing import LOST, beneath_file, not_here
from everturn.decide.streaming import Look, visible
from everturn.decide.text import split
from everturn.decide.uploads import Upload
from everturn.errors import Refused, TryLater
from everturn.gateway.bubbles import Bubbles
from everturn.gateway.hands import Hand, Held
from everturn.gateway.parts import Parts
from everturn.gateway.screens import Screen
from everturn.gateway.shaping import shape
from everturn.model import Bubble, Reply, SessionSource, StoredFile
from everturn.platform.interface import CanAsk, CanEdit, CanReadBack, CanSend, CanSendFiles, Choice, Outgoing
from everturn.store.operations.bubbles import REPLY
from everturn.store.operations.outbox import (
    SILENCE,
    record_part,
    record_progress,
    record_sent,
    record_shown,
    record_silence,
)
from everturn.store.operations.progress import PROGRESS

NOT_CONNECTED_S = 60.0


class Delivering:
    """How each kind of reply leaves."""

    def __init__(self, parts: Parts, bubbles: Bubbles) -> None:
        self._parts = parts
        self._bubbles = bubbles

    async def send(self, reply: Reply) -> bool:
        """Send every part that is not out yet, and record it; True when there is more to send. Raises PlatformError, Held."""
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
        """The parts that are not out yet, each with its key and recorded when it is out."""
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

    async def _shape(self, platform: CanSend, screen: Screen, reply: Reply, bubble: Bubble) -> bool:
        """The last step of what was shown while it grew; what this process knows of its screen is taken over."""
        live = await self._bubbles.settled(bubble, reply.id, reply.claim)
        if live is not None and live.hold_s > 0:
            raise TryLater(f"{reply.source.platform} asked us to wait", live.hold_s)
        hand = live.hand if live is not None else None
        if hand is None:
            hand = Hand(
                self._parts, reply.source, platform, screen,
                row=reply.id, claim=reply.claim, out=reply.sent_parts, bubble=bubble,
            )  # fmt: skip
        try:
            spoken = await shape(hand, reply, live, self._parts.settings.display.look(reply.source))
        except Held:
            await hand.give_up()
            raise
        kind = reply.kind if spoken or reply.kind != REPLY else SILENCE
        more = await self._parts.store.run(record_shown, reply, kind, hand.out, hand.known, self._parts.clock.now())
        self._bubbles.forget(live)
        points.reached("send.committed")
        return more

    async def _silent(self, reply: Reply) -> bool:
        """The agent said that it has nothing to say: that is kept, and nobody hears it."""
        more = await self._parts.store.run(record_silence, reply, self._parts.clock.now())
        points.reached("send.committed")
        return more

    async def _send_file(self, platform: CanSend, reply: Reply, file: StoredFile) -> bool:
        """One file with its words beneath it, or after it; where files are not taken, its name."""
        limits = platform.limits
        if isinstance(platform, CanSendFiles):
            caption = limits.text if limits.caption is None else limits.caption
            pieces = beneath_file(reply.text, caption, limits.text, limits.unit, doubtful=reply.marked)
        else:
            words = marked(reply.text) if reply.marked else reply.text
            pieces = split(not_here(file.name, words), limits.text, limits.unit)
        return await self._send_each(platform, reply, pieces, self._parts.settings.display.look(reply.source))

    async def _outgoing(self, file: StoredFile, words: str) -> Outgoing:
        media, upload = self._parts.media, Upload(file.id, file.name)
        if media is None or not await asyncio.to_thread(media.touch, upload):
            raise Refused(LOST)
        return Outgoing(media.path_of(upload), file.name, file.type, words)

    async def _edit(self, platform: CanEdit, reply: Reply) -> bool:
        """Replace what is on the screen; doing so again does no harm."""
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
    """A part. No part of a question has markup, and beneath the last one stand its buttons, where the platform has them."""
    choices = _choices(reply)
    if choices and isinstance(platform, CanAsk):  # asked last: it is slow
        return await platform.ask(to, piece, choices if last else [], key)
    return await platform.send(to, piece, key)


def _choices(reply: Reply) -> list[Choice]:
    """The buttons of a question; a reply that is none has none."""
    match reply.kind:
        case backlog.QUESTION | backlog.QUESTION_OF_ONE:
            shown = answer_buttons(several=reply.kind == backlog.QUESTION)
        case "question":  # of an approval
            shown = buttons(reply.id)
        case "doubt" if reply.turn is not None:
            shown = doubt_words.buttons(reply.turn)
        case _:
            return []
    return [Choice(label, command) for label, command in shown]
