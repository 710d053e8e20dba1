"""Why a conversation was set aside, in a sentence with the number and the words; and who was running at every end."""

from __future__ import annotations

from everturn.decide import ops_words
from everturn.store.interface import Op, sql

# An entry that is still suspended knows best; afterwards the turn's own verdict and attempts are left.
OF_TURN = (
    "SELECT e.reason, e.unclean_ends, t.verdict, t.attempt, (SELECT count(*) FROM attempt a WHERE a.turn=t.id"
    " AND a.why IN ('the gateway ended','restart_timeout','shutdown_timeout'))"
    " FROM turn t LEFT JOIN entry e ON e.key=t.key AND e.session_id=t.session_id AND e.state='suspended' WHERE t.id=$1"
)
LAST_WORDS = "SELECT content FROM message WHERE session_id=$1 AND role='user' AND hidden=0 ORDER BY seq DESC LIMIT 1"


def why_turn_was_set_aside(turn: int, words: str) -> Op[tuple[str, str | None]]:
    """Of a turn that ended suspended: why; and the warning for who runs its message again, if it was running at every end."""
    rows = yield sql(OF_TURN, turn)
    if not rows:
        return ops_words.set_aside(None, 0, words), None
    reason, unclean_ends, verdict, attempts, cut_off = rows[0]
    stuck = reason == "stuck" or (reason is None and verdict == "suspend")
    ends = max(unclean_ends or 0, cut_off) if stuck else 0
    return (
        ops_words.set_aside("stuck" if stuck else reason, ends, words),
        ops_words.ran_at_every_end(cut_off) if stuck and cut_off == attempts > 1 else None,
    )


def why_session_is_set_aside(session_id: str, reason: str | None, unclean_ends: int) -> Op[str]:
    """Of a suspended conversation: why, with the last words that it worked on."""
    rows = yield sql(LAST_WORDS, session_id)
    return ops_words.set_aside(reason, unclean_ends if reason == "stuck" else 0, rows[0][0] if rows else "")
