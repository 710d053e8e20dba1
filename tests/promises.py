"""The promises that every ring of tests checks, each as a check of plain values that were seen from outside. What a ring saw is in
`tests.history` (crash points, and real processes over HTTP) and `tests.sim.checking` (the simulated world).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

NOTE = "[System note:"


class Delivered(Protocol):
    """A message on its way to us. Moments are numbers that can be compared."""

    @property
    def id(self) -> str:
        """How it is named."""
        ...

    @property
    def sent(self) -> float:
        """When it was sent."""
        ...

    @property
    def acknowledged(self) -> float | None:
        """When we said that we have it, if we did."""
        ...


def overtaken(order: Sequence[Delivered]) -> list[str]:
    """Promise 3: the messages that stand behind one that was sent after their acknowledgement. Of two that were on their way at the
    same time either may be the first.
    """
    found: list[str] = []
    latest = 0.0
    for each in order:
        if each.acknowledged is not None and each.acknowledged < latest:
            found.append(each.id)
        latest = max(latest, each.sent)
    return found


def paid_twice(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Promise 4: a model response whose effect was seen is committed, and is not asked for again. Of what happened ("effect") and
    what was asked for ("request"), in order, each with its step.
    """
    done: set[str] = set()
    found = []
    for kind, step in facts:
        if kind == "effect":
            done.add(step)
        elif step in done:
            found.append(f"step paid twice: {step}")
    return found


def repeated(happened: Iterable[str], what: str) -> list[str]:
    """Promise 5: an effect of class once happens at most once."""
    return [f"{what}: {each}" for each, count in Counter(happened).items() if count > 1]


def notes(transcripts: Mapping[str, Sequence[str]]) -> list[str]:
    """Promise 7: a note never enters a transcript."""
    return [
        f"note in the transcript of {chat}" for chat, rows in transcripts.items() if any(NOTE in row for row in rows)
    ]
