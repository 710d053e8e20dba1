"""What people are told about a turn that takes long."""

from __future__ import annotations

from everturn.decide.names import clean_name


def still_working(running_s: float, tool: str | None) -> str:
    """Now and then, while a turn runs."""
    doing = f" It is using {clean_name(tool)}." if tool else ""
    return f"Still working, for {_minutes(running_s)} now.{doing} Send /stop to stop it."


def inactive_soon(idle_s: float, left_s: float) -> str:
    """Once, when nothing has moved for long; `left_s` is 0 where there is no limit."""
    ends = f" If nothing happens it is given up in {_minutes(left_s)}." if left_s > 0 else ""
    return f"Nothing has happened in this task for {_minutes(idle_s)}.{ends} Send /stop to stop it now."


def stalled(idle_s: float, tool: str | None) -> str:
    """For whose message waits behind a turn in which nothing moves."""
    doing = f" (it is using {clean_name(tool)})" if tool else ""
    return (
        f"Your message waits for a task in which nothing has happened for {_minutes(idle_s)}{doing}."
        " Send /stop to stop that task and go on with your message, or /new to begin afresh."
    )


def gave_up(idle_s: float) -> str:
    """Why a turn failed."""
    return f"nothing had happened in this task for {_minutes(idle_s)}, so it was given up"


def _minutes(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{int(seconds)} seconds"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
