"""What people and models read about approvals."""

from __future__ import annotations

from everturn.decide.exact_text import INDENT, LONGEST_CALL, exact

DAY_S = 86_400.0
HOUR_S = 3600.0
TOO_LONG = f"the call is too long to be asked about: a person must be shown the whole of it, which is {LONGEST_CALL} characters at most."


def question(tool: str, ask: str, number: int, expires_s: float, *, approvers: bool) -> str:
    """The approval request. It goes out without markup; the lines of the call are indented."""
    who = " An approver has to answer." if approvers else ""
    name, call = exact(tool), "".join(f"{INDENT}{line}\n" for line in ask.split("\n"))
    return (
        f"May I use {name}?\n\n{call}\n"
        f"Answer /approve to allow it once, /approve session or /approve always to allow {name} from now on, or /deny."
        f"{who} From another chat: /approve {number}. I wait for {_duration(expires_s)}."
    )


def buttons(number: int) -> tuple[tuple[str, str], ...]:
    """What the buttons beneath a question say, and the command that each sends."""
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
    """The answer to /approve or /deny when no question is open."""
    return "Nothing waits for an approval here."


def no_longer_open() -> str:
    """The answer to an answer that comes too late."""
    return "That question is no longer open: it was answered, it expired, or its task has ended."


def not_yours(*, approvers: bool) -> str:
    """The answer to somebody whose answer does not count."""
    who = "one of the approvers whom the owner has named" if approvers else "the person whose task it is"
    return f"That is for {who} to answer."


def expired(tool: str) -> str:
    """For the user, when a question was not answered in time."""
    return f"Nobody answered in time whether I may use {tool}, so it is not used. The task goes on without it."


def held(tool: str) -> str:
    """For somebody whose message waits because a question is open."""
    return f"Your message waits: I first need an answer whether I may use {tool}. Send /approve or /deny, or /stop."


def refused(state: str, why: str | None) -> str:
    """The result of a call that was not allowed, for the model."""
    match state:
        case "denied" if why:
            return f"The user did not allow this call: {why} It was not run."
        case "denied":
            return "The user did not allow this call. It was not run."
        case "expired":
            return "Nobody answered in time whether this call is allowed. It was not run."
        case _:
            return "The user wrote something else instead of allowing this call. It was not run."


def another_call(call_id: str) -> str:
    """The result of a call whose id another approval request has, for the model."""
    return f"The approval request of the id {call_id} showed another call. This one was not run: call it again with an id of its own."


def ran_before(call_id: str) -> str:
    """The result of a call that has run with the one approval that it had, for the model."""
    return f"The call {call_id} has run before, and one run was allowed. It was not run again: call it with an id of its own."


def _duration(seconds: float) -> str:
    for unit, length in (("days", DAY_S), ("hours", HOUR_S)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, round(seconds / 60))} min"
