"""Named crash points: where a test may let the process die. In production `reached` does nothing.

The names are the contract with tests/crash: a point is passed right after the fact it names.
"""

from __future__ import annotations

from collections.abc import Callable

ALL: frozenset[str] = frozenset(
    {
        "inbox.before",  # a message was received, nothing is stored
        "chat.moved",  # that a chat has another number is stored
        "inbox.committed",  # it is stored, the platform was not told
        "inbox.acknowledged",  # the platform was told
        "cursor.moved",  # how far a platform was read is stored, without a message
        "backlog.settled",  # what piled up while we were away may go on, or its sender is owed a question
        "command.committed",  # a command's effect and end are stored
        "action.committed",  # what an operator did is stored, nobody was woken
        "person.let_in",  # somebody may speak from now on, they were not told
        "person.revoked",  # somebody may not any more; their turn has lost its fence and its task still runs
        "channels.kept",  # where people talk, as a platform or conversations say it, is stored
        "restart.told",  # who asked for a restart is told that we are back, and that is stored
        "turn.begun",  # the turn is stored as running, the agent has not started
        "media.fetched",  # a file that came with a message is in the home, no row says so
        "media.settled",  # the turn's words name the files that came with them, and who misses one is owed a notice
        "turn.calling",  # the agent is about to call the model and that is stored
        "step.committed",  # a model response is stored (and its first effect begun)
        "effect.begun",  # an effect is stored as begun, not run
        "message.owed",  # a message that a tool sends is stored as owed, the tool's result is not
        "media.copied",  # a file that a tool sends is in the home's folder of files, nobody is owed it
        "effect.acted",  # the effect ran, its result is not stored
        "effect.committed",  # its result is stored
        "approval.asked",  # a question is stored, its turn waits and nobody holds the key
        "approval.answered",  # that nobody answered in time is stored, its turn was not woken
        "session.compacted",  # the key and its turn have moved to a child session
        "turn.joined",  # what the user wrote meanwhile is part of the turn's transcript
        "turn.told",  # how the turn goes is stored as a notice, nobody saw it yet
        "turn.answering",  # the agent answered, nothing of it is stored
        "turn.finished",  # the answer and the obligation to deliver it are stored
        "turn.failed",  # a failed turn's end is stored
        "doubt.asked",  # the question whether a reply arrived is stored
        "send.before",  # a reply is stored as being sent, the platform was not called
        "send.after",  # the platform took it, that is not stored
        "send.committed",  # the delivery is stored
        "preview.opened",  # that a part of a growing answer is about to be shown is stored
        "preview.sent",  # the platform took it, its id is not stored
        "preview.committed",  # its id is stored
        "preview.removed",  # a part that the answer does not need is gone, that is not stored
        "recovery.instance",  # our instance row is stored, nothing was recovered
        "recovery.turn",  # one turn of a dead instance was recovered
        "recovery.outbox",  # replies of a dead instance were put right
        "recovery.done",  # recovery is complete, no platform was read
        "recovery.ready",  # turns are taken again, and that is stored
        "drain.recorded",  # the drain's kind and reason are stored
        "drain.marked",  # one running turn was marked and released
        "drain.ended",  # how we ended is stored
    }
)

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Let `hook` see every point that is reached; None takes it away."""
    global _hook  # noqa: PLW0603  one process, one hook
    _hook = hook


def reached(name: str) -> None:
    """Say that the fact called `name` has just become true."""
    if _hook is not None:
        _hook(name)
