"""Texts about who may speak."""

from __future__ import annotations

FORGOTTEN = "(a pairing code was sent here)"


def code(code_: str, person: str) -> str:
    """For somebody unknown who writes to us directly."""
    return (
        f"I do not know you yet. If this gateway is yours, or its owner wants to give you access, run\n\n"
        f"    everturn pair approve {code_}\n\n"
        f"where it runs, within an hour. Your id here is {person}. Until then I do not read what you write."
    )


def no_code() -> str:
    """For somebody unknown when there is no code to give."""
    return "I do not know you, and too many access requests are open at the moment. Please try again later."


def not_joined(person: str) -> str:
    """With a declined invitation, for somebody unknown."""
    return (
        f"I only talk with people whom the owner of this gateway approved. If you are, or know, the owner: your id is {person}."
        " Once it is allowed, invite me again."
    )


def approved() -> str:
    """For somebody who was just approved."""
    return "You are approved. Write to me, or send /help."


def stopped_with_other() -> str:
    """For the others in a conversation whose running task ended because one of them may no longer speak."""
    return "The running task was stopped, because somebody who took part in it may no longer speak to me here."


def held_on_machine(platform: str, user: str) -> str:
    """In status: another gateway on this machine has the secret."""
    return f"the credential of {platform} is used by {user}; stop that gateway, or give this one its own credential"


def held_in_database(platform: str, pid: int, host: str, home: str) -> str:
    """In status: another instance on this database has the secret."""
    return held_on_machine(platform, f"process {pid} on {host} with the home {home or '(not known)'}")


def pair_wrong() -> str:
    """For the owner: a wrong code."""
    return "no open request has this code: it is wrong, used, or older than an hour; see `everturn pair list`"


def pair_locked(minutes: int) -> str:
    """For the owner: too many wrong codes."""
    return (
        f"too many wrong codes: approving by code is locked for {minutes} more minutes;"
        " `everturn pair approve --request ID` works"
    )


def no_request(number: str) -> str:
    """For the owner: no open request has this number."""
    return f"there is no open request {number}; see `everturn pair list`"


def no_such_person(person: str) -> str:
    """For the owner: a malformed name of a person, and the right form."""
    return (
        f"{person} is not a person on a chat platform: write PLATFORM:USER, with the user's number on Telegram (telegram:123456)"
        " or the whole account on Matrix (matrix:@name:example.org), as `everturn pair list` shows people"
    )


def no_such_platform(platform: str) -> str:
    """For the owner, who named somebody on a platform that nothing ever came from."""
    return f"Nothing ever came from a platform named {platform}; `everturn pair list` shows how people are named."


def too_old() -> str:
    """Once for each conversation, for messages sent while the gateway was disconnected for too long."""
    return "I was disconnected, and what you wrote meanwhile is too old to answer now. Please write again what still matters."


def only_newest() -> str:
    """Once for each conversation, where only the newest message of a backlog is answered."""
    return "I was disconnected. Of what you wrote meanwhile I answer only your newest message."


def answer_them(count: int) -> str:
    """Asks what to do with a backlog of messages."""
    came = "A message came" if count == 1 else f"{count} messages came"
    if count == 1:
        return f"{came} here while I was disconnected. Shall I answer it? Send /answer or /skip."
    return f"{came} here while I was disconnected. Shall I answer them? Send /answer, /answer newest or /skip."


def answer_buttons(*, several: bool) -> tuple[tuple[str, str], ...]:
    """The labels of the buttons beneath `answer_them`, and the command that each sends."""
    if not several:
        return ("Answer it", "/answer"), ("Leave it", "/skip")
    return ("Answer all", "/answer"), ("Only the newest", "/answer newest"), ("Answer none", "/skip")


def newest_only() -> str:
    """The answer to /answer with an unknown argument."""
    return "Send /answer for all of them, /answer newest for the newest alone, or /skip."


def answering(count: int) -> str:
    """The answer to /answer."""
    return f"I answer {_messages(count)} now." if count else "No message from while I was disconnected is open."


def skipped(count: int) -> str:
    """The answer to /skip."""
    return f"I do not answer {_messages(count)}." if count else "No message from while I was disconnected is open."


def not_asked_for(count: int) -> str:
    """For a chat that did not say what to do with its backlog of messages."""
    return f"You did not say whether I shall answer {_messages(count)} from while I was disconnected, so I do not. Please write again what still matters."


def _messages(count: int) -> str:
    return "the message" if count == 1 else f"the {count} messages"
