"""The outcomes of a model call: what a failure means for the turn, whose model it was, and keys that no text may show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

FIRST_WAIT_S = 1.0
LONGEST_BACK_OFF_S = 60.0
LONG_WAIT_S = 10.0  # before a longer wait the user gets a notice


class CallOutcome(StrEnum):
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


class RetryRule(StrEnum):
    """How often the same model is asked again."""

    NEVER = "never"
    ONCE = "once"
    OFTEN = "up to the limit"
    COMPACTED = "once, after a compaction"


class AtLast(StrEnum):
    """What the user gets when no retry helped."""

    ANSWER = "the answer"
    AS_CUT = "what there is, marked as cut"
    ERROR = "an error message with the reason"


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One row of the table of outcomes."""

    means: str
    again: RetryRule
    other: bool  # whether a fallback model is asked afterwards
    last: AtLast


OUTCOMES: dict[CallOutcome, OutcomeRow] = {
    CallOutcome.ANSWERED: OutcomeRow(
        "a text or tool calls, with a finish reason", RetryRule.NEVER, False, AtLast.ANSWER
    ),
    CallOutcome.LENGTH: OutcomeRow("the answer reached its token limit", RetryRule.NEVER, False, AtLast.AS_CUT),
    CallOutcome.CUT: OutcomeRow("the stream ended without a finish reason", RetryRule.OFTEN, True, AtLast.AS_CUT),
    CallOutcome.EMPTY: OutcomeRow("neither text nor a tool call", RetryRule.ONCE, True, AtLast.ERROR),
    CallOutcome.REFUSED: OutcomeRow("the model or a content filter refused", RetryRule.NEVER, False, AtLast.ERROR),
    CallOutcome.OVERFLOW: OutcomeRow(
        "the request is longer than the context window", RetryRule.COMPACTED, True, AtLast.ERROR
    ),
    CallOutcome.DENIED: OutcomeRow("401 or 403: the key is refused", RetryRule.NEVER, True, AtLast.ERROR),
    CallOutcome.MISSING: OutcomeRow("404: no such model or address", RetryRule.NEVER, True, AtLast.ERROR),
    CallOutcome.QUOTA: OutcomeRow("no credit left with the provider", RetryRule.NEVER, True, AtLast.ERROR),
    CallOutcome.REJECTED: OutcomeRow("another 4xx: the request is not accepted", RetryRule.NEVER, True, AtLast.ERROR),
    CallOutcome.LIMITED: OutcomeRow("429: too many requests", RetryRule.OFTEN, True, AtLast.ERROR),
    CallOutcome.SERVER: OutcomeRow("5xx, or an error inside the stream", RetryRule.OFTEN, True, AtLast.ERROR),
    CallOutcome.CONNECTION: OutcomeRow("no connection, or it was reset", RetryRule.OFTEN, True, AtLast.ERROR),
    CallOutcome.STALLED: OutcomeRow("no token for `stall_s`", RetryRule.OFTEN, True, AtLast.ERROR),
    CallOutcome.UNREADABLE: OutcomeRow(
        "the response is not what the API promises", RetryRule.OFTEN, True, AtLast.ERROR
    ),
    CallOutcome.UNKNOWN: OutcomeRow("anything else", RetryRule.NEVER, False, AtLast.ERROR),
}


class Move(StrEnum):
    """The next move after a call that gave no answer."""

    RETRY = "retry"
    NEXT_MODEL = "next model"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Tries:
    """The failed calls of this model, this one included, and how many fallback models are left."""

    failed: int
    limit: int  # how often one model is asked again
    models_left: int
    compacted: bool = False  # a compaction was made because of this failure
    wait_s: float | None = 0.0  # None: the server asks for a longer wait than the settings allow


def next_move(kind: CallOutcome, tries: Tries) -> Move:
    """Retry, ask the next model, or give up."""
    outcome = OUTCOMES[kind]
    if tries.wait_s is not None and _again(outcome.again, tries):
        return Move.RETRY
    return Move.NEXT_MODEL if outcome.other and tries.models_left > 0 else Move.GIVE_UP


def _again(again: RetryRule, tries: Tries) -> bool:
    match again:
        case RetryRule.OFTEN:
            return tries.failed <= tries.limit
        case RetryRule.ONCE:
            return tries.failed <= min(1, tries.limit)
        case RetryRule.COMPACTED:
            return tries.compacted
        case _:
            return False


def wait_before(
    kind: CallOutcome, failed: int, server_says_s: float | None, longest_s: float, chance: float
) -> float | None:
    """Seconds to wait before the next call; None when the server asks for more than `longest_s`.

    The server's delay counts. Otherwise the wait doubles with each failure, up to a minute; `chance` in [0, 1) spreads
    calls that failed together.
    """
    if server_says_s is not None:
        return None if server_says_s > longest_s else max(0.0, server_says_s)
    if OUTCOMES[kind].again is not RetryRule.OFTEN:
        return 0.0
    full = min(LONGEST_BACK_OFF_S, FIRST_WAIT_S * 2.0 ** min(failed - 1, 16))
    return min(longest_s, full * (0.5 + chance / 2))


# The provider of a model: a key goes to its own provider only, or to the address that was set together with the key.


# One provider's protocols, each under a name of its own: they share its address and its key.
_PROTOCOLS = dict.fromkeys(("openai-chat", "openai-responses", "openai-decisions"), "openai")


def provider_of(model: str) -> str:
    """The provider of `provider:name`."""
    name = model.partition(":")[0]
    return _PROTOCOLS.get(name, name)


def providers_of(*models: str) -> tuple[str, ...]:
    """The providers of these models, each once."""
    return tuple(dict.fromkeys(provider_of(model) for model in models if model))


# Removes keys from every text that leaves: errors, notices, the journal and the log.


HIDDEN = "[hidden]"
_SHORTEST = 6  # a shorter "secret" would blank out ordinary words
_KEY_LIKE = re.compile(
    r"(?:sk|pk|rk|xai|gsk|key|ghp|gho|hf|AIza)[-_][A-Za-z0-9_\-*.]{6,}"
    r"|AIza[A-Za-z0-9_\-]{20,}"
    r"|(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=\-*]{6,}"
    r"|(?i:(?<=api_key=)|(?<=api-key=)|(?<=apikey=)|(?<=token=)|(?<=password=)|(?<=secret=))[^\s&\"']{3,}"
)
_USER_IN_URL = re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")


def scrub(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Replace the known secrets in a text, and what looks like one."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    return _USER_IN_URL.sub(HIDDEN, _KEY_LIKE.sub(HIDDEN, text))
