"""What a chat is asked about a reply that may or may not have arrived, and how it answers."""

from __future__ import annotations

from everturn.decide.commands import number_in

SENT_AGAIN = "It is sent again."
LEFT = "Good: it is not sent again."
NOT_OPEN = "That is no longer open: it was sent again, or left."
NOTHING = "No answer of mine is in doubt here."


def question(number: int) -> str:
    """The question."""
    return (
        "I was cut off while I sent you an answer, and can not tell whether it arrived. If it is above, leave it; if it is not, or"
        f" not whole: /resend {number}"
    )


def buttons(number: int) -> tuple[tuple[str, str], ...]:
    """What the buttons beneath it say, and the command that each sends."""
    return ("Send it again", f"/resend {number}"), ("It arrived", f"/resend {number} no")


def answer_of(argument: str) -> tuple[int | None, bool]:
    """The reply that a command names, if any, and whether it says that it arrived."""
    words = argument.lower().split()
    return next((number for each in words if (number := number_in(each)) is not None), None), "no" in words
