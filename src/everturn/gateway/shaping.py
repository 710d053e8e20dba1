"""The last step of a bubble: whatever is on the screen, in the end it shows what the row says, once, without a cursor."""

from __future__ import annotations

from contextlib import suppress

from everturn import points
from everturn.decide.bubble_words import NOTHING_SAID, SUPERSEDED, beneath
from everturn.decide.delivery import marked
from everturn.decide.streaming import Look, room, visible, with_marks
from everturn.decide.text import split
from everturn.errors import Refused
from everturn.gateway.bubbles import Live
from everturn.gateway.hands import Hand
from everturn.model import Reply
from everturn.store.operations.bubbles import BROKEN_OFF, PAUSED

MOST_TIMES = 3  # so often a part is replaced that can not be changed


async def shape(hand: Hand, reply: Reply, live: Live | None, look: Look) -> bool:
    """Repair any difference, by content. It may be done again from the beginning at any time. False: there is nothing to say.

    Raises what the platform raises, and Held where a part may be out that must not be sent again.
    """
    await hand.resolve()
    text = _text(hand, reply, live, look)
    points.reached("send.before")
    while not await _repaired(hand, text, final=reply.kind != PAUSED):
        pass
    points.reached("send.after")
    return bool(text)


def _text(hand: Hand, reply: Reply, live: Live | None, look: Look) -> str:
    if reply.kind not in {BROKEN_OFF, PAUSED}:
        text = visible(reply.text, finished=True, look=look)
    else:
        said = live.text if live is not None and live.text else hand.bubble.said
        text = beneath(visible(said, finished=False, look=look), reply.text)
    return marked(text) if reply.marked and text else text


async def _repaired(hand: Hand, text: str, *, final: bool) -> bool:
    """False when a part was found to be gone, so that its place has to be filled anew."""
    limits, replaces = hand.platform.limits, hand.bubble.replaces
    pieces = with_marks(split(text, room(limits.text, limits.unit, replaces), limits.unit), replaces)
    for place, piece in enumerate(pieces):
        if place == len(hand.out) or not hand.out[place]:
            await hand.add(place, piece)
        try:
            await (hand.end if final else hand.change)(place, piece)
        except Refused:
            if replaces.count(place) >= MOST_TIMES:
                raise
            await hand.lose(place)
            return False
    words = SUPERSEDED if pieces else NOTHING_SAID
    if final:
        await _take_in_hand(hand, words)
    for place in reversed(range(len(pieces), len(hand.out))):
        await _clear(hand, place, words, final=final)
    return True


async def _take_in_hand(hand: Hand, words: str) -> None:
    """The next part may be out, and the answer does not need it: nothing that nobody meant is left on the screen."""
    place = len(hand.out)
    if hand.bubble.repeats:
        await hand.find(place, words)
    elif place in hand.bubble.replaces:
        await hand.add(place, _replacing(words))


def _replacing(words: str) -> str:
    return with_marks([words], (0,))[0]


async def _clear(hand: Hand, place: int, words: str, *, final: bool) -> None:
    """A part that the answer does not need is taken away at last; where that can not be it says why it is there. One that
    replaces another stays: that one may be above, as it was left.
    """
    if place in hand.bubble.replaces:
        words = _replacing(words)
    elif final and hand.out[place] and await hand.remove(place):
        return
    if not hand.out[place]:
        return
    with suppress(Refused):  # what is left there is no part of the answer
        await (hand.end if final else hand.change)(place, words)
