"""What becomes of a model call: one table. How often it is tried again, whether another model is asked, what is said last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FIRST_WAIT_S = 1.0
LONGEST_BACK_OFF_S = 60.0
LONG_WAIT_S = 10.0  # who waits longer than this is told


class Kind(StrEnum):
    """How a model call ended."""

    ANSWERED = "answered"
    LENGTH = "length"
    CUT = "cut"
    EMPTY = "empty"
    REFUSED = "refused"
    OVERFLOW = "overflow"
    DENIED = "denied"
    MISSING = "missing"
    QUOTA = "quota"
    REJECTED = "rejected"
    LIMITED = "limited"
    SERVER = "server"
    CONNECTION = "connection"
    STALLED = "stalled"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


class Again(StrEnum):
    """How often the same model is asked again."""

    NEVER = "never"
    ONCE = "once"
    OFTEN = "up to the limit"
    COMPACTED = "once, after a compaction"


class AtLast(StrEnum):
    """What the user gets when nothing helped."""

    ANSWER = "the answer"
    AS_CUT = "what there is, marked as cut"
    WORDS = "words that say why"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of the table."""

    means: str
    again: Again
    other: bool  # whether a fallback model is asked afterwards
    last: AtLast


OUTCOMES: dict[Kind, Outcome] = {
    Kind.ANSWERED: Outcome("a text or tool calls, with a finish reason", Again.NEVER, False, AtLast.ANSWER),
    Kind.LENGTH: Outcome("the answer reached its token limit", Again.NEVER, False, AtLast.AS_CUT),
    Kind.CUT: Outcome("the stream ended without a finish reason", Again.OFTEN, True, AtLast.AS_CUT),
    Kind.EMPTY: Outcome("neither text nor a tool call", Again.ONCE, True, AtLast.WORDS),
    Kind.REFUSED: Outcome("the model or a content filter refused", Again.NEVER, False, AtLast.WORDS),
    Kind.OVERFLOW: Outcome("the request is longer than the context window", Again.COMPACTED, True, AtLast.WORDS),
    Kind.DENIED: Outcome("401 or 403: the key is refused", Again.NEVER, True, AtLast.WORDS),
    Kind.MISSING: Outcome("404: no such model or address", Again.NEVER, True, AtLast.WORDS),
    Kind.QUOTA: Outcome("no credit left with the provider", Again.NEVER, True, AtLast.WORDS),
    Kind.REJECTED: Outcome("another 4xx: the request is not accepted", Again.NEVER, True, AtLast.WORDS),
    Kind.LIMITED: Outcome("429: too many requests", Again.OFTEN, True, AtLast.WORDS),
    Kind.SERVER: Outcome("5xx, or an error inside the stream", Again.OFTEN, True, AtLast.WORDS),
    Kind.CONNECTION: Outcome("no connection, or it was reset", Again.OFTEN, True, AtLast.WORDS),
    Kind.STALLED: Outcome("no token for `stall_s`", Again.OFTEN, True, AtLast.WORDS),
    Kind.UNREADABLE: Outcome("the response is not what the API promises", Again.OFTEN, True, AtLast.WORDS),
    Kind.UNKNOWN: Outcome("anything else", Again.NEVER, False, AtLast.WORDS),
}


class Move(StrEnum):
    """What is done after a call that gave no answer."""

    RETRY = "retry"
    NEXT_MODEL = "next model"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Tries:
    """Where we are: calls of this model that failed, this one included, and the models behind it."""

    failed: int
    limit: int  # how often one model is asked again
    models_left: int
    compacted: bool = False  # a compaction was made because of this failure
    wait_s: float | None = 0.0  # None: the server wants to be left alone for longer than we wait


def next_move(kind: Kind, tries: Tries) -> Move:
    """Ask again, ask another model, or say what went wrong."""
    outcome = OUTCOMES[kind]
    if tries.wait_s is not None and _again(outcome.again, tries):
        return Move.RETRY
    return Move.NEXT_MODEL if outcome.other and tries.models_left > 0 else Move.GIVE_UP


def _again(again: Again, tries: Tries) -> bool:
    match again:
        case Again.OFTEN:
            return tries.failed <= tries.limit
        case Again.ONCE:
            return tries.failed <= min(1, tries.limit)
        case Again.COMPACTED:
            return tries.compacted
        case _:
            return False


def wait_before(kind: Kind, failed: int, server_says_s: float | None, longest_s: float, chance: float) -> float | None:
    """Seconds to wait before the next call; None when the server asks for more than we are ready to wait.

    What the server says counts. Else the wait doubles with each failure, up to a minute; `chance` in [0, 1) spreads those
    who failed together.
    """
    if server_says_s is not None:
        return None if server_says_s > longest_s else max(0.0, server_says_s)
    if OUTCOMES[kind].again is not Again.OFTEN:
        return 0.0
    full = min(LONGEST_BACK_OFF_S, FIRST_WAIT_S * 2.0 ** min(failed - 1, 16))
    return min(longest_s, full * (0.5 + chance / 2))


def outcome_table() -> str:
    """The table, as the documents show it."""
    head = "| outcome | it means | asked again | fallback model | at last |\n|---|---|---|---|---|\n"
    rows = (
        f"| `{kind}` | {each.means} | {each.again} | {'yes' if each.other else 'no'} | {each.last} |"
        for kind, each in OUTCOMES.items()
    )
    return head + "\n".join(rows) + "\n"
