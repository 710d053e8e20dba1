"""Texts for operators: what a turn does, what an action did, why it cannot be done; and the notices of operators' actions
to a chat.
"""

from __future__ import annotations

SHOWN_CHARS = 80
CONFLICT = "this id was used before, for another action; use a new one for each"


def step_text(state: str, tool: str | None, effect: str | None) -> str:
    """What a turn does, or did last."""
    if state == "awaiting_approval":
        return "awaiting approval"
    if state == "interrupted":
        return f"cut off while the tool {tool} was running" if effect == "begun" else "cut off"
    if state != "running":
        return state.replace("_", " ")
    return f"tool {tool} is running" if effect == "begun" else "the model is working"


_SUSPENDED_HOW = {"operator": " by an operator", "damaged": " because its rows cannot be read"}


def suspended_text(reason: str | None, ends: int, message: str) -> str:
    """Why a conversation was suspended, in one sentence."""
    text = " ".join(message.split())
    text = text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
    after = _SUSPENDED_HOW.get(reason or "") or (f" after {_ends(ends)}" if ends else "")
    return f"suspended{after}" + (f" while it worked on: {text}" if text else "")


_CUT_OFF = {
    "restart_timeout": "by a restart",
    "shutdown_timeout": "by a stop",
    "restart_interrupted": "when the gateway ended without warning",
}


def session_text(state: str, reason: str | None, ends: int, *, has_turn: bool) -> str:
    """The state of a conversation, for a list."""
    if state == "suspended":
        return f"{suspended_text(reason, ends, '')}; /resume resumes it"
    if state != "resume_pending":
        return state
    cut_off = f"cut off {_CUT_OFF.get(reason or '', f'({reason})')}"
    return f"{cut_off}; its task continues" if has_turn else f"{cut_off}; the next message continues it, with a note"


def _ends(count: int) -> str:
    return "1 unclean end" if count == 1 else f"{count} unclean ends in a row"


def ran_at_every_end(ends: int) -> str:
    """The warning before a message is run again that may be what ends the gateway."""
    return f"Careful: it was running at all {ends} unclean ends. If it is their cause, the gateway ends again."


def message_again(warning: str | None) -> str:
    """A dead letter was run again."""
    return f"{MESSAGE_AGAIN} {warning}" if warning else MESSAGE_AGAIN


# -- what an action did, and why it cannot be done ---------------------------------------------------------------------

NO_CONVERSATION = "there is no conversation under this key"
NOTHING_RUNS = "nothing is running there, so there is nothing to stop"
SUSPENDED_ALREADY = "this conversation is suspended already"
NOTHING_TO_RESET = "this conversation has not begun, so there is nothing to reset"
RUNS_ALREADY = "its task is running already"
NOTHING_TO_RESUME = "this conversation is neither suspended nor cut off: its next message simply continues it"
GOES_ON_WITH_MESSAGE = (
    "its task has ended; the next message there continues the conversation, with a note of what happened"
)
NO_REPLY = "there is no such reply"
BEING_SENT = "it is being sent right now; look again in a moment"
DELIVERED = "it is delivered already"
ONLY_UNKNOWN = "only a reply whose delivery is unknown can be marked as delivered"
NO_MESSAGE = "there is no such dead letter; it may have been run again or dropped already"
NO_TEXT = "its text is no longer stored, so it cannot be run again"
A_COMMAND = "it is a command; type it again instead"
SUSPENDED = "its conversation is suspended: resume or reset that first"

SENT_AGAIN = "It is sent again now."
SENT_MARKED = "It is sent again now, marked as a possible repetition."
REPLY_DROPPED = "It is dropped and will not be sent."
MARKED_SENT = "It is marked as delivered."
MESSAGE_AGAIN = "It is queued again, as a new task behind the messages queued there."
MESSAGE_DROPPED = "It is dropped."
NO_REQUEST = "no open access request has this number: it was approved, or it is older than an hour"
WRONG_CODE = "no open access request has this code: it is wrong, used, or older than an hour"
STOPPED = "The task is stopped; the conversation is kept."
SUSPENDED_NOW = "The conversation is suspended; nothing is deleted."
RESUMED = "The conversation is resumed, with its whole history."
GOES_ON = "The interrupted task continues."


def reset_done(withdrawn: int) -> str:
    """A conversation was reset."""
    return "A fresh conversation begins there with the next message; the earlier one is kept." + _withdrawn(withdrawn)


def approved(*, owner: bool) -> str:
    """Somebody may speak now."""
    return "They may speak now, and are an owner of this gateway." if owner else "They may speak now."


def revoked(stopped: int) -> str:
    """Somebody may not speak any more."""
    if not stopped:
        return "They may no longer speak."
    return f"They may no longer speak; {stopped} running {'task was' if stopped == 1 else 'tasks were'} stopped."


# -- notices to the chat -----------------------------------------------------------------------------------------------

TELL_STOPPED = "An operator stopped the task. The conversation is kept."
TELL_SUSPENDED = (
    "An operator suspended this conversation. Nothing is deleted. Send /resume to resume it, or just write to start a"
    " fresh conversation."
)
TELL_RESUMED = "An operator resumed this conversation, with its whole history."
TELL_CUT_OFF = f"{TELL_RESUMED} Its last task was interrupted: write to continue it."


def tell_reset(withdrawn: int) -> str:
    """For the chat whose conversation an operator reset."""
    text = "An operator reset this conversation. The earlier one is kept; send /resume to resume it."
    return text + _withdrawn(withdrawn)


def _withdrawn(count: int) -> str:
    if not count:
        return ""
    return " 1 queued message was withdrawn." if count == 1 else f" {count} queued messages were withdrawn."
