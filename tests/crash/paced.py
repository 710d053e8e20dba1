"""What the stories of kills on real platforms share: a model whose answers take a while to grow, and totals that are told."""

import sys
from collections.abc import Callable

import pytest

from everturn.testing_model import ModelServer

PACE_S = 0.05  # between two words of an answer
GROWING = {"EVERTURN_STREAMING_INTERVAL_S": "0.05", "EVERTURN_STREAMING_MIN_CHARS": "1"}


def asking(model: ModelServer) -> dict[str, str]:
    """The settings of a gateway that asks this model."""
    llm = {"KIND": "llm", "MODEL": "openai:scripted", "BASE_URL": model.base_url}
    return {f"EVERTURN_AGENT_{name}": value for name, value in llm.items()}


def growing_words(number: int) -> str:
    """What nobody said before; its answer takes a while to grow."""
    return f"word-{number} and one two three four five"


def out_loud(capsys: pytest.CaptureFixture[str]) -> Callable[[str], object]:
    """Tells the totals, whether or not the test passes."""

    def tell(text: str) -> None:
        with capsys.disabled():
            sys.stderr.write(f"\n  {text}\n")

    return tell
