"""The history checker: what the outside saw, and what of it breaks a promise. It never reads our tables.

The outside is: what people said, what stands on the platform's screen, the ledger of effects, the log of model requests,
and the transcript as anybody may ask for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NOTE = "[System note:"


@dataclass(frozen=True)
class Said:
    """A message somebody sent, and the answer it must get: None when it must get none (it was withdrawn)."""

    chat: str
    text: str
    answer: str | None


@dataclass
class History:
    """Everything the outside saw of one run, whatever died in between."""

    said: list[Said] = field(default_factory=list)
    screen: dict[str, list[str]] = field(default_factory=dict)  # chat -> our messages, in order
    effects: list[str] = field(default_factory=list)  # one line for each time an effect really happened
    requests: list[str] = field(default_factory=list)  # "turn step" for each model request
    transcripts: dict[str, list[str]] = field(default_factory=dict)  # chat -> contents


def problems(history: History) -> list[str]:
    """Every broken promise, as a sentence."""
    return [
        *lost(history),
        *doubled(history),
        *reordered(history),
        *repeated(history.effects, "effect happened twice"),
        *paid_twice(history),
        *notes(history.transcripts),
    ]


def lost(history: History) -> list[str]:
    """Promises 1 and 6: who was accepted is answered."""
    wanted = Counter((each.chat, each.answer) for each in history.said if each.answer is not None)
    seen = Counter((chat, text) for chat, texts in history.screen.items() for text in texts)
    return [f"lost: {answer!r} in {chat}" for (chat, answer), count in wanted.items() if seen[chat, answer] < count]


def doubled(history: History) -> list[str]:
    """Promises 2 and 6: nobody is answered twice."""
    wanted = Counter((each.chat, each.answer) for each in history.said)
    seen = Counter((chat, text) for chat, texts in history.screen.items() for text in texts)
    answers = {answer for _, answer in wanted if answer is not None}
    return [
        f"doubled: {text!r} in {chat}, {count} times"
        for (chat, text), count in seen.items()
        if text in answers and count > wanted[chat, text]
    ]


def reordered(history: History) -> list[str]:
    """Promise 3: answers stand in the order of the questions."""
    found = []
    for chat, texts in history.screen.items():
        wanted = [each.answer for each in history.said if each.chat == chat and each.answer is not None]
        got = [text for text in texts if text in set(wanted)]
        expected = [answer for answer in wanted if answer in set(got)]
        if got != expected:
            found.append(f"reordered in {chat}: {got}, wanted {expected}")
    return found


def repeated(lines: Iterable[str], what: str) -> list[str]:
    """Promise 5: an effect of class once happens at most once."""
    return [f"{what}: {line}" for line, count in Counter(lines).items() if count > 1]


def paid_twice(history: History) -> list[str]:
    """Promise 4: a model response whose effect was seen is committed, and is not asked for again afterwards."""
    done: set[str] = set()
    found = []
    for line in history.requests:
        kind, _, step = line.partition(" ")
        if kind == "effect":
            done.add(step)
        elif step in done:
            found.append(f"step paid twice: {step}")
    return found


def notes(transcripts: Mapping[str, Sequence[str]]) -> list[str]:
    """Promise 7: a note never enters a transcript."""
    return [f"note in the transcript of {chat}" for chat, rows in transcripts.items() if any(NOTE in row for row in rows)]
