"""The texts of the outbox: what a streaming message shows, and what marks a reply that may be a repetition."""

from __future__ import annotations

from everturn.commands.rules.registry import number_in

REPLACES = "(After an interruption: this replaces the message above, if there is one.)"
SUPERSEDED = "(This part was replaced: the answer is above.)"
NOTHING_SAID = "(There is nothing to say.)"
TAKEN_BACK = "(Taken back.)"
PAUSED = "(Interrupted. The answer continues here.)"
_ENDS = {
    "/stop": "(Stopped.)",
    "/new": "(Stopped: a new conversation was started.)",
    "/retry": "(Stopped: your message is run again.)",
    "/resume": "(Stopped: another conversation was resumed.)",
    "interrupted": "(Stopped by your new message.)",
    "rolled back": TAKEN_BACK,
    "suspended": "(Interrupted.)",
}


def ended(why: str) -> str:
    """The line that says why a turn ended without an answer."""
    return _ENDS.get(why, "(Ended without an answer.)")


def beneath(said: str, text: str) -> str:
    """What was said, and the text beneath it."""
    return f"{said.rstrip()}\n\n{text}" if said.strip() and text else said.rstrip() or text


# Texts of the delivery request: the gateway asks a chat whether a reply arrived, and the chat answers.


SENT_AGAIN = "I will send the answer again."
LEFT = "Good: I will not send the answer again."
NOT_OPEN = "That request is closed: the answer was sent again, or counts as delivered."
NOTHING = "There is no answer with unknown delivery in this chat."


def request(number: int) -> str:
    """The text of the delivery request."""
    return (
        "I was interrupted while sending you an answer and cannot tell whether it arrived. If you see it above, you need not do"
        f" anything. If it is missing or incomplete, send /resend {number}"
    )


def buttons(number: int) -> tuple[tuple[str, str], ...]:
    """The buttons of the delivery request: label, and the command that it sends."""
    return ("Send it again", f"/resend {number}"), ("It arrived", f"/resend {number} no")


def answer_of(argument: str) -> tuple[int | None, bool]:
    """The reply that a /resend command names, if any, and whether the command says that it arrived."""
    text = argument.lower().split()
    return next((number for each in text if (number := number_in(each)) is not None), None), "no" in text
