"""Markdown takes time that grows with the text, whatever marks it is made of: a stranger chooses what a model repeats."""

from collections.abc import Callable
from time import thread_time

import pytest

from everturn.platform.rules import Dialect, to_html

TELEGRAM = Dialect(bold="b", slanted="i", struck="s")
MATRIX = Dialect(bold="strong", slanted="em", struck="del", newline="<br>", blocks=True)
SMALL, TIMES = 4_000, 8
ROUNDS = 10


def runs(sign: str, between: str, chars: int) -> str:
    """Runs of a sign that become longer and longer: none closes another."""
    return "".join(sign * length + between for length in range(1, int((2 * chars) ** 0.5)))


SHAPES: dict[str, Callable[[int], str]] = {
    "ticks that nothing closes": lambda chars: runs("`", "a", chars),
    "fences that nothing closes": lambda chars: runs("~", "\n", chars),
    "nothing closes bold": lambda chars: "**a " * (chars // 4),
    "bold that ends with a space": lambda chars: "**a **" * (chars // 6),
    "nothing closes struck": lambda chars: "~~a " * (chars // 4),
    "nothing closes slanted": lambda chars: "*a " * (chars // 3),
    "nothing closes low": lambda chars: " _a" * (chars // 3),
    "stars": lambda chars: "*" * chars,
    "brackets": lambda chars: "[" * chars,
    "links without an end": lambda chars: "[a](https://x" * (chars // 13),
    "parentheses in a link": lambda chars: "[a](https://x" + "(a" * (chars // 2),
    "links in a link": lambda chars: "[a](https://x" + "[a](https://x)" * (chars // 14),
    "quotes in quotes": lambda chars: "> " * (chars // 2),
    "lines of quotes": lambda chars: "> **a\n" * (chars // 6),
    "marks in marks": lambda chars: "*_~~**" * (chars // 12) + "a" + "**~~_*" * (chars // 12),
    "escapes": lambda chars: "\\" * chars,
    "the end of a heading": lambda chars: "# a" + " #" * (chars // 2) + "x",
    "spaces before nothing": lambda chars: " " * chars + "x",
}


def cost_s(text: str, dialect: Dialect) -> float:
    """What this thread computed for it: time in which others run does not count."""
    before = thread_time()
    to_html(text, dialect)
    return thread_time() - before


@pytest.mark.parametrize("dialect", [TELEGRAM, MATRIX], ids=["telegram", "matrix"])
@pytest.mark.parametrize("shape", SHAPES)
def test_eight_times_the_text_costs_about_eight_times_as_much(shape: str, dialect: Dialect) -> None:
    """The cheapest of several rounds counts, as nothing makes a computation cheaper than it is. Of a text whose cost grows
    with its square it is 64 times as much, of one between the two 23 times.
    """
    small, large = SHAPES[shape](SMALL), SHAPES[shape](SMALL * TIMES)
    cheapest = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        costs = cost_s(small, dialect), cost_s(large, dialect)
        cheapest = [min(pair) for pair in zip(cheapest, costs, strict=True)]
        if cheapest[1] <= TIMES * 2 * cheapest[0]:
            return
    pytest.fail(f"{cheapest[0] * 1e3:.2f} ms for {len(small)} characters, {cheapest[1] * 1e3:.2f} ms for {len(large)}")
