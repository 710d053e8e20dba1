"""The seeds that `make prove` tells again: one of each kind, and every one that ever failed."""

from tests.torture.kinds import DRAWN

FIXED = [(kind, 20261117) for kind in DRAWN]
# Kind, seed, and what went wrong then. A seed stays here for ever.
FAILED: list[tuple[str, int, str]] = [
    (
        "growing-single-sqlite",
        79895191,
        "ticks of code that a split puts on a line of their own counted as a missing word",
    ),
]
TOLD_AGAIN = [*FIXED, *((kind, seed) for kind, seed, _ in FAILED)]
