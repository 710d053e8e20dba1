"""What 2,000 messages of history add to the time to the first token, against what 20 add."""

from __future__ import annotations

import statistics

import apsw

from bench.disk import folder
from bench.first_token import added
from bench.report import Line, at_most
from bench.shipped import Side, Stage, home_of, shipped, stage
from bench.streams import StreamLoad
from everturn.home.folder import Home

METHOD = (
    "a real `everturn run` after 100 turns with tools, on a core of its own; sessions with 20 and with 2,000 messages of 100 characters; the client "
    "sends all of them again with each message, as chat programs do, or only what is new; the model server is given the same whole body directly; "
    "one request after the other, from the request to the first token; added: the difference of the p50 of neighbours; the ratio of both in each round, median"
)
SHORT, LONG = 20, 2_000
WHOLE, NEW, STANDALONE = "all sent again", "only the new one sent", "as a call of its own"
KINDS = ((WHOLE, SHORT), (WHOLE, LONG), (NEW, SHORT), (NEW, LONG), (STANDALONE, LONG))
SESSIONS = 5
ROUNDS = 3  # a session grows by two messages in each
TEXT = "#speak 4 80"
SAID = "message %d of a conversation that has become long: nothing in it is like what was said before, %08d"
FILL = (
    "WITH RECURSIVE number(n) AS (SELECT 3 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)"
    " INSERT INTO message (session_id, seq, role, content, at)"
    " SELECT ?1, n, CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, printf(?3, n, n), ?4 FROM number"
)
GROWN = "UPDATE entry SET seq = ?2 WHERE session_id = ?1"
BEGUN = "SELECT session_id, created_at FROM entry WHERE key LIKE '%' || ?1"
GIVEN = "SELECT avg(input_tokens / requests) FROM session WHERE key LIKE '%' || ?1"
TOKENS_OF_A_MESSAGE = 25


async def measure() -> list[Line]:
    """Begin the sessions, fill them while no gateway runs, then measure."""
    direct: dict[tuple[str, int], list[float]] = {}
    through: dict[tuple[str, int], list[float]] = {}
    with folder() as path, stage() as on:
        database = str(Home(home_of(path)).database)
        with shipped(path, on.model_url) as ours:
            names = [name for kind, size in KINDS if kind != STANDALONE for name in _sessions(kind, size)]
            await on.read(ours, TEXT, StreamLoad(ours.port, (tuple(ours.request(TEXT, user=name) for name in names),)))
        _fill(database)
        with shipped(path, on.model_url) as ours:
            await on.warm(ours)
            for number in range(1 + ROUNDS):
                for kind, size in KINDS:
                    found = await _block(on, on.direct, kind, size), await _block(on, ours, kind, size)
                    if number:
                        direct.setdefault((kind, size), []).append(found[0])
                        through.setdefault((kind, size), []).append(found[1])
        _check(database)
    lines = [
        added(f"first token, {size:,} messages, {kind}", direct[kind, size], through[kind, size], None)
        for kind, size in KINDS
    ]
    adds = {each: [b - a for a, b in zip(direct[each], through[each], strict=True)] for each in KINDS}
    for kind, target in ((WHOLE, at_most(1.5, aim=1.3)), (NEW, None)):
        ratio = statistics.median(b / a for a, b in zip(adds[kind, SHORT], adds[kind, LONG], strict=True))
        lines.append(Line(name=f"first token added, 2,000 / 20 messages, {kind}", value=ratio, target=target))
    return lines


def _sessions(kind: str, size: int) -> list[str]:
    return [f"{kind[:3]}-{number}-of-{size}" for number in range(SESSIONS)]


async def _block(on: Stage, side: Side, kind: str, size: int) -> float:
    """Each session asks once; the p50 in milliseconds."""
    before = [
        {"role": "user" if number % 2 else "assistant", "content": SAID % (number, number)}
        for number in range(1, 1 + size)
    ]
    said = [] if kind == NEW and side is not on.direct else before
    users = [None] * SESSIONS if kind == STANDALONE else _sessions(kind, size)
    requests = tuple(side.request(TEXT, said, user) for user in users)
    return (await on.read(side, TEXT, StreamLoad(side.port, (requests,)))).first_ms


def _fill(database: str) -> None:
    """Write the messages that each session is to have; its first turn has written two."""
    db = apsw.Connection(database)
    with db:
        for size in (SHORT, LONG):
            for session, at in db.execute(BEGUN, (f"-of-{size}",)).fetchall():
                db.execute(FILL, (session, size, SAID, at))
                db.execute(GROWN, (session, size))
    db.close()


def _check(database: str) -> None:
    """Raise RuntimeError if the model was not given the whole history."""
    db = apsw.Connection(database)
    for size in (SHORT, LONG):
        given = db.execute(GIVEN, (f"-of-{size}",)).get
        if given < size * TOKENS_OF_A_MESSAGE * ROUNDS / (ROUNDS + 2):
            raise RuntimeError(f"the model was given {given} tokens of {size} messages")
    db.close()
