"""The frozen system prompt and tool schemas of a session, which keep the provider's cache warm."""

from __future__ import annotations

import hashlib

from everturn.store.interface import Op, sql


def freeze(session_id: str, text: str) -> Op[str]:
    """The session's frozen text: the given one if there was none, else what was frozen first."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    yield sql("INSERT INTO frozen (hash, text) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING", digest, text)
    yield sql("UPDATE session SET frozen=$2 WHERE session_id=$1 AND frozen IS NULL", session_id, digest)
    return (yield from frozen(session_id)) or text


def frozen(session_id: str) -> Op[str | None]:
    """The session's frozen text; None when nothing was frozen yet."""
    rows = yield sql("SELECT f.text FROM session s JOIN frozen f ON f.hash=s.frozen WHERE s.session_id=$1", session_id)
    return str(rows[0][0]) if rows else None


def thaw(session_id: str) -> Op[None]:
    """Let the next turn freeze anew: the user asked for a reload."""
    yield sql("UPDATE session SET frozen=NULL WHERE session_id=$1", session_id)
