"""How places of which there are so many are shared by clients that may each want all of them."""

from __future__ import annotations


def may_take(own: int, most: int, free: int) -> bool:
    """Whether a client that has `own` places may take one more: no more than `most`, and no more than it leaves to the others.

    One client takes half of all places at most, two take two thirds, five take five sixths: whoever comes next finds some.
    """
    return own < min(most, free)
