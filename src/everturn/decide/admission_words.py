"""What people are told about who may speak, and what became of what they wrote while nobody read it."""

from __future__ import annotations

FORGOTTEN = "(a pairing code was sent here)"


def code(code_: str, person: str) -> str:
    """For somebody unknown who writes to us directly."""
    return (
        f"I do not know you yet. If this gateway is yours, or its owner wants to let you in, run\n\n"
        f"    everturn pair approve {code_}\n\n"
        f"where it runs, within an hour. Your id here is {person}. Until then I do not read what you write."
    )


def no_code() -> str:
    """For somebody unknown when there is no code to give."""
    return "I do not know you, and too many people ask to be let in at the moment. Please try again later."


def not_joined(person: str) -> str:
    """With a declined invitation, for somebody unknown."""
    return (
        f"I only talk with people whom the owner of this gateway let in. If you are, or know, the owner: your id is {person}."
        " Once it is allowed, invite me again."
    )


def let_in() -> str:
    """For who was just let in."""
    return "You are let in. Write to me, or send /help."


def stopped_with_other() -> str:
    """For the others in a conversation whose running task ended because one of them may no longer speak."""
    return "The running task was stopped, because somebody who took part in it may no longer speak to me here."


def held_on_machine(platform: str, who: str) -> str:
    """In status: another gateway on this machine has the secret."""
    return f"the credential of {platform} is used by {who}; stop that gateway, or give this one a credential of its own"


def held_in_database(platform: str, pid: int, host: str, home: str) -> str:
    """In status: another instance on this database has the secret."""
    return held_on_machine(platform, f"process {pid} on {host} with the home {home or '(not known)'}")


def pair_wrong() -> str:
    """For the owner: a code that is none."""
    return "no open request has this code: it is wrong, used, or older than an hour; see `everturn pair list`"


def pair_locked(minutes: int) -> str:
    """For the owner: too many wrong codes."""
    return (
        f"too many wrong codes: approving by code is locked for {minutes} more minutes;"
        " `everturn pair approve --request ID` works"
    )


def no_request(number: str) -> str:
    """For the owner: a number of no open request."""
    return f"there is no open request {number}; see `everturn pair list`"


def nobody_there(person: str) -> str:
    """For the owner: what is no name of a person, and what people are called."""
    return (
        f"{person} is nobody's name on a chat platform: PLATFORM:USER, with the user's number on Telegram (telegram:123456) and the"
        " whole account on Matrix (matrix:@name:example.org), as `everturn pair list` shows people"
    )


def no_such_platform(platform: str) -> str:
    """For the owner, who named somebody on a platform that nothing ever came from."""
    return f"Nothing ever came from a platform called {platform}: `everturn pair list` shows how people are called."


def too_old() -> str:
    """Once for each conversation, for who wrote while the gateway was away for too long."""
    return (
        "I was away, and what you wrote meanwhile is too old to be answered now. Please write again what still matters."
    )


def only_newest() -> str:
    """Once for each conversation, where only the newest of what piled up is answered."""
    return "I was away. Of what you wrote meanwhile I answer only your newest message."


def answer_them(count: int) -> str:
    """The question what to do with what piled up."""
    came = "A message came" if count == 1 else f"{count} messages came"
    if count == 1:
        return f"{came} here while I was away. Shall I answer it? Send /answer or /skip."
    return f"{came} here while I was away. Shall I answer them? Send /answer, /answer newest or /skip."


def answer_buttons(*, several: bool) -> tuple[tuple[str, str], ...]:
    """What the buttons beneath that question say, and the command that each sends."""
    if not several:
        return ("Answer it", "/answer"), ("Leave it", "/skip")
    return ("Answer all", "/answer"), ("Only the newest", "/answer newest"), ("Answer none", "/skip")


def newest_only() -> str:
    """For whom /answer is said with a word that it does not know."""
    return "Send /answer for all of them, /answer newest for the newest alone, or /skip."


def answering(count: int) -> str:
    """The answer to /answer."""
    return f"I answer {_messages(count)} now." if count else "There is nothing from while I was away."


def skipped(count: int) -> str:
    """The answer to /skip."""
    return f"I do not answer {_messages(count)}." if count else "There is nothing from while I was away."


def not_asked_for(count: int) -> str:
    """For who was asked about what piled up, and did not say."""
    return f"You did not say whether I shall answer {_messages(count)} from while I was away, so I do not. Please write again what still matters."


def _messages(count: int) -> str:
    return "the message" if count == 1 else f"the {count} messages"
