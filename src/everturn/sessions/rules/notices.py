"""Notices and answers in chats. Each says what is true and what to do; none names a command that does not exist."""

from __future__ import annotations

from collections.abc import Mapping

_RESET_BECAUSE = {
    "idle": "nothing was said here for a long time",
    "daily": "conversations are reset every day at a set hour",
    "suspended": "the earlier one was suspended after repeated interruptions",
    "resume_pending_expired": "the earlier one was interrupted too long ago to be resumed",
}


def banner(restarting: bool) -> str:  # noqa: FBT001
    """For chats with a running turn, before a drain."""
    if restarting:
        return (
            "The gateway is restarting. Your current task will be interrupted if it is not finished in time;"
            " I'll try to resume where you left off."
        )
    return (
        "The gateway is shutting down. Your current task will be interrupted if it is not finished in time."
        " Nothing is lost: it is kept until the gateway runs again."
    )


def suspended(queued: int, times: int = 3) -> str:
    """For the user of a session that the stuck-session breaker suspended."""
    text = (
        f"This conversation is suspended: the gateway was interrupted {_times(times)} in a row while it was running."
        " Nothing is deleted. Send /resume to resume it, or just write to start a fresh conversation."
    )
    if queued:
        text += f" {_messages(queued, 'queued ')} {'is' if queued == 1 else 'are'} held until you write."
    return text


DAMAGED = (
    "This conversation is suspended: what is stored of its last task cannot be read. The operator sees which row that is."
    " Just write to start a fresh conversation."
)


def reset(reason: str, previous: str | None) -> str:
    """For the first message of a session that replaced another by itself."""
    because = _RESET_BECAUSE.get(reason, f"the earlier one was reset ({reason})")
    kept = f" The earlier conversation is kept ({previous})." if previous else " Earlier conversations are kept."
    return f"This is a fresh conversation, because {because}.{kept} Send /resume to list earlier conversations."


def too_old(fresh: bool = False) -> str:  # noqa: FBT001, FBT002
    """For the user of an interrupted turn that does not resume by itself; `fresh`: the next message resets the conversation."""
    text = "An interrupted task was not continued by itself, because it was interrupted too long ago."
    if fresh:
        return (
            f"{text} Send /resume to continue it. Any other message begins a fresh conversation; this one is kept, and"
            " /resume still resumes it then."
        )
    return f"{text} Nothing is lost: write to continue it."


def continued() -> str:
    """The answer to /resume in a conversation whose task was interrupted too long ago to go on by itself."""
    return "The interrupted task goes on from where it stopped."


def failed(reason: str) -> str:
    """In place of an answer."""
    return f"I could not answer: {reason}. Your message is kept; please try again."


def cut(text: str) -> str:
    """An answer that is not whole, with a mark that says so."""
    return f"{text}\n\n[This answer is not complete. Write to continue it.]"


def stopped(waiting: int) -> str:
    """The answer to /stop."""
    text = "Stopped. The conversation is kept."
    if waiting:
        text += f" {_messages(waiting, 'queued ')} will be answered next."
    return text


def interrupted() -> str:
    """For the sender of a message that ended the running task."""
    return "I stopped the task that was running; your new message is next. What was said so far is kept."


def taken_back() -> str:
    """For the sender of a message that rolled the running task back."""
    return "I rolled back the running task; your new message is next. What its tools already did is not undone."


def nothing_to_stop() -> str:
    """The answer to /stop when no turn runs."""
    return "Nothing is running here."


def fresh(withdrawn: int) -> str:
    """The answer to /new."""
    text = "This is a fresh conversation. The earlier one is kept; send /resume to resume it."
    if withdrawn:
        text += f" {_messages(withdrawn, 'queued ')} {'was' if withdrawn == 1 else 'were'} withdrawn."
    return text


def resumed(session_id: str, interrupted: bool = False) -> str:  # noqa: FBT001, FBT002
    """The answer to /resume."""
    text = f"This is the conversation {session_id} again, with its whole history."
    return f"{text} Its last task was interrupted: write to continue it." if interrupted else text


def nothing_to_resume() -> str:
    """The answer to /resume when there is no earlier conversation, or none of that name."""
    return "There is no such earlier conversation here. Send /resume to list those there are."


def earlier(sessions: Mapping[str, str]) -> str:
    """The answer to /resume without an argument: what names each conversation, and what it was about."""
    if not sessions:
        return "There is no earlier conversation here."
    listed = "\n".join(f"{session_id}  {about}".rstrip() for session_id, about in sessions.items())
    return f"Earlier conversations:\n{listed}\nSend /resume {next(iter(sessions))} to resume the first of them."


def back() -> str:
    """For the chat that asked for a restart."""
    return "I'm back: the restart is done."


def queued_limit(limit: int) -> str:
    """For the sender of a message that was refused because the queue is full."""
    return f"{_messages(limit)} {'is' if limit == 1 else 'are'} already queued here, which is the limit. Please try again later."


def too_long(limit: int) -> str:
    """For the sender of a message over the limit."""
    return f"That message is too long: the limit is {limit} characters. Please send it in parts."


UNSTORABLE = "I could not store that message as it came, so I do not answer it. Please write it again."
IDS_TOO_LONG = "The message cannot be stored: the ids of its chat, its author or itself are too long."


def unknown_command(name: str, nearest: str | None) -> str:
    """For a command that does not exist. The sender's own word is repeated without its slash."""
    hint = f" Did you mean /{nearest}?" if nearest else ""
    return f"There is no command named '{name[:40]}'.{hint} Send /help to list them."


def _messages(count: int, kind: str = "") -> str:
    return f"1 {kind}message" if count == 1 else f"{count} {kind}messages"


def _times(count: int) -> str:
    return {1: "once", 2: "twice", 3: "three times"}.get(count, f"{count} times")


def busy_resume() -> str:
    """The answer to /resume of another conversation while a turn runs."""
    return "A task is still running here. Send /stop first, then /resume."


def status(session_id: str | None, state: str, reason: str | None, running: bool, waiting: int) -> str:  # noqa: FBT001
    """The answer to /status."""
    if session_id is None:
        return "No conversation has been started here yet."
    about = "a task is running" if running else {"active": "ready"}.get(state, f"{state.replace('_', ' ')} ({reason})")
    return f"Conversation {session_id}: {about}. {_messages(waiting)} queued."
