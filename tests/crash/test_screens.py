"""The checker of screens sees what may be left on a screen after deaths, and what may not."""

import pytest

from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.outbox_texts import PAUSED, REPLACES
from tests.crash.screens import Found, found

ANSWERS = ["answer to one", "answer to two"]
ONE, TWO = ANSWERS
HALF = "answer ▌"


def replacing(text: str) -> str:
    return f"{REPLACES}\n\n{text}"


def repeating(text: str) -> str:
    return f"{text}\n\n{MAY_REPEAT}"


@pytest.mark.parametrize(
    ("texts", "seen"),
    [
        ([ONE, TWO], Found()),
        ([TWO, ONE], Found()),
        ([ONE, repeating(ONE), TWO], Found(marked=1)),
        ([replacing(ONE), TWO], Found(marked=1)),
        ([HALF, replacing(ONE), TWO], Found(marked=1)),
        ([HALF, replacing(HALF), replacing(ONE), TWO], Found(marked=2)),
        ([ONE], Found(lost=1)),
        ([ONE, f"{TWO} ▌"], Found(lost=1, left=1)),
        ([ONE, ONE, TWO], Found(doubled=1)),
        ([repeating(ONE), ONE, TWO], Found(doubled=1, marked=1)),
        ([HALF, ONE, TWO], Found(left=1)),
        ([ONE, "answer to two ▌", TWO], Found(left=1)),
        ([HALF, replacing(HALF), ONE, TWO], Found(marked=1, left=1)),
        (["answer to one ▌", replacing(TWO), ONE], Found(marked=1, left=1)),
        ([ONE, TWO, replacing(HALF)], Found(marked=1, left=1)),
        ([f"answer\n\n{PAUSED}", replacing(ONE), TWO], Found(marked=1, left=1)),
        ([ONE, "The gateway is back.", TWO], Found(left=1)),
    ],
)
def test_a_screen_after_deaths(texts: list[str], seen: Found) -> None:
    assert found(texts, ANSWERS) == seen
