"""Rules of the streaming message: what of an answer is shown, how often, and where."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from msgspec import structs

from everturn.model import Bubble, Message, SessionSource
from everturn.outbox.rules.delivery import UnknownAction
from everturn.outbox.rules.outbox_texts import REPLACES
from everturn.outbox.rules.text import Unit, balanced, split

FIRST_CHARS = 4  # visible characters: a notification should already say something
PATIENT = 3  # how many intervals a little growth waits for more
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
# What stands in a code block is shown as it is: such blocks are stepped over, whichever begins first.
_CODE = r"(?P<code>^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n.*?)??(?:\n {0,3}(?P=fence)[`~]*[ \t]*$|\Z))"
_FLAGS = re.DOTALL | re.IGNORECASE | re.MULTILINE
_OPENING = re.compile(rf"{_CODE}|^[ \t]*<(?P<tag>{_NAMES})>", _FLAGS)
_CLOSING = {tag: re.compile(rf"</{tag}>\s*", _FLAGS) for tag in TAGS}
_UNFINISHED = re.compile(rf"{_CODE}|^[ \t]*<(?:{_NAMES})>.*\Z", _FLAGS)
_HALF_TAG = re.compile(r"(?:^|(?<=\n))[ \t]*<([a-z]*)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a streaming message is edited, and the cursor that marks it as unfinished."""

    enabled: bool = True
    interval_s: float = 0.8
    min_chars: int = 24
    cursor: str = " ▌"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is shown beside the plain text of an answer, and what is left out."""

    silence: str = "drop"  # of an answer that only says that there is nothing to say; or "send"
    reasoning: bool = False  # thinking blocks
    progress: bool = True  # progress notices of a long turn
    typing: bool = True
    reaction: str = ""  # the mark on a message while it is worked on
    quote: str = "groups"  # whether an answer names the message it answers: "groups", "always", "never"

    @property
    def drops_silence(self) -> bool:
        """Whether an answer that says nothing is not sent."""
        return self.silence == "drop"

    def quotes(self, chat_type: str) -> bool:
        """Whether an answer in such a chat names the message it answers."""
        return self.quote == "always" or (self.quote == "groups" and chat_type != "dm")


PLAIN = Look()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What is new since the streaming message was last edited."""

    since_s: float  # since the last change; before the first: since there was a text
    grown: int  # characters; what is not a continuation counts as a whole
    first: bool = False  # nothing was sent yet
    boundary: bool = False  # the model has ended its text for now
    slow: float = 1.0  # how much flood control and failures have slowed us
    hold_s: float = 0.0  # the platform asked not to be called for so long


def wait_s(pace: Pace, growth: Growth) -> float:
    """How many seconds to wait before the next edit; 0: now."""
    interval_s = slowed(pace, growth.slow)
    enough = growth.boundary or growth.grown >= pace.min_chars
    if growth.first and enough and growth.slow == 1.0:  # what failed is not retried at once
        return growth.hold_s
    least_s = interval_s if enough or growth.first else interval_s * PATIENT
    left_s = least_s - growth.since_s
    if not enough:  # look again meanwhile: it may have grown enough
        left_s = min(left_s, interval_s)
    return max(0.0, left_s, growth.hold_s)


def slowed(pace: Pace, slow: float) -> float:
    """The interval between edits under flood control."""
    return max(pace.interval_s, min(SLOWEST_S, pace.interval_s * slow))


def visible(text: str, *, finished: bool, look: Look = PLAIN) -> str:
    """The text without thinking blocks; while it is unfinished, also without what may yet become one, or silence."""
    if not look.reasoning and "<" in text:
        text = _without_thoughts(text)
    if not finished and not look.reasoning:
        text = _without_half_tag(_without_unfinished(text))
    silent = is_silence(text) if finished else may_be_silence(text)
    return "" if silent and look.drops_silence else text


def together(before: str, text: str) -> str:
    """The text before a tool call, and beneath it what follows. If the model repeats all of it, it is not doubled."""
    before = before.rstrip()
    if not before or text.startswith(before):
        return text
    return f"{balanced(before)}\n\n{text.lstrip()}" if text.strip() else before


def so_far(before: str, text: str, look: Look = PLAIN) -> str:
    """The whole text of a turn by now; what may yet become silence is left out where something stands above it."""
    if before and look.drops_silence and may_be_silence(text):
        return before
    return (
        together(before, text if look.reasoning else _without_unfinished(_without_thoughts(text))) if before else text
    )


def stated(before: str, text: str, look: Look = PLAIN) -> str:
    """The whole text of a turn, with its text before a tool call; thoughts that were not ended stay hidden."""
    said = visible(text, finished=True, look=look)
    return together(before, said if look.reasoning else _without_unfinished(said))


def whole(before: str, answer: str, look: Look = PLAIN) -> str:
    """The final text of a turn. An answer that says nothing takes back what was shown before it."""
    if not before:
        return answer
    said = visible(answer, finished=True, look=look)
    return together(before, said) if said else answer


def said_before(rows: Sequence[Message], asked: Collection[str], look: Look = PLAIN) -> str:
    """The text of the committed steps of a turn since its last approval request: the text before that stays above it."""
    before = ""
    for row in rows:
        if row.role == "assistant" and row.calls:
            before = "" if any(call.id in asked for call in row.calls) else stated(before, row.content, look)
    return before


def not_said_before(said: str, before: str) -> str:
    """The text of a turn after the text of its committed steps. Empty where that cannot be told apart: what stands in the
    transcript already is not written there again.
    """
    before = balanced(before.rstrip()) if before.strip() else ""
    return said[len(before) :].strip() if said.startswith(before) else ""


