"""Short names for the store's operations: values with ids and times, and a gateway process that runs them.

Nothing here knows an engine: what a test says in these words must be true on both.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec import structs

from everturn.commands.rows.commands import apply_command
from everturn.commands.rows.values import Applied, Terms
from everturn.commands.rules.registry import parse_command
from everturn.ids import Ids
from everturn.inbox.rows.inbox import Accepted, Arrival, accept
from everturn.model import Effect, HistoryPosition, Message, Reply, SessionEntry, SessionSource, ToolCall
from everturn.outbox.rows.outbox import claim_next
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rules.rights import NO_RIGHTS, Rights
from everturn.sessions.rows.entries import calls_of, find_entry, history_after, transcript, write_source
from everturn.sessions.rules.keys import session_key
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import Op, P, Rows, Store, sql
from everturn.store.open import open_store
from everturn.testing import ManualClock
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import Interruption, Recovered, cut_off, judge
from everturn.turns.rows.turn_values import BehindApproval, Finished, Later, NotYet, Start, StartedTurn
from everturn.turns.rows.turns import calling, finish, finish_effect, step

T = TypeVar("T")
QUEUE = 32
BY_EVENT = Delivery(by_event=True)
BY_OUTBOX = Delivery(by_event=False)
AT_ONCE = Delivery(by_event=False, send_now=True)

# Every table; of the first four the number that the engine itself gives a row is left out of a dump.
NUMBERED = ("entry", "session", "message", "event")
TABLES = (
    *NUMBERED, "instance", "inbox", "cursor", "turn", "attempt", "effect", "outbox",
    "approval", "allowance", "spending", "failure", "restart", "output", "memory",
    "action", "recovery", "contact",
    "person", "pairing", "pairing_lock", "credential", "description",
    "channel", "alias", "look",
)  # fmt: skip
Dump = dict[str, list[tuple[object, ...]]]


def select(text: str, *args: object) -> Op[Rows]:
    """One statement as an operation, to look at rows or to put damaged ones there."""
    return (yield sql(text, *args))


def dump() -> Op[Dump]:
    """Everything that is stored, in an order and a shape that do not depend on the engine."""
    tables: Dump = {}
    for table in TABLES:
        tables[table] = comparable(table, (yield sql(f"SELECT * FROM {table}")))
    return tables


def comparable(table: str, rows: Rows) -> list[tuple[object, ...]]:
    """The rows of a table in an order and a shape that do not depend on the engine."""
    return sorted((row[1:] if table in NUMBERED else row for row in rows), key=repr)


# What must never be found, whatever ran in whatever order: each finds the rows that break a rule.
BROKEN = {
    "two turns run under one key": "SELECT key FROM turn WHERE state='running' GROUP BY key HAVING count(*)>1",
    "a holder without its running turn": (
        "SELECT e.key FROM entry e LEFT JOIN turn t ON t.id=e.turn AND t.key=e.key AND t.session_id=e.session_id"
        " WHERE e.holder IS NOT NULL AND (t.id IS NULL OR t.state<>'running' OR t.instance<>e.holder)"
    ),
    "an open turn that its key does not point at": (
        "SELECT t.id FROM turn t JOIN entry e ON e.key=t.key WHERE t.state IN ('running','interrupted')"
        " AND (e.turn IS NULL OR e.turn<>t.id OR (e.holder IS NULL AND t.state='running'))"
    ),
    "a waiting turn that somebody holds, or whose key points elsewhere": (
        "SELECT t.id FROM turn t JOIN entry e ON e.key=t.key WHERE t.state='awaiting_approval'"
        " AND (e.turn IS NULL OR e.turn<>t.id OR e.holder IS NOT NULL)"
    ),
    "a question that is open and answered": "SELECT id FROM approval WHERE (answered_at IS NULL)<>(state='open')",
    "an open question without its waiting turn": (
        "SELECT a.id FROM approval a JOIN turn t ON t.id=a.turn WHERE a.answered_at IS NULL AND t.state<>'awaiting_approval'"
    ),
    "a call that began without a yes": (
        "SELECT a.id FROM approval a JOIN effect f ON f.turn=a.turn AND f.call_id=a.call_id WHERE a.state<>'approved'"
    ),
    "a key that points at an ended turn": (
        "SELECT e.key FROM entry e JOIN turn t ON t.id=e.turn WHERE t.ended_at IS NOT NULL"
    ),
    "a claimed message without an open turn": (
        "SELECT i.id FROM inbox i LEFT JOIN turn t ON t.id=i.turn AND t.ended_at IS NULL"
        " WHERE i.state='claimed' AND t.id IS NULL"
    ),
    "a queue with another length": (
        "SELECT e.key, e.waiting FROM entry e"
        " WHERE e.waiting<>(SELECT count(*) FROM inbox i WHERE i.key=e.key AND i.state='queued')"
    ),
    "a message that is open and ended": (
        "SELECT id FROM inbox WHERE (ended_at IS NULL)<>(state IN ('queued','claimed'))"
    ),
    "a turn that is open and ended": (
        "SELECT id FROM turn WHERE (ended_at IS NULL)<>(state IN ('running','awaiting_approval','interrupted'))"
    ),
    "a reply that is open and ended": "SELECT id FROM outbox WHERE (ended_at IS NULL)<>(state NOT IN ('sent','dead'))",
    "two replies of one key being sent": (
        "SELECT key FROM outbox WHERE state='sending' GROUP BY key HAVING count(*)>1"
    ),
    "a row written into a session after its end": (
        "SELECT m.session_id FROM message m JOIN session s ON s.session_id=m.session_id WHERE m.at>s.ended_at"
    ),
    "an ended session with another length": (
        "SELECT s.session_id FROM session s WHERE s.ended_at IS NOT NULL AND s.messages<>"
        "(SELECT coalesce(max(m.seq), 0) FROM message m WHERE m.session_id=s.session_id)"
    ),
    "two open sessions of one key": ("SELECT key FROM session WHERE ended_at IS NULL GROUP BY key HAVING count(*)>1"),
    "a key that points at an ended session": (
        "SELECT e.key FROM entry e JOIN session s ON s.session_id=e.session_id"
        " WHERE (s.ended_at IS NULL)<>(e.expired IS NULL)"
    ),
    "a suspended session with a turn": "SELECT key FROM entry WHERE state='suspended' AND turn IS NOT NULL",
    "a transcript with a gap": (
        "SELECT session_id FROM message GROUP BY session_id HAVING count(*)<>max(seq) OR min(seq)<>1"
    ),
    "events with a gap": (
        "SELECT e.key FROM entry e JOIN event v ON v.key=e.key GROUP BY e.key, e.event_seq"
        " HAVING count(*)<>max(v.seq)-min(v.seq)+1 OR max(v.seq)<>e.event_seq"
    ),
    "a note that was stored": (
        "SELECT content FROM message WHERE content LIKE '%[System note%'"
        " UNION ALL SELECT text FROM outbox WHERE text LIKE '%[System note%'"
    ),
}


def broken() -> Op[dict[str, Rows]]:
    """The rules that are broken, with the rows that break them."""
    found = {}
    for rule, text in BROKEN.items():
        rows = yield sql(text)
        if rows:
            found[rule] = rows
    if unpaired := (yield from unpaired_calls()):
        found["a call without its result"] = unpaired
    return found


def unpaired_calls() -> Op[Rows]:
    """The calls of turns that have ended, and are not hidden, that no result follows."""
    asked = yield sql(
        "SELECT m.session_id, m.calls FROM message m JOIN turn t ON t.id=m.turn"
        " WHERE m.calls IS NOT NULL AND m.hidden=0 AND t.ended_at IS NOT NULL"
    )
    results = set((yield sql("SELECT session_id, call_id FROM message WHERE role='tool' AND hidden=0")))
    return [
        (session, call.id) for session, calls in asked for call in calls_of(calls) if (session, call.id) not in results
    ]


def origin(chat: str = "c", platform: str = "fake", account: str = "") -> SessionSource:
    """Where somebody writes from."""
    return SessionSource(platform=platform, account=account, chat_id=chat, user_id="ann")


def key_of(chat: str = "c", platform: str = "fake") -> str:
    """The session key of a chat."""
    return session_key(origin(chat, platform))


def response(begun: StartedTurn, place: int, *calls: str, text: str = "", at: float | None = None) -> Message:
    """A model's response, `place` rows after the beginning of the attempt, that asks for these calls."""
    asked = tuple(ToolCall(id=call, name="tool", effect=Effect.ONCE) for call in calls)
    return Message(role="assistant", content=text, seq=begun.seq + place, calls=asked, at=at or 0.0)


