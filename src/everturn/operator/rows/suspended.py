"""Why a conversation or a turn was suspended, as a sentence; and whether a turn was running at every unclean end."""

from __future__ import annotations

from everturn.operator.rules import operator_texts
from everturn.store.interface import Op, sql

# An entry that is still suspended knows best; afterwards the turn's own verdict and attempts are left.
OF_TURN = (
    "SELECT e.reason, e.unclean_ends, t.verdict, t.attempt, (SELECT count(*) FROM attempt a WHERE a.turn=t.id"
    " AND a.why IN ('the gateway ended','restart_timeout','shutdown_timeout'))"
    " FROM turn t LEFT JOIN entry e ON e.key=t.key AND e.session_id=t.session_id AND e.state='suspended' WHERE t.id=$1"
)
LAST_TEXT = "SELECT content FROM message WHERE session_id=$1 AND role='user' AND hidden=0 ORDER BY seq DESC LIMIT 1"


def why_turn_was_suspended(turn: int, text: str) -> Op[tuple[str, str | None]]:
    """Why a turn was suspended; and the warning before its message is run again, if it was running at every unclean end."""
    rows = yield sql(OF_TURN, turn)
    if not rows:
        return operator_texts.suspended_text(None, 0, text), None
    reason, unclean_ends, verdict, attempts, cut_off = rows[0]
    stuck = reason == "stuck" or (reason is None and verdict == "suspend")
    ends = max(unclean_ends or 0, cut_off) if stuck else 0
    return (
        operator_texts.suspended_text("stuck" if stuck else reason, ends, text),
        operator_texts.ran_at_every_end(cut_off) if stuck and cut_off == attempts > 1 else None,
    )


def why_session_is_suspended(session_id: str, reason: str | None, unclean_ends: int) -> Op[str]:
    """Why a conversation is suspended, with the last message that it worked on."""
    rows = yield sql(LAST_TEXT, session_id)
    return operator_texts.suspended_text(reason, unclean_ends if reason == "stuck" else 0, rows[0][0] if rows else "")