def _without_thoughts(text: str) -> str:
    """The text without closed thinking blocks. That a tag is closed nowhere is found out once: a model that can be made to
    write thousands of opening ones must not hold everybody up.
    """
    kept, place, unclosed = "", 0, set()
    opening = _OPENING.search(text)
    while opening is not None:
        tag, end = (opening["tag"] or "").lower(), opening.end()
        closing = _CLOSING[tag].search(text, end) if tag and tag not in unclosed else None
        if closing is not None:
            kept, place = kept + text[place : opening.start()], closing.end()
            end = place
        elif tag:
            unclosed.add(tag)
        opening = _OPENING.search(text, end)
    return kept + text[place:]


def _without_unfinished(text: str) -> str:
    return _UNFINISHED.sub(lambda found: found["code"] or "", text)


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


def growing(text: str, limit: int, unit: Unit, cursor: str, look: Look = PLAIN) -> list[str]:
    """The parts of an unfinished text as they are shown; the last has the cursor, and its code block is closed."""
    shown = visible(text, finished=False, look=look).rstrip()
    if len("".join(shown.split())) < FIRST_CHARS:
        return []
    *heads, last = split(shown, limit, unit)
    for tail in (cursor, ""):
        if unit(live := balanced(last, tail)) <= limit:
            return [*heads, live]
    return [*heads, last]


def grown(before: str, text: str) -> int:
    """By how many characters a text has grown; one that does not continue the earlier text is new as a whole."""
    return len(text) - len(before) if text.startswith(before) else len(text)


def resolved(bubble: Bubble, action: UnknownAction) -> Bubble:
    """The bubble after the decision about a part that may be out: repeat or look for it, mark it, or hold the message."""
    place = bubble.sending
    if place is None:
        return bubble
    if action is UnknownAction.MARK:
        return structs.replace(bubble, sending=None, replaces=(*bubble.replaces, place))
    if action in {UnknownAction.ASK, UnknownAction.DROP}:
        return structs.replace(bubble, sending=None, hold=str(action))
    return structs.replace(bubble, sending=None, repeats=True)


def next_place(out: Sequence[str]) -> int:
    """The place of the part that is sent next: of one that is gone and is replaced, else behind the last."""
    return next((place for place, part in enumerate(out) if not part), len(out))


def may_be_seen(bubble: Bubble, out: Sequence[str]) -> bool:
    """Whether people see a part of the message, or may: one whose delivery is unknown, decided about or not."""
    unknown = bubble.sending is not None or bubble.repeats or bubble.hold is not None
    return unknown or bool(out) or bool(bubble.replaces)


def unsettled(bubble: Bubble) -> Bubble:
    """The bubble when somebody else than its writer ends it: what the writer asked the platform for may arrive a little later."""
    return structs.replace(bubble, unsettled=bubble.opening)


def with_resend_mark(bubble: Bubble, out: Sequence[str]) -> Bubble:
    """The bubble without its hold: if somebody sends it after all, the part with unknown delivery is marked."""
    return structs.replace(bubble, sending=None, hold=None, replaces=(*bubble.replaces, next_place(out)))


def room(limit: int, unit: Unit, replaces: tuple[int, ...]) -> int:
    """How much text a part may hold where parts have to say that they replace others."""
    return max(1, limit - unit(f"{REPLACES}\n\n")) if replaces else limit


def with_marks(pieces: list[str], replaces: tuple[int, ...]) -> list[str]:
    """The parts, with a line on those that replace others."""
    return [f"{REPLACES}\n\n{piece}" if place in replaces else piece for place, piece in enumerate(pieces)]


# How answers are shown in a chat: the setting of the chat, else of its platform, else of all, else the default.


T = TypeVar("T", Pace, Look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The display settings of the gateway; a terminal that talks to it has its own, which never come here."""

    everywhere: Pace = Pace()
    look_everywhere: Look = PLAIN
    by_platform: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_chat: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # "platform:chat"

    # By platform, by chat, and for all ("", as no platform has such a name): a turn asks several times.
    _places: dict[str, tuple[Pace, Look]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Merge the settings of all, of platforms and of chats once."""
        everywhere = self.everywhere, self.look_everywhere
        places = {"": everywhere}
        for platform, own in self.by_platform.items():
            places[platform] = _overridden(everywhere, own)
        for chat, own in self.by_chat.items():
            places[chat] = _overridden(places.get(chat.partition(":")[0], everywhere), own)
        object.__setattr__(self, "_places", places)

    def pace(self, source: SessionSource) -> Pace:
        """How an answer to this source is shown while it streams."""
        return self._at(source)[0]

    def look(self, source: SessionSource) -> Look:
        """What of an answer to this source is shown, and what beside it."""
        return self._at(source)[1]

    def _at(self, source: SessionSource) -> tuple[Pace, Look]:
        places, platform = self._places, source.platform
        if self.by_chat:
            # A chat that moved is known by the number it had, too; what was set for the new one goes first.
            chat, before = f"{platform}:{source.chat_id}", f"{platform}:{source.chat_id_alt}"
            if chat in places and before in places:
                return _overridden(places[before], self.by_chat[chat])
            if found := places.get(chat) or places.get(before):
                return found
        return places.get(platform) or places[""]


def answering(to: SessionSource, look: Look, place: int) -> SessionSource:
    """The target of a part of an answer: only the first names the message that is answered, and only if that is set."""
    named = place == 0 and look.quotes(to.chat_type)
    return to if named or to.message_id is None else structs.replace(to, message_id=None)


def _overridden(values: tuple[Pace, Look], own: Mapping[str, Any]) -> tuple[Pace, Look]:
    pace, look = values
    return _replaced(pace, own), _replaced(look, own)


def _replaced(values: T, own: Mapping[str, Any]) -> T:
    names = {each.name for each in fields(values)}
    return replace(values, **{name: value for name, value in own.items() if name in names})