def result(begun: StartedTurn, place: int, call: str, text: str = "result", at: float | None = None) -> Message:
    """A tool's result."""
    return Message(role="tool", content=text, seq=begun.seq + place, call_id=call, at=at or 0.0)


def call_of(call: str, effect: Effect = Effect.ONCE) -> ToolCall:
    """A tool call."""
    return ToolCall(id=call, name="tool", effect=effect)


@dataclass
class SessionIds:
    """Session ids in order: s1, s2, ..."""

    given: int = 0

    def next(self) -> str:
        self.given += 1
        return f"s{self.given}"


@dataclass(kw_only=True)
class Values:
    """What a process passes to operations: made here with its ids, its times and its settings."""

    clock: ManualClock
    ids: Ids
    sessions: SessionIds = field(default_factory=SessionIds)
    instance: int = 1
    delivery: Delivery = BY_OUTBOX
    policy: ResetPolicy = ResetPolicy()  # noqa: RUF009  frozen
    resume: str = "auto"
    fresh_s: float = 3600.0
    stuck_after: int = 3
    counts: bool = False  # the agent's code has control once a turn begins
    burst_s: float = 0.0
    collect_s: float = 2.0

    @property
    def now(self) -> float:
        return self.clock.now()

    def start(self, *, suspects: bool = True) -> Start:
        """What the beginning of a turn may need, with new ids."""
        return Start(
            instance=self.instance,
            notice=self.ids.next(),
            turn=self.ids.next(),
            session_id=self.sessions.next(),
            at=self.now,
            policy=self.policy,
            fresh_s=self.fresh_s,
            resume=self.resume,
            delivery=self.delivery,
            stuck_after=self.stuck_after,
            suspects=suspects,
            counts=self.counts,
            burst_s=self.burst_s,
            collect_s=self.collect_s,
        )

    def arrival(
        self,
        text: str = "hello",
        chat: str = "c",
        *,
        ext: str | None = None,
        account: str = "",
        platform: str = "fake",
        busy: str = "queue",
        **about: str,
    ) -> Arrival:
        """An inbound message; `ext` is the platform's own id of it, `busy` what it does to a running turn."""
        number, source = self.ids.next(), structs.replace(origin(chat, platform, account), **about)
        return Arrival(
            id=number,
            ext_id=ext or f"m{number}",
            source=source,
            raw_source=write_source(source).decode(),
            key=session_key(source),
            kind="command" if parse_command(text) else "message",
            text=text,
            at=self.now,
            by_event=self.delivery.by_event,
            busy=busy,
        )

    def terms(self, rights: Rights = NO_RIGHTS) -> Terms:
        """What a command may need, with a new id."""
        return Terms(rights=rights, instance=self.instance, message=self.ids.next())

    def answer(self, begun: StartedTurn, place: int = 1, text: str = "done") -> Message:
        """The last row of a turn."""
        return Message(role="assistant", content=text, seq=begun.seq + place, at=self.now)

    def cause(self, reason: str = "restart_interrupted") -> Interruption:
        """This process is over."""
        return Interruption(instance=self.instance, reason=reason, at=self.now, now=self.now, why="the gateway ended")


