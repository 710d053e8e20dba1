"""What the kill scenarios of real platforms share: a model whose answers stream for a while, and totals that are printed."""

import sys
from collections.abc import Callable

import pytest

from everturn.testing.model import ModelServer

PACE_S = 0.05  # between two words of an answer
LONG = 60  # words: three seconds
GROWING = {"EVERTURN_STREAMING_INTERVAL_S": "0.05", "EVERTURN_STREAMING_MIN_CHARS": "1"}


def asking(model: ModelServer) -> dict[str, str]:
    """The settings of a gateway that asks this model."""
    llm = {"KIND": "llm", "MODEL": "openai:scripted", "BASE_URL": model.base_url}
    return {f"EVERTURN_AGENT_{name}": value for name, value in llm.items()}


def growing_text(number: int) -> str:
    """A text that nobody said before; its answer streams for a while. Every third one streams on when the next process no longer waits
    for late requests of the one that was killed.
    """
    text = f"word-{number} and one two three four five"
    return f"{text} {' '.join(map(str, range(LONG)))}" if number % 3 == 0 else text


def out_loud(capsys: pytest.CaptureFixture[str]) -> Callable[[str], object]:
    """Prints the totals, whether or not the test passes."""

    def print_totals(text: str) -> None:
        with capsys.disabled():
            sys.stderr.write(f"\n  {text}\n")

    return print_totals
