"""The last step of a bubble: whatever is on the screen, in the end it shows what the row says, once, without a cursor."""

from __future__ import annotations

from everturn import points
from everturn.decide.bubble_words import NOTHING_SAID, SUPERSEDED, beneath
from everturn.decide.delivery import marked
from everturn.decide.streaming import room, visible, with_marks
from everturn.decide.text import split
from everturn.errors import Refused
from everturn.gateway.bubbles import Live
from everturn.gateway.hands import Hand
from everturn.model import Reply
from everturn.store.operations.bubbles import BROKEN_OFF, PAUSED

MOST_TIMES = 3  # so often a part is replaced that can not be changed


async def shape(hand: Hand, reply: Reply, live: Live | None) -> None:
    """Repair any difference, by content. It may be done again from the beginning at any time.

    Raises what the platform raises, and Held where a part may be out that must not be sent again.
    """
    await hand.resolve()
    text = _text(hand, reply, live)
    points.reached("send.before")
    while not await _repaired(hand, text, final=reply.kind != PAUSED):
        pass
    points.reached("send.after")


def _text(hand: Hand, reply: Reply, live: Live | None) -> str:
    if reply.kind not in {BROKEN_OFF, PAUSED}:
        text = visible(reply.text, finished=True)
    else:
        said = live.text if live is not None and live.text else hand.bubble.said
        text = beneath(visible(said, finished=False), reply.text)
    return marked(text) if reply.marked and text else text


async def _repaired(hand: Hand, text: str, *, final: bool) -> bool:
    """False when a part was found to be gone, so that its place has to be filled anew."""
    limits, replaces = hand.platform.limits, hand.bubble.replaces
    pieces = with_marks(split(text, room(limits.text, limits.unit, replaces), limits.unit), replaces)
    rest = SUPERSEDED if pieces else NOTHING_SAID
    for place, piece in enumerate([*pieces, *[rest] * (len(hand.out) - len(pieces))]):
        if place == len(hand.out) or not hand.out[place]:
            await hand.add(place, piece)
        try:
            await (hand.end if final else hand.change)(place, piece)
        except Refused:
            if place >= len(pieces):
                continue  # what is left there is no part of the answer
            if replaces.count(place) >= MOST_TIMES:
                raise
            await hand.lose(place)
            return False
    return True