@dataclass(kw_only=True)
class StoreProcess(Values):
    """One gateway process on a store. `replace(process, instance=2)` is another one beside or after it."""

    store: Store

    async def accept(
        self, text: str = "hello", chat: str = "c", ext: str | None = None, busy: str = "queue", **about: str
    ) -> Accepted:
        """A message is stored and queued."""
        return await self.store.run(accept, self.arrival(text, chat, ext=ext, busy=busy, **about), QUEUE, None)

    async def said(self, chat: str = "c") -> list[tuple[str, str]]:
        """What a chat's conversation holds: who said what."""
        rows = await self.store.read(transcript, (await self.entry(chat)).session_id or "", 0, 999)
        return [(row.role, row.content) for row in rows]

    async def begun(self, text: str = "hello", chat: str = "c", **about: str) -> StartedTurn:
        """A message is stored, and its turn begins with the same commit."""
        accepted = await self.store.run(accept, self.arrival(text, chat, **about), QUEUE, self.start())
        assert accepted.begun is not None
        return accepted.begun

    async def begin(self, chat: str = "c") -> StartedTurn | NotYet | BehindApproval | Later | None:
        """Take the key."""
        return await self.store.run(begin_next, key_of(chat), self.start())

    async def began(self, chat: str = "c") -> StartedTurn:
        """Take the key, which must be free and have work."""
        begun = await self.begin(chat)
        assert isinstance(begun, StartedTurn)
        return begun

    async def finish(self, begun: StartedTurn, place: int = 1, text: str = "done") -> Finished:
        """Answer."""
        return await self.store.run(finish, begun, self.answer(begun, place, text), self.delivery, self.instance, None)

    async def talk(self, text: str = "hello", chat: str = "c") -> StartedTurn:
        """A whole turn."""
        begun = await self.begun(text, chat)
        await self.finish(begun)
        return begun

    async def tool(self, begun: StartedTurn, call: str = "call", place: int = 1) -> None:
        """A response that asks for a tool, and the tool's result: two rows."""
        asked = response(begun, place, call, at=self.now)
        await self.store.run(step, begun, asked, call_of(call), None, prove_it=False)
        await self.store.run(finish_effect, begun, result(begun, place + 1, call, at=self.now), None)

    async def called(self, text: str = "hello", chat: str = "c", **about: str) -> StartedTurn:
        """A turn that has called its model: from now on an end of the process is an interruption."""
        begun = await self.begun(text, chat, **about)
        await self.store.run(calling, begun)
        return begun

    async def command(self, text: str, chat: str = "c") -> Applied:
        """A command is stored and applied."""
        arrival = self.arrival(text, chat)
        await self.store.run(accept, arrival, QUEUE, None)
        applied = await self.store.run(
            apply_command, arrival.id, self.sessions.next(), self.now, self.delivery, self.terms()
        )
        assert applied is not None
        return applied

    async def die(self, reason: str = "restart_interrupted") -> list[Recovered]:
        """This process is over, and its work is recovered."""
        verdicts = await self.store.run(judge, self.instance, self.stuck_after)
        ends = [await self.store.run(cut_off, *each, self.cause(reason), self.delivery) for each in verdicts]
        return [end for end in ends if end is not None]

    async def claim(self, chat: str = "c") -> object:
        """The next reply to send."""
        return await self.store.run(claim_next, key_of(chat), self.instance, self.ids.next(), self.now)

    async def sending(self, chat: str = "c") -> Reply:
        """The next reply, which must be there and due, now ours to send."""
        reply = await self.claim(chat)
        assert isinstance(reply, Reply)
        return reply

    async def entry(self, chat: str = "c") -> SessionEntry:
        """What a chat points at."""
        entry = await self.store.read(find_entry, key_of(chat))
        assert entry is not None
        return entry

    async def look(self, text: str, *args: object) -> Rows:
        """Rows, as they are stored."""
        return await self.store.read(select, text, *args)

    async def plant(self, text: str, *args: object) -> None:
        """Put something there that no operation would."""
        await self.store.run(select, text, *args)

    async def states(self, table: str) -> list[str]:
        """The state of every row of a table, oldest first."""
        return [row[0] for row in await self.look(f"SELECT state FROM {table} ORDER BY id")]

    async def dump(self) -> Dump:
        """Everything that is stored."""
        return await self.store.read(dump)

    async def twice(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation as after a commit whose outcome was unknown: the second run says and leaves the same."""
        first = await self.store.run(operation, *args, **kwargs)
        stored = await self.dump()
        assert await self.store.run(operation, *args, **kwargs) == first
        assert await self.dump() == stored
        return first

    async def unchanged(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that must not change a row."""
        stored = await self.dump()
        said = await self.store.run(operation, *args, **kwargs)
        assert await self.dump() == stored
        return said


async def wants_compaction(process: StoreProcess, session_id: str) -> bool:
    """Whether the session's user asked for a compaction, as its agent is told."""
    return (await process.store.read(history_after, HistoryPosition(session_id))).compaction_wanted


@asynccontextmanager
async def living(url: str, **changes: object) -> AsyncIterator[StoreProcess]:
    """A process on the store at `url`, with its schema."""
    store, clock = await open_store(url), ManualClock()
    try:
        yield replace(StoreProcess(store=store, clock=clock, ids=Ids(clock, 1)), **changes)  # type: ignore[arg-type]
    finally:
        await store.close()


async def answer_to(
    process: StoreProcess, text: str, chat: str = "c", terms: Terms | None = None, **about: str
) -> tuple[Applied, str]:
    """A command, applied twice, and what it says."""
    arrival = process.arrival(text, chat, **about)
    await process.store.run(accept, arrival, QUEUE, None)
    applied = await process.twice(
        apply_command, arrival.id, "unused", process.now, process.delivery, terms or process.terms()
    )
    ((said,),) = await process.look("SELECT text FROM outbox WHERE id=$1", arrival.id)
    assert applied is not None
    return applied, str(said)
