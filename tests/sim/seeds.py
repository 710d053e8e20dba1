"""The seeds that `make prove` simulates again: a fixed list, and every one that ever failed.

A seed stands for a scenario as long as what draws it stays (`plan.py`, `world.py`, `faults.py`). What a fault of the product was found
with is kept in another way as well: the fault itself is planted again, among the variants, with a seed that finds it.
"""

# A seed, and what went wrong then. It stays here for ever.
FAILED: list[tuple[int, str]] = [
    (118, "a message that a closed instance accepted, which then ended, was forgotten until a restart"),
    (62, "a streaming message that was opened again kept what its parts had shown, and was not repaired"),
    (1644, "the same, on a platform without history"),
    (1856, "a process continued a streaming message with what it knew before another one wrote to it"),
    (968, "a database that restarted at both looks made a living instance look dead"),
    (2151, "a part of a streaming message was looked for while the request of the dead process was on its way"),
    (643922132, "what replaces a message was sent while the dead process's part was on its way, and came above it"),
    (168758078, "a reply left nearly two seconds after its receiver was revoked: its claim was answered late"),
]
IN_ONE = 50  # seeds of one test
FIXED = range(1, 1201)
CHUNKS = [range(first, first + IN_ONE) for first in range(FIXED.start, FIXED.stop, IN_ONE)]
