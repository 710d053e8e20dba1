"""The texts of a turn: approval requests and their outcomes, and progress notices."""

from __future__ import annotations

from everturn.people.rules.access import clean_name
from everturn.turns.rules.approvals import INDENT, LONGEST_CALL, exact

DAY_S = 86_400.0
HOUR_S = 3600.0
TOO_LONG = f"the call is too long for an approval request, which shows all of it: {LONGEST_CALL} characters at most."


def request(tool: str, ask: str, number: int, expires_s: float, *, approvers: bool) -> str:
    """The approval request. It goes out without markup; the lines of the call are indented."""
    who = " An approver has to answer." if approvers else ""
    name, call = exact(tool), "".join(f"{INDENT}{line}\n" for line in ask.split("\n"))
    return (
        f"May I use {name}?\n\n{call}\n"
        f"Answer /approve to allow it once, /approve session or /approve always to allow {name} from now on, or /deny."
        f"{who} From another chat: /approve {number}. I wait for {_duration(expires_s)}."
    )


def buttons(number: int) -> tuple[tuple[str, str], ...]:
    """The labels of the buttons beneath an approval request, and the command that each sends."""
    return (
        ("Allow once", f"/approve {number}"),
        ("Allow in this conversation", f"/approve {number} session"),
        ("Always allow", f"/approve {number} always"),
        ("Do not allow", f"/deny {number}"),
    )


def approved(tool: str, scope: str) -> str:
    """The answer to /approve."""
    for_how_long = {"session": " for this conversation", "always": " from now on"}.get(scope, " this once")
    return f"Approved: {tool} may be used{for_how_long}. The task goes on."


def denied(tool: str) -> str:
    """The answer to /deny."""
    return f"Denied: {tool} is not used. The task goes on without it."


def nothing_asked() -> str:
    """The answer to /approve or /deny when no approval request is open."""
    return "No approval request is open here."


def no_longer_open() -> str:
    """The answer to /approve or /deny that comes too late."""
    return "That approval request is no longer open: it was answered, it expired, or its task has ended."


def not_yours(*, approvers: bool) -> str:
    """The answer to a person who may not answer this approval request."""
    who = "an approver whom the owner has named" if approvers else "the person whose task it is"
    return f"Only {who} can answer that approval request."


def expired(tool: str) -> str:
    """For the user, when an approval request has expired."""
    return f"The approval request for {tool} expired: nobody answered it in time, so {tool} is not used. The task goes on without it."


def queued(tool: str) -> str:
    """For the sender of a message that is queued behind an open approval request."""
    return f"Your message is queued: the approval request for {tool} needs an answer first. Send /approve or /deny, or /stop."


def refused(state: str, why: str | None) -> str:
    """The result of a call that was not approved, for the model."""
    match state:
        case "denied" if why:
            return f"The user did not allow this call: {why} It was not run."
        case "denied":
            return "The user did not allow this call. It was not run."
        case "expired":
            return "Nobody answered the approval request for this call in time. It was not run."
        case _:
            return "The user sent another message instead of approving this call. It was not run."


def another_call(call_id: str) -> str:
    """The result of a call whose id another approval request has, for the model."""
    return f"The approval request with the call id {call_id} showed another call. This one was not run: call it again with an id of its own."


def ran_before(call_id: str) -> str:
    """The result of a call that has run with the one approval that it had, for the model."""
    return f"The call {call_id} has run before, and one run was allowed. It was not run again: call it with an id of its own."


def _duration(seconds: float) -> str:
    for unit, length in (("days", DAY_S), ("hours", HOUR_S)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, round(seconds / 60))} min"


# Texts of the notices about a turn that takes long.


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
