"""What a bubble says beneath (or instead of) its words when its turn ends without an answer, or waits."""

from __future__ import annotations

REPLACES = "(After an interruption: this replaces the message above, if there is one.)"
SUPERSEDED = "(This part was replaced: the answer is above.)"
NOTHING_SAID = "(There is nothing to say.)"
TAKEN_BACK = "(Taken back.)"
PAUSED = "(Interrupted. It goes on from here.)"
_ENDS = {
    "/stop": "(Stopped.)",
    "/new": "(Stopped: a new conversation was begun.)",
    "/retry": "(Stopped: it is tried again.)",
    "/resume": "(Stopped: another conversation was taken up.)",
    "interrupted": "(Stopped by your new message.)",
    "rolled back": TAKEN_BACK,
    "suspended": "(Interrupted.)",
}


def ended(why: str) -> str:
    """Why nothing more comes."""
    return _ENDS.get(why, "(Ended without an answer.)")


def beneath(said: str, words: str) -> str:
    """What was said, and the words beneath it."""
    return f"{said.rstrip()}\n\n{words}" if said.strip() and words else said.rstrip() or words
