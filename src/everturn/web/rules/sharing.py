"""Fair sharing of a limited number of slots among clients."""

from __future__ import annotations


def may_take(own: int, most: int, free: int) -> bool:
    """Whether a client that has `own` slots may take one more: at most `most`, and no more than are left for the others.

    One client takes half of all slots at most, two take two thirds, five take five sixths: the next client finds some.
    """
    return own < min(most, free)
