"""Finds what is wrong with a screen after a streaming message: all of it must be seen once, without a cursor or an open card."""

from collections import Counter
from collections.abc import Sequence
from itertools import compress, product

from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import MAY_REPEAT, Surety
from everturn.outbox.rules.outbox_texts import NOTHING_SAID, REPLACES, SUPERSEDED
from everturn.testing import OPEN_CARD, ShownMessage
from tests.crash.asking import REQUEST
from tests.crash.noting import Noting

CURSOR = " ▌"
DELIVERY_REQUEST = outbox_texts.request(0).partition("/resend")[0]
BESIDE = (DELIVERY_REQUEST, outbox_texts.SENT_AGAIN, outbox_texts.NOT_OPEN, outbox_texts.NOTHING)


def text_of(text: str) -> list[str]:
    """The words of a text; the ticks around code are none: parts close and open it again, wherever a line is split."""
    return [word for word in text.split() if word.strip("`")]


def asks_about_delivery(platform: Noting) -> bool:
    """Whether the chat is asked if something arrived."""
    return any(text.startswith(DELIVERY_REQUEST) for text in platform.texts("one"))


def faults_of(platform: Noting, whole: str, *, dead: bool = False) -> list[str]:
    """Where the platform cannot tell, a message may be left above one that says it replaces it. What it refused to edit may
    be left as it was, beside what replaces it and says so. All the rest is seen once; of a reply that is a dead letter some
    may be missing, or unfinished, and nothing is seen twice.
    """
    shown = [each for each in platform.screen if each.chat == "one" and _is_of_the_answer(each.text)]
    marks, known = sum(map(_is_marked, shown)), platform.surety is not Surety.NEITHER
    wrong = ["more is marked than was refused"] * (known and marks > platform.refusals.total())
    optional = [place for place in range(len(shown)) if _may_be_left(platform, shown, place)]
    for choice in product([True, False], repeat=len(optional)):
        left = set(compress(optional, choice))
        if _fits(platform, [each.text for place, each in enumerate(shown) if place not in left], whole, dead=dead):
            return wrong
    return [*wrong, f"{[each.text for each in shown]} is not {whole!r}, met {platform.met}"]


def _is_of_the_answer(text: str) -> bool:
    return not REQUEST.match(text) and not text.startswith(BESIDE)


def _is_marked(shown: ShownMessage) -> bool:
    return REPLACES in shown.text or MAY_REPEAT in shown.text


def _may_be_left(platform: Noting, shown: Sequence[ShownMessage], place: int) -> bool:
    """Whether a part is no part of the answer any more: what came in its place says so."""
    name = _part_of(shown[place])
    later = [each for each in shown[place + 1 :] if _part_of(each) == name]
    delivery_unknown = platform.surety is Surety.NEITHER and bool(later)
    return all(map(_is_marked, later)) and (delivery_unknown or shown[place].id in platform.refusals)


def _part_of(shown: ShownMessage) -> list[str]:
    """The streaming message and the place in it; what replaces a part has the same, and a number behind it."""
    return shown.key.split("-")[:2]


def _fits(platform: Noting, texts: Sequence[str], whole: str, *, dead: bool) -> bool:
    seen = "\n".join(texts)
    if not dead and (CURSOR.strip() in seen or OPEN_CARD in seen):
        return False
    for text in (REPLACES, SUPERSEDED, NOTHING_SAID, CURSOR, OPEN_CARD):
        seen = seen.replace(text, "")
    said, expected = text_of(seen), text_of(whole)
    if dead:
        return all(said.count(word) <= times for word, times in Counter(expected).items())
    order = sorted if platform.refusals else list  # what replaces a part stands beneath those that came after it
    repeated = [[*expected, *text_of(MAY_REPEAT)]] if platform.surety is Surety.NEITHER else []
    return order(said) in [order(text) for text in (expected, *repeated)]
