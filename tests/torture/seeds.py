"""The seeds that `make prove` runs again: one of each kind, and every one that ever failed."""

from tests.torture.kinds import DRAWN

# Kind, seed, and what went wrong then. A seed stays here for ever.
FAILED: list[tuple[str, int, str]] = [
    (
        "growing-single-sqlite",
        79895191,
        "ticks of code that a split puts on a line of their own counted as a missing word",
    ),
    (
        "telegram-hook-kills",
        868393,
        "a second signal to a killed gateway took its exit code away (asyncio, not the seed)",
    ),
    (
        "growing-single-postgres",
        2026111731,
        "a part that replaces another, with unknown delivery, was looked for behind it when there was nothing to say",
    ),
    ("notes", 152095, "no process of one home lived long enough to take one certain text, which the test looked for"),
]
FIXED = [(kind, 20261117) for kind in DRAWN]
FIXED_SEEDS = [*FIXED, *((kind, seed) for kind, seed, _ in FAILED)]
