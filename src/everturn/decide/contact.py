"""Whether a platform can be said to receive. Being connected proves nothing: it must have answered lately."""

from __future__ import annotations

from enum import StrEnum

RECENT_S = 150.0  # a poll lasts 30 seconds, or a minute: twice that, and some


class Reach(StrEnum):
    """How we stand with a platform."""

    OPEN = "open"  # people come to us
    READING = "reading"
    CONNECTING = "connecting"  # it has not answered in this life, and nothing is known to be wrong
    SILENT = "silent"  # it has not answered for long, and nothing is known to be wrong
    TROUBLE = "trouble"


def reach_of(received_at: float | None, trouble: str | None, now: float) -> Reach:
    """How we stand with a platform that says when it last answered a read, and what is wrong."""
    if trouble:
        return Reach.TROUBLE
    if received_at is None:
        return Reach.CONNECTING
    return Reach.READING if now - received_at <= RECENT_S else Reach.SILENT


def reach_words(state: str, trouble: str | None, since: str) -> str:
    """The same for people; `since` is a time in words, empty if it is not known."""
    began = f" since {since}" if since else ""
    match state:
        case Reach.TROUBLE:
            return f"can not be read{began}: {trouble}"
        case Reach.SILENT:
            return f"has said nothing{began}"
        case Reach.CONNECTING:
            return f"connecting{began}"
        case _:
            return state
