"""Whether a platform receives. Being connected proves nothing: it must have answered lately."""

from __future__ import annotations

from enum import StrEnum

RECENT_S = 150.0  # a poll lasts 30 seconds, or a minute: twice that, and some


class Reach(StrEnum):
    """The connection state of a platform."""

    OPEN = "open"  # its clients connect to us
    READING = "reading"
    CONNECTING = "connecting"  # it has not answered in this process, and no error is known
    SILENT = "silent"  # it has not answered for long, and no error is known
    TROUBLE = "trouble"


def reach_of(received_at: float | None, trouble: str | None, now: float) -> Reach:
    """The state of a platform that reports when it last answered a read, and what is wrong."""
    if trouble:
        return Reach.TROUBLE
    if received_at is None:
        return Reach.CONNECTING
    return Reach.READING if now - received_at <= RECENT_S else Reach.SILENT


def reach_text(state: str, trouble: str | None, since: str) -> str:
    """The state as a text for people; `since` is a time as a text, empty if it is not known."""
    began = f" since {since}" if since else ""
    match state:
        case Reach.TROUBLE:
            return f"cannot be read{began}: {trouble}"
        case Reach.SILENT:
            return f"has sent nothing{began}"
        case Reach.CONNECTING:
            return f"connecting{began}"
        case _:
            return state
