"""Checks what a person finds in a chat after all the deaths: each answer whole, and beside it only what says why it is there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.outbox_texts import REPLACES

CURSOR = " ▌"


@dataclass(frozen=True)
class ShownReply:
    """One message of ours, without its mark."""

    text: str
    marked: bool

    @property
    def said(self) -> str:
        """Without the cursor."""
        return self.text.removesuffix(CURSOR)

    def is_of_the_same(self, other: "ShownReply") -> bool:
        """Whether the one may be as much of an answer as the other."""
        return self.said.startswith(other.said) or other.said.startswith(self.said)


@dataclass(frozen=True)
class Found:
    """`lost`: answers that are nowhere whole. `doubled`: whole ones that stand there again and do not say so. `marked`: messages
    that say that they repeat or replace another. `left`: messages that are no whole answer, and are replaced by none beneath.
    """

    lost: int = 0
    doubled: int = 0
    marked: int = 0
    left: int = 0

    def __add__(self, other: "Found") -> "Found":
        return Found(
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.marked + other.marked,
            self.left + other.left,
        )


def read_reply(text: str) -> ShownReply:
    """A message of ours, as it is read."""
    plain = text.removeprefix(REPLACES).removesuffix(MAY_REPEAT)
    return ShownReply(plain.strip("\n"), marked=plain != text)


def found(texts: Sequence[str], answers: Sequence[str]) -> Found:
    """Look at a whole chat. What was in flight at a death cannot be changed any more: it stays as it was, half or with a cursor,
    and whatever follows it of the same answer says so.
    """
    shown = [read_reply(text) for text in texts]
    whole = Counter(each.text for each in shown if each.text in answers)
    plain = Counter(each.text for each in shown if each.text in answers and not each.marked)
    first = {each.text: each.marked for each in reversed(shown)}
    doubled = sum(count - (not first[text]) for text, count in plain.items())
    left = [
        each
        for each, beneath in zip_longest(shown, shown[1:])
        if each.text not in answers and not (beneath and beneath.marked and beneath.is_of_the_same(each))
    ]
    lost = sum(not whole[each] for each in answers)
    return Found(lost, doubled, sum(each.marked for each in shown), len(left))


def is_whole(texts: Sequence[str], answer: str) -> bool:
    """Whether the whole answer stands there, marked or not."""
    return any(read_reply(text).text == answer for text in texts)
