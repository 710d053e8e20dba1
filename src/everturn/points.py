"""Named crash points, at which a test may kill the process. In production `reached` does nothing.

The names are the contract with tests/crash: a point is passed right after the fact it names.
"""

from __future__ import annotations

from collections.abc import Callable

ALL: frozenset[str] = frozenset(
    {
        "inbox.before",  # a message was received, nothing is stored
        "chat.moved",  # that a chat has another number is stored
        "inbox.committed",  # it is stored, the platform got no acknowledgement
        "inbox.acknowledged",  # the platform got its acknowledgement
        "cursor.moved",  # how far a platform was read is stored, without a message
        "backlog.settled",  # the backlog was released, or a request to its sender is pending
        "command.committed",  # a command's effect and end are stored
        "action.committed",  # what an operator did is stored, nobody was woken
        "person.approved",  # a person is approved, their notice was not sent
        "person.revoked",  # a person is revoked; their turn has lost its fence and its task still runs
        "channels.kept",  # the chat directory, from a platform or from conversations, is stored
        "restart.notified",  # the notice that the gateway is back is stored for who asked for the restart
        "turn.begun",  # the turn is stored as running, the agent has not started
        "media.fetched",  # a file that came with a message is in the home, no row says so
        "media.settled",  # the turn's texts name the files that came with them, and a notice of missing ones is pending
        "turn.calling",  # the agent is about to call the model and that is stored
        "step.committed",  # a model response is stored (and its first effect begun)
        "effect.begun",  # an effect is stored as begun, not run
        "message.queued",  # a message that a tool sends is stored as pending, the tool's result is not
        "media.copied",  # a file that a tool sends is in the home's folder of files, no message is pending
        "effect.acted",  # the effect ran, its result is not stored
        "effect.committed",  # its result is stored
        "approval.asked",  # an approval request is stored, its turn awaits approval and no instance holds the key
        "approval.answered",  # an approval request is stored as expired, its turn was not woken
        "session.compacted",  # the key and its turn have moved to a child session
        "turn.joined",  # a message that arrived meanwhile is part of the turn's transcript
        "turn.notified",  # a progress notice of the turn is stored, not sent
        "turn.answering",  # the agent answered, nothing of it is stored
        "turn.finished",  # the answer and its pending reply are stored
        "turn.failed",  # a failed turn's end is stored
        "delivery.asked",  # a delivery request is stored: did the reply arrive?
        "send.before",  # a reply is stored as being sent, the platform was not called
        "send.after",  # the platform accepted it, that is not stored
        "send.committed",  # the delivery is stored
        "preview.opened",  # a part of a streaming message is stored as about to be sent
        "preview.sent",  # the platform accepted it, its id is not stored
        "preview.committed",  # its id is stored
        "preview.removed",  # a part that the answer does not need is deleted, that is not stored
        "recovery.instance",  # our instance row is stored, nothing was recovered
        "recovery.turn",  # one turn of a dead instance was recovered
        "recovery.outbox",  # replies of a dead instance were recovered
        "recovery.done",  # recovery is complete, no platform was read
        "recovery.ready",  # turns start again, and that is stored
        "drain.recorded",  # the drain's kind and reason are stored
        "drain.marked",  # one running turn was marked and released
        "drain.ended",  # how the process ended is stored
    }
)

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Call `hook` at every point that is reached; None removes it."""
    global _hook  # noqa: PLW0603  one process, one hook
    _hook = hook


def reached(name: str) -> None:
    """Report that the crash point `name` was reached: its fact has just become true."""
    if _hook is not None:
        _hook(name)
