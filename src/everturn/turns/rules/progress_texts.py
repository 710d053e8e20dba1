"""Texts of the notices about a turn that takes long."""

from __future__ import annotations

from everturn.people.rules.names import clean_name


def still_working(running_s: float, tool: str | None) -> str:
    """The repeated progress notice of a running turn."""
    doing = f" It is using {clean_name(tool)}." if tool else ""
    return f"Still working, for {_minutes(running_s)} now.{doing} Send /stop to stop it."


def inactive_soon(idle_s: float, left_s: float) -> str:
    """The one warning about an inactive turn; `left_s` is 0 where there is no limit."""
    ends = f" If nothing happens, it fails in {_minutes(left_s)}." if left_s > 0 else ""
    return f"Nothing has happened in this task for {_minutes(idle_s)}.{ends} Send /stop to stop it now."


def stalled(idle_s: float, tool: str | None) -> str:
    """The notice for the sender of a message that is queued behind an inactive turn."""
    doing = f" (it is using {clean_name(tool)})" if tool else ""
    return (
        f"Your message is queued behind a task in which nothing has happened for {_minutes(idle_s)}{doing}."
        " Send /stop to stop that task and go on with your message, or /new to reset the conversation."
    )


def inactive(idle_s: float) -> str:
    """The reason of a turn that failed as inactive."""
    return f"nothing had happened in this task for {_minutes(idle_s)}, so it was stopped"


def _minutes(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{int(seconds)} seconds"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
