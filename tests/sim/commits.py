"""What every commit of the simulated database keeps: triggers watch the rows. Two planted faults of the outbox were invisible from
outside without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import apsw

from everturn.model import INBOX_MOVES, OUTBOX_MOVES, TURN_MOVES
from tests.promises import NOTE

CLOSED = "EXISTS (SELECT 1 FROM instance WHERE number=NEW.{} AND ended_at IS NOT NULL)"


def watch(db: apsw.Connection) -> None:
    """Watch all writes of this connection."""
    db.execute("CREATE TEMP TABLE broken (what TEXT)")
    for name, text in triggers().items():
        db.execute(f"CREATE TEMP TRIGGER {name} {text}")


def broken(db: apsw.Connection) -> list[str]:
    """What commits did that none may do, each once."""
    return [what for (what,) in db.execute("SELECT DISTINCT what FROM broken")]


def triggers() -> dict[str, str]:
    """The triggers, by name."""
    tables: dict[str, Mapping[Any, Iterable[StrEnum]]] = {
        "inbox": INBOX_MOVES, "turn": TURN_MOVES, "outbox": OUTBOX_MOVES,
    }  # fmt: skip
    return {f"moves_of_{table}": _moves(table, moves) for table, moves in tables.items()} | {
        "one_turn": _on(
            "UPDATE OF state ON turn", "NEW.state='running' AND (SELECT count(*) FROM turn WHERE key=NEW.key AND state='running')>1",
            "'two turns of '||NEW.key||' run at once'",
        ),
        "one_new_turn": _on(
            "INSERT ON turn", "(SELECT count(*) FROM turn WHERE key=NEW.key AND state='running')>1",
            "'two turns of '||NEW.key||' run at once'",
        ),
        "ended_session": _on(
            "INSERT ON message", "EXISTS (SELECT 1 FROM session WHERE session_id=NEW.session_id AND ended_at IS NOT NULL)",
            "'a write into the ended session '||NEW.session_id",
        ),
        "note_stored": _on("INSERT ON message", f"instr(NEW.content, '{NOTE}')>0", "'a note in the transcript of '||NEW.session_id"),
        "closed_takes_key": _on(
            "UPDATE OF holder ON entry", f"NEW.holder IS NOT NULL AND NEW.fence<>OLD.fence AND {CLOSED.format('holder')}",
            "'the closed instance '||NEW.holder||' begins a turn of '||NEW.key",
        ),
        "closed_claims": _on(
            "UPDATE OF state ON outbox", f"NEW.state='sending' AND OLD.state='pending' AND {CLOSED.format('instance')}",
            "'the closed instance '||NEW.instance||' claims the reply '||NEW.id",
        ),
        "closed_writes": _on(
            "UPDATE OF state, parts, bubble ON outbox",
            "OLD.state IN ('sending','open') AND NEW.state<>'dead' AND OLD.instance<>writer()"
            " AND EXISTS (SELECT 1 FROM instance WHERE number=writer() AND ended_at IS NOT NULL)",
            "'the closed instance '||writer()||' writes about the reply '||OLD.id||', which '||OLD.instance||' has'",
        ),
        "fence_goes_up": _on(
            "UPDATE OF fence ON entry", "NEW.fence<OLD.fence", "'the fence of '||NEW.key||' went back'",
        ),
        "result_stays": _on(
            "UPDATE OF content ON message", "OLD.role='tool' AND NEW.content<>OLD.content AND OLD.unknown=0",
            "'a recorded result was changed in '||NEW.session_id",
        ),
    }  # fmt: skip


def _moves(table: str, moves: Mapping[Any, Iterable[StrEnum]]) -> str:
    legal = ", ".join(sorted(f"'{before}>{after}'" for before, afters in moves.items() for after in afters))
    return _on(
        f"UPDATE OF state ON {table}",
        f"NEW.state<>OLD.state AND OLD.state||'>'||NEW.state NOT IN ({legal})",
        f"'{table} '||OLD.id||': '||OLD.state||' became '||NEW.state",
    )


def _on(event: str, when: str, what: str) -> str:
    return f"AFTER {event} WHEN {when} BEGIN INSERT INTO broken VALUES ({what}); END"
