"""Past actions of operators. An action is found by its time: the last so many since then are looked at."""

from __future__ import annotations

from everturn.model import Json
from everturn.store.interface import Op, Row, sql

LOOKED_AT = 10_000
SINCE = f"(SELECT * FROM action WHERE at>=$1 ORDER BY at DESC LIMIT {LOOKED_AT}) AS a"
NAMES = ("action", "target", "actor", "stopped", "at")


def sent_again(since: float) -> Op[dict[str, tuple[float, str]]]:
    """For each reply that somebody sent again: when, and who, the last time."""
    rows = yield sql(f"SELECT target, at, actor FROM {SINCE} WHERE action='send' ORDER BY at", since)
    return {target: (at, actor) for target, at, actor in rows}


def actions_of(number: int, key: str, since: float, turn: Json | None) -> Op[list[Json]]:
    """What was done to a message, to its reply, and to its conversation while its turn was open or suspended."""
    rows = yield sql(f"SELECT {', '.join(NAMES)} FROM {SINCE} WHERE key=$2 ORDER BY at", since, key)
    own = {str(number), str(turn["id"]) if turn else ""}
    kept = [row for row in rows if row[1] in own or (turn and row[1] == key and _in_turn(row, turn))]
    kept += _resumed(rows, key, turn)
    return [
        {"action": action, "actor": actor, "at": at} for action, _, actor, _, at in sorted(kept, key=lambda row: row[4])
    ]


def _in_turn(row: Row, turn: Json) -> bool:
    _, _, _, stopped, at = row
    began, ended = float(str(turn["started_at"])), turn["ended_at"]
    return str(stopped) == turn["id"] or (at >= began and (ended is None or at < float(str(ended))))


def _resumed(rows: list[Row], key: str, turn: Json | None) -> list[Row]:
    """The first resume of a conversation that was suspended with this turn."""
    if turn is None or turn["state"] != "suspended":
        return []
    ended = float(str(turn["ended_at"]))
    return [row for row in rows if row[0] == "resume" and row[1] == key and row[4] >= ended][:1]
