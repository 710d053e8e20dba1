"""The line beneath (or in place of) a streaming message when its turn ends without an answer, or is interrupted."""

from __future__ import annotations

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
