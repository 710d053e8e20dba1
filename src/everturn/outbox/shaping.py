"""The final delivery of a streaming message: the chat shows the text of the outbox row, once, without a cursor."""

from __future__ import annotations

from contextlib import suppress

from everturn import points
from everturn.errors import Refused
from everturn.model import Reply
from everturn.outbox.bubbles import StreamingMessage
from everturn.outbox.rows.bubbles import BROKEN_OFF, PAUSED
from everturn.outbox.rules.bubble_texts import NOTHING_SAID, SUPERSEDED, beneath
from everturn.outbox.rules.delivery import marked
from everturn.outbox.rules.streaming import Look, room, visible, with_marks
from everturn.outbox.rules.text import split
from everturn.outbox.writer import MessageWriter

MOST_TIMES = 3  # how often a part that cannot be edited is replaced


async def shape(writer: MessageWriter, reply: Reply, live: StreamingMessage | None, look: Look) -> bool:
    """Bring every part to the final text, by content; may be repeated from the start. False: there is nothing to say.

    Raises what the platform raises, and DeliveryHeld where a part may be out that must not be sent again.
    """
    await writer.resolve()
    text = _text(writer, reply, live, look)
    points.reached("send.before")
    while not await _repaired(writer, text, final=reply.kind != PAUSED):
        pass
    points.reached("send.after")
    return bool(text)


def _text(writer: MessageWriter, reply: Reply, live: StreamingMessage | None, look: Look) -> str:
    if reply.kind not in {BROKEN_OFF, PAUSED}:
        text = visible(reply.text, finished=True, look=look)
    else:
        said = live.text if live is not None and live.text else writer.bubble.said
        text = beneath(visible(said, finished=False, look=look), reply.text)
    return marked(text) if reply.marked and text else text


async def _repaired(writer: MessageWriter, text: str, *, final: bool) -> bool:
    """Edit, add and remove parts; False when a part was found to be gone, so that its place has to be filled again."""
    limits, replaces = writer.platform.limits, writer.bubble.replaces
    pieces = with_marks(split(text, room(limits.text, limits.unit, replaces), limits.unit), replaces)
    for place, piece in enumerate(pieces):
        if place == len(writer.out) or not writer.out[place]:
            await writer.add(place, piece)
        try:
            await (writer.end if final else writer.change)(place, piece)
        except Refused:
            if replaces.count(place) >= MOST_TIMES:
                raise
            await writer.lose(place)
            return False
    text = SUPERSEDED if pieces else NOTHING_SAID
    if final:
        await _resolve_extra_part(writer, text)
    for place in reversed(range(len(pieces), len(writer.out))):
        await _clear(writer, place, text, final=final)
    return True


async def _resolve_extra_part(writer: MessageWriter, text: str) -> None:
    """Find or replace a next part that may be out and that the answer does not need, so that no stray text is left."""
    place = len(writer.out)
    if writer.bubble.repeats:
        await writer.find(place, text)
    elif place in writer.bubble.replaces:
        await writer.add(place, _replacing(text))


def _replacing(text: str) -> str:
    return with_marks([text], (0,))[0]


async def _clear(writer: MessageWriter, place: int, text: str, *, final: bool) -> None:
    """Remove a part that the answer does not need; where that cannot be, its text says why it is there. A part that
    replaces another stays: the other may still be above it.
    """
    if place in writer.bubble.replaces:
        text = _replacing(text)
    elif final and writer.out[place] and await writer.remove(place):
        return
    if not writer.out[place]:
        return
    with suppress(Refused):  # what is left there is no part of the answer
        await (writer.end if final else writer.change)(place, text)
