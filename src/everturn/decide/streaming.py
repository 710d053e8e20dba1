"""An answer that grows on the screen: when to show more of it, and what of it may be seen already."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec.structs import replace

from everturn.decide.bubble_words import REPLACES
from everturn.decide.delivery import Doubtful
from everturn.decide.text import Unit, balanced, split
from everturn.model import Bubble

FIRST_WORDS = 4  # visible characters: a notification should already say something
PATIENT = 3  # so many intervals a little growth waits for more
SLOWEST_S = 10.0
LONGEST_SILENCE = 64
TAGS = ("think", "thinking", "thought", "reasoning", "reflection", "scratchpad")
SILENCE = frozenset(
    {
        ".", "..", "...", "…", "-", "🔇", "🤐", "silent", "silence", "(silent)", "(silence)", "[silent]", "[silence]", "no reply",
        "no_reply", "(no reply)", "[no reply]", "(no response)", "[no response]", "(nothing to say)", "(stays silent)", "(says nothing)",
    }
)  # fmt: skip
_NAMES = "|".join(TAGS)
_BLOCK = re.compile(rf"(?:^|(?<=\n))[ \t]*<({_NAMES})>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)
_UNFINISHED = re.compile(rf"(?:^|(?<=\n))[ \t]*<(?:{_NAMES})>.*\Z", re.DOTALL | re.IGNORECASE)
_HALF_TAG = re.compile(r"(?:^|(?<=\n))[ \t]*<([a-z]*)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often an answer is shown while it grows, and the mark that it is not finished."""

    enabled: bool = True
    interval_s: float = 0.8
    min_chars: int = 24
    cursor: str = " ▌"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What is new since the last change of the screen."""

    since_s: float  # since the last change; before the first: since there was a text
    grown: int  # characters; what is not a continuation counts as a whole
    first: bool = False  # nothing is on the screen
    boundary: bool = False  # the model has ended what it said for now
    slow: float = 1.0  # how much flood control has slowed us
    hold_s: float = 0.0  # the platform asked not to be called for so long


def wait_s(pace: Pace, growth: Growth) -> float:
    """How long to wait before the screen is changed; 0: now."""
    interval_s = slowed(pace, growth.slow)
    enough = growth.boundary or growth.grown >= pace.min_chars
    if growth.first and enough:
        return growth.hold_s
    least_s = interval_s if enough or growth.first else interval_s * PATIENT
    left_s = least_s - growth.since_s
    if not enough:  # look again meanwhile: it may have grown enough
        left_s = min(left_s, interval_s)
    return max(0.0, left_s, growth.hold_s)


def slowed(pace: Pace, slow: float) -> float:
    """The interval under flood control."""
    return max(pace.interval_s, min(SLOWEST_S, pace.interval_s * slow))


def visible(text: str, *, finished: bool) -> str:
    """The text without thinking blocks; while it is unfinished, also without what may yet become one, or silence."""
    text = _BLOCK.sub("", text)
    if not finished:
        text = _without_half_tag(_UNFINISHED.sub("", text))
        return "" if may_be_silence(text) else text
    return "" if is_silence(text) else text


def _without_half_tag(text: str) -> str:
    half = _HALF_TAG.search(text)
    return text[: half.start()] if half and any(tag.startswith(half[1].lower()) for tag in TAGS) else text


def is_silence(text: str) -> bool:
    """Whether an answer only says that there is nothing to say."""
    return len(text) <= LONGEST_SILENCE and _bare(text) in SILENCE


def may_be_silence(text: str) -> bool:
    """Whether an unfinished text may still become such an answer."""
    bare = _bare(text)
    return len(text) <= LONGEST_SILENCE and any(marker.startswith(bare) for marker in SILENCE)


def _bare(text: str) -> str:
    return text.strip().strip("*_`").strip().lower()


def growing(text: str, limit: int, unit: Unit, cursor: str) -> list[str]:
    """The parts of an unfinished text as they are shown: whole ones, and the last with the cursor and its code closed."""
    shown = visible(text, finished=False).rstrip()
    if len("".join(shown.split())) < FIRST_WORDS:
        return []
    *heads, last = split(shown, limit, unit)
    for tail in (cursor, ""):
        if unit(live := balanced(last, tail)) <= limit:
            return [*heads, live]
    return [*heads, last]


def resting(text: str, limit: int, unit: Unit) -> list[str]:
    """The same without a cursor, while nothing more comes for now."""
    return growing(text, limit, unit, "")


def grown(before: str, text: str) -> int:
    """By how much a text has grown; one that does not go on with what was there is new as a whole."""
    return len(text) - len(before) if text.startswith(before) else len(text)


def resolved(bubble: Bubble, action: Doubtful) -> Bubble:
    """What follows for a part that may be out: it is repeated under its key or looked for, marked, or not sent at all."""
    place = bubble.sending
    if place is None:
        return bubble
    if action is Doubtful.MARK:
        return replace(bubble, sending=None, replaces=(*bubble.replaces, place))
    if action in {Doubtful.ASK, Doubtful.DROP}:
        return replace(bubble, sending=None, hold=str(action))
    return replace(bubble, sending=None, repeats=True)


def given_up(bubble: Bubble, place: int) -> Bubble:
    """The bubble when the owner's policy leaves it: should somebody send it after all, the part in doubt is marked."""
    return replace(bubble, sending=None, hold=None, replaces=(*bubble.replaces, place))


def part_key(name: str, place: int, replaces: tuple[int, ...] = ()) -> str:
    """The key that a part is sent under: the same for every repetition; another one for what replaces it."""
    times = replaces.count(place)
    return f"{name}-{place}-{times}" if times else f"{name}-{place}"


def room(limit: int, unit: Unit, replaces: tuple[int, ...]) -> int:
    """How much of the text a part may hold where parts have to say that they replace others."""
    return max(1, limit - unit(f"{REPLACES}\n\n")) if replaces else limit


def with_marks(pieces: list[str], replaces: tuple[int, ...]) -> list[str]:
    """The parts; those that replace others say so."""
    return [f"{REPLACES}\n\n{piece}" if place in replaces else piece for place, piece in enumerate(pieces)]
