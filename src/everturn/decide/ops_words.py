"""What an operator is told: what a turn does, what an action did, why it can not be done; and what the people of a chat are
told of an operator's action.
"""

from __future__ import annotations

SHOWN_CHARS = 80
CONFLICT = "this id was used before, for another action; use a new one for each"


def step_words(state: str, tool: str | None, effect: str | None) -> str:
    """What a turn does, or did last."""
    if state == "waiting":
        return "waits for a person's answer"
    if state == "interrupted":
        return f"cut off while the tool {tool} was running" if effect == "begun" else "cut off"
    if state != "running":
        return state.replace("_", " ")
    return f"tool {tool} is running" if effect == "begun" else "the model is working"


_ASIDE = {"operator": " by an operator", "damaged": " because its rows cannot be read"}


def set_aside(reason: str | None, ends: int, words: str) -> str:
    """Why a conversation was set aside, in one sentence."""
    text = " ".join(words.split())
    text = text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
    after = _ASIDE.get(reason or "") or (f" after {_ends(ends)}" if ends else "")
    return f"set aside{after}" + (f" while it worked on: {text}" if text else "")


_CUT_OFF = {
    "restart_timeout": "by a restart",
    "shutdown_timeout": "by a stop",
    "restart_interrupted": "when the gateway ended without warning",
}


def session_words(state: str, reason: str | None, ends: int, *, has_turn: bool) -> str:
    """How a conversation stands, for a list of them."""
    if state == "suspended":
        return f"{set_aside(reason, ends, '')}; /resume brings it back"
    if state != "resume_pending":
        return state
    cut_off = f"cut off {_CUT_OFF.get(reason or '', f'({reason})')}"
    return f"{cut_off}; its task goes on" if has_turn else f"{cut_off}; the next message goes on, with a note of it"


def _ends(count: int) -> str:
    return "1 unclean end" if count == 1 else f"{count} unclean ends in a row"


def ran_at_every_end(ends: int) -> str:
    """For who runs a message again that may be what ends the gateway."""
    return f"Careful: it was running at all {ends} unclean ends. If it is their cause, the gateway ends again."


def message_again(warning: str | None) -> str:
    """A dead letter was run again."""
    return f"{MESSAGE_AGAIN} {warning}" if warning else MESSAGE_AGAIN


# -- what an action did, and why it can not be done --------------------------------------------------------------------

NO_CONVERSATION = "there is no conversation under this key"
NOTHING_RUNS = "nothing is running there, so there is nothing to stop"
SUSPENDED_ALREADY = "this conversation is suspended already"
NOTHING_TO_RESET = "this conversation has not begun, so there is nothing to reset"
RUNS_ALREADY = "its task is running already"
NOTHING_TO_RESUME = "this conversation is neither suspended nor cut off: its next message simply continues it"
GOES_ON_WITH_WORDS = (
    "its task has ended; the next message there continues the conversation, with a note of what happened"
)
NO_REPLY = "there is no such reply"
BEING_SENT = "it is being sent right now; look again in a moment"
DELIVERED = "it is delivered already"
ONLY_DOUBTFUL = "only a reply whose delivery is in doubt can be marked as delivered"
NO_MESSAGE = "there is no such dead letter; it may have been run again or put away already"
NO_WORDS = "its words are no longer kept, so it can not be run again"
A_COMMAND = "it is a command; type it again instead"
SUSPENDED = "its conversation is suspended: resume or reset that first"

SENT_AGAIN = "It is sent again now."
SENT_MARKED = "It is sent again now, marked as a possible repetition."
REPLY_DROPPED = "It is put away and will not be sent."
MARKED_SENT = "It is marked as delivered."
MESSAGE_AGAIN = "It is answered again, as a new task behind what waits there."
MESSAGE_DROPPED = "It is put away."
NO_REQUEST = "nobody asks under this number any more: they were let in, or an hour is over"
WRONG_CODE = "nobody who asks has this code: it is wrong, used, or older than an hour"
STOPPED = "The task is stopped; the conversation is kept."
SUSPENDED_NOW = "The conversation is suspended; nothing is deleted."
RESUMED = "The conversation is in force again, with its whole history."
GOES_ON = "The interrupted task goes on."


def reset_done(withdrawn: int) -> str:
    """A conversation was reset."""
    return "A fresh conversation begins there with the next message; the earlier one is kept." + _withdrawn(withdrawn)


def let_in(*, owner: bool) -> str:
    """Somebody may speak now."""
    return "They may speak now, and are an owner of this gateway." if owner else "They may speak now."


def turned_out(stopped: int) -> str:
    """Somebody may not speak any more."""
    if not stopped:
        return "They may no longer speak."
    return f"They may no longer speak; {stopped} running {'task was' if stopped == 1 else 'tasks were'} stopped."


# -- what the people of the chat are told ------------------------------------------------------------------------------

TELL_STOPPED = "An operator stopped the task. The conversation is kept."
TELL_SUSPENDED = (
    "An operator suspended this conversation. Nothing is deleted. Send /resume to bring it back, or just write to start a"
    " fresh conversation."
)
TELL_RESUMED = "An operator brought this conversation back, with its whole history."
TELL_CUT_OFF = f"{TELL_RESUMED} Its last task was interrupted: write to continue it."


def tell_reset(withdrawn: int) -> str:
    """For the chat whose conversation an operator reset."""
    text = "An operator began a fresh conversation here. The earlier one is kept; send /resume to bring it back."
    return text + _withdrawn(withdrawn)


def _withdrawn(count: int) -> str:
    if not count:
        return ""
    return (
        " 1 message not yet begun was withdrawn." if count == 1 else f" {count} messages not yet begun were withdrawn."
    )
