"""Both engines, step by step: the same operations with the same ids and times return the same and leave the same rows.

Turns that lost their key and processes that ended stay in the game: their late writes must be refused alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as draw_from
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec import structs

from everturn.commands.rows.commands import apply_command
from everturn.ids import Ids
from everturn.inbox.rows.inbox import accept, store_dead_letter
from everturn.inbox.rows.steering import choose_busy, join_turn
from everturn.inbox.rules import BusyMode
from everturn.lifecycle.rows import (
    expire,
    find_others,
    forget,
    found_unclean,
    join,
    record_drain,
    record_end,
    record_lock,
)
from everturn.model import Reply, ToolCall, Usage
from everturn.operator.rows.reading import count_open
from everturn.outbox.rows.outbox import (
    claim_next,
    make_dead_letter,
    mark_unknown,
    record_part,
    record_sent,
    recover_sending,
    try_later,
)
from everturn.outbox.rules.delivery import UnknownAction
from everturn.sessions.rows.boundaries import open_calls
from everturn.sessions.rows.compaction import Compaction, compact
from everturn.sessions.rows.entries import find_entry, list_entries, transcript
from everturn.sessions.rules.keys import Isolation
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import Op, sql
from everturn.testing import ManualClock
from everturn.turns.rows.approval_requests import answered_keys, notify_queued
from everturn.turns.rows.approvals import ApprovalTerms, begin_approved, due_approvals, expire_approval
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import (
    cut_off,
    cut_off_by_drain,
    interrupted_keys,
    judge,
    notify_too_old,
    suspend_session,
)
from everturn.turns.rows.spending import Plan
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import begin_effect, calling, calling_with_plan, fail, finish, finish_effect, prove, step
from everturn.turns.rules.approvals import ApprovalScope
from everturn.turns.rules.spending import SpendingLimits
from tests.contracts.store import (
    AT_ONCE,
    BY_EVENT,
    BY_OUTBOX,
    TABLES,
    StoreProcess,
    broken,
    call_of,
    key_of,
    living,
    response,
    result,
    select,
)
from tests.empty import EmptyFile
from tests.postgres import PostgresServer, empty_database
from tests.store.pair import Pair, paired

QUEUE = 3
HOUR, DAY = 3600.0, 86_400.0
# Each chat has its own way of delivery and its own policy.
DELIVERIES = {"web": BY_EVENT, "keyed": AT_ONCE, "plain": BY_OUTBOX}
POLICIES = {
    "web": ResetPolicy("idle", idle_minutes=120), "keyed": ResetPolicy(), "plain": ResetPolicy("both", idle_minutes=1440),
}  # fmt: skip
TYPED = ("/new", "/stop", "/resume", "/resume 1", "/status", "/undo", "/undo 2", "/retry", "/branch", "/model a:b")
chats = st.sampled_from(sorted(DELIVERIES))
processes = st.sampled_from([1, 2, 3, 4])  # the first two may end: then they begin and claim nothing
actions = st.sampled_from(sorted(UnknownAction))


@dataclass
class Run:
    """An attempt of a turn, as its runner knows it: how many rows it has written, and the call it is in."""

    begun: StartedTurn
    process: StoreProcess
    written: int = 0
    call: str | None = None


def mark(key: str, at: float) -> Op[None]:
    """A session that was resumed or branched in the middle of a turn has a mark and no turn."""
    yield sql(
        "UPDATE entry SET state='resume_pending', reason='restart_timeout', marked_at=$2"
        " WHERE key=$1 AND session_id IS NOT NULL AND state<>'suspended'",
        key, at,
    )  # fmt: skip


def clear_mark(key: str) -> Op[None]:
    yield sql(
        "UPDATE entry SET state='active', reason=NULL, marked_at=NULL WHERE key=$1 AND state='resume_pending'", key
    )


USED = Usage(requests=1, input_tokens=30, output_tokens=10, cost=0.25)
WORK = ["call", "prove", "step", "step", "effect", "result", "result", "join", "join", "ask", "ask", "compact", "plan"]


def delete_all() -> Op[None]:
    """Empty the database."""
    for table in TABLES:
        yield sql(f"DELETE FROM {table}")


class Machine(RuleBasedStateMachine):
    """Drives two stores side by side."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        clock = ManualClock()
        self.both, self.twice = pair.both, pair.twice
        self.process = StoreProcess(store=pair.sqlite, clock=clock, ids=Ids(clock, 1))
        self.runs: dict[tuple[int, int], Run] = {}
        self.commands: list[tuple[int, str]] = []
        self.replies: list[Reply] = []
        self.ended: set[int] = set()
        self.both(delete_all)

    def at(self, chat: str, number: int = 1) -> StoreProcess:
        """A process that speaks with a chat, a moment later."""
        self.process.clock.advance(0.001)
        return replace(self.process, instance=number, delivery=DELIVERIES[chat], policy=POLICIES[chat], fresh_s=HOUR)

    def remember(self, begun: object, process: StoreProcess) -> None:
        """Remember an attempt; a later one first finishes the call that was open."""
        if isinstance(begun, StartedTurn):
            left = self.both(open_calls, begun.turn, begun.session_id)
            self.runs.setdefault((begun.turn, begun.attempt), Run(begun, process, call=left[0][0].id if left else None))

    # -- messages and commands ----------------------------------------------------------------------------------------

    @rule(
        chat=chats,
        number=processes,
        text=st.sampled_from(["hi", "yo"]),
        ext=st.sampled_from([None, None, "1"]),
        at_once=st.booleans(),
        busy=st.sampled_from(sorted(BusyMode)),
    )
    def a_message(self, chat: str, number: int, text: str, ext: str | None, at_once: bool, busy: str) -> None:  # noqa: FBT001
        process = self.at(chat, number)
        arrival = process.arrival(text, chat, ext=ext, busy=busy)
        accepted = self.twice(accept, arrival, QUEUE, process.start() if at_once else None)
        assert accepted is not None or number in self.ended
        self.remember(accepted and accepted.begun, process)

    @rule(chat=chats)
    def a_message_that_is_turned_away(self, chat: str) -> None:
        process = self.at(chat)
        self.both(store_dead_letter, process.arrival("x" * 9, chat), "too_long", "Too long.")

    @rule(chat=chats, text=st.sampled_from(TYPED))
    def a_command(self, chat: str, text: str) -> None:
        arrival = self.at(chat).arrival(text, chat)
        self.both(accept, arrival, QUEUE, None)
        self.commands.append((arrival.id, chat))

    @precondition(lambda self: self.commands)
    @rule(data=st.data())
    def a_command_is_applied(self, data: st.DataObject) -> None:
        number, chat = data.draw(st.sampled_from(self.commands[-4:]))
        process = self.at(chat)
        self.twice(apply_command, number, process.sessions.next(), process.now, process.delivery, process.terms())

    # -- turns --------------------------------------------------------------------------------------------------------

    @rule(chat=chats, number=processes, suspects=st.booleans())
    def a_key_is_taken(self, chat: str, number: int, suspects: bool) -> None:  # noqa: FBT001
        process = self.at(chat, number)
        self.remember(self.twice(begin_next, key_of(chat), process.start(suspects=suspects)), process)

    @precondition(lambda self: self.runs)
    @rule(
        data=st.data(),
        what=st.sampled_from(WORK),
    )
    def a_turn_works(self, data: st.DataObject, what: str) -> None:
        run = self.drawn(data)
        begun, now, call = run.begun, run.process.now, f"call {run.begun.attempt} {run.begun.seq + run.written}"
        if what == "step" and not run.call:
            asked = response(begun, run.written + 1, call, at=now)
            self.twice(step, begun, asked, call_of(call), call, prove_it=run.written == 0)
            run.written, run.call = run.written + 1, call
        elif what in {"step", "result"} and run.call:
            self.twice(finish_effect, begun, result(begun, run.written + 1, run.call, at=now), None)
            run.written, run.call = run.written + 1, None
        elif what == "effect":
            self.twice(begin_effect, begun, call_of(call), now)
        elif what in MOVES:
            MOVES[what](self, run, data)
        else:
            self.twice(prove if what == "prove" else calling, begun)

    @rule(
        chat=chats,
        allow=st.booleans(),
        scope=st.sampled_from(sorted(ApprovalScope)),
        late=st.sampled_from([0.0, 0.0, HOUR]),
    )
    def a_refusal_or_approval_comes_or_it_expires(self, chat: str, allow: bool, scope: str, late: float) -> None:  # noqa: FBT001
        process = self.at(chat)
        arrival = process.arrival(f"/approve {scope}" if allow else "/deny", chat)
        self.both(accept, arrival, QUEUE, None)
        self.process.clock.advance(0.001)  # it is applied later than it came
        self.twice(
            apply_command, arrival.id, process.sessions.next(), process.now + late, process.delivery, process.terms()
        )
        for number, key in self.both(due_approvals, process.now + late) or ():
            if key == key_of(chat):
                self.twice(expire_approval, number, key, process.ids.next(), process.now, process.delivery)
        self.both(answered_keys)
        self.process.clock.advance(0.001)
        self.twice(notify_queued, key_of(chat), process.ids.next(), process.now, process.delivery)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), well=st.sampled_from([True, True, False]))
    def a_turn_ends(self, data: st.DataObject, well: bool) -> None:  # noqa: FBT001
        run = self.drawn(data)
        begun, process = run.begun, run.process
        if not well or run.call:  # an agent answers when its calls have their results
            self.twice(fail, begun, "why", "sorry", process.now, process.delivery)
            return
        answer = process.answer(begun, run.written + 1)
        finished = self.twice(finish, begun, answer, process.delivery, process.instance, None)
        if finished is not None and finished.reply is not None:
            self.replies.append(finished.reply)

    def drawn(self, data: st.DataObject) -> Run:
        """One of the latest attempts, whether it still owns its key or not."""
        run = data.draw(st.sampled_from(list(self.runs.values())[-4:]))
        self.process.clock.advance(0.001)
        return run

    # -- deaths -------------------------------------------------------------------------------------------------------

    @rule(number=processes, reason=st.sampled_from(["restart_interrupted", "restart_timeout"]), action=actions)
    def a_killed_process_is_recovered(self, number: int, reason: str, action: UnknownAction) -> None:
        process = self.at("plain", number)
        for turn, key, verdict in self.twice(judge, number, process.stuck_after) or ():
            delivery = next(each for chat, each in DELIVERIES.items() if key_of(chat) == key)
            self.both(cut_off, turn, key, verdict, process.cause(reason), delivery)
        self.both(recover_sending, number, {"fake": action}, process.now)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_turn_is_drained(self, data: st.DataObject) -> None:
        run = self.drawn(data)
        cause = run.process.cause("restart_timeout")
        self.both(cut_off_by_drain, run.begun.turn, run.begun.key, 3, cause, run.process.delivery)

    @rule(number=st.sampled_from([1, 2]), token=st.sampled_from("ab"))
    def a_process_comes_or_goes(self, number: int, token: str) -> None:
        now = self.at("web").now
        self.twice(join, token, "host", 1, now)
        self.twice(record_lock, number, now)
        self.twice(found_unclean, number)
        self.twice(record_drain, number, "restart", "deploy", now)
        self.twice(record_end, number, "unclean", now)
        self.ended.add(number)

    # -- replies ------------------------------------------------------------------------------------------------------

    @rule(chat=chats, number=processes)
    def a_reply_is_claimed(self, chat: str, number: int) -> None:
        process = self.at(chat, number)
        reply = self.twice(claim_next, key_of(chat), number, process.ids.next(), process.now)
        if isinstance(reply, Reply):
            self.replies.append(reply)

    @precondition(lambda self: self.replies)
    @rule(data=st.data(), end=st.sampled_from(["sent", "sent", "part", "later", "dead", "unknown"]), action=actions)
    def a_reply_is_out(self, data: st.DataObject, end: str, action: UnknownAction) -> None:
        reply, now = data.draw(st.sampled_from(self.replies[-3:])), self.at("web").now
        if end == "sent":
            self.twice(record_sent, reply, ("p",), now)
        elif end == "part":
            self.twice(record_part, reply, ("p",))
        elif end == "later":
            self.twice(try_later, reply, now + 5, "busy")
        elif end == "dead":
            self.twice(make_dead_letter, reply, now, "refused")
        else:
            self.twice(mark_unknown, reply, action, now, "lost")

    # -- time, marks and looking --------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([6.0, HOUR * 1.5, HOUR * 3, DAY * 2, DAY * 20]))
    def time_passes(self, seconds: float) -> None:
        self.process.clock.advance(seconds)
        self.both(forget, self.process.now)
        for key, turn, *_ in self.both(interrupted_keys) or ():
            delivery = next(each for chat, each in DELIVERIES.items() if key_of(chat) == key)
            self.both(notify_too_old, turn, key, replace(self.process, delivery=delivery).start())

    @rule(chat=chats, what=st.sampled_from(["mark", "clear", "suspend", "expire", "expire", *sorted(BusyMode)]))
    def an_entry_is_marked(self, chat: str, what: str) -> None:
        key, now = key_of(chat), self.at(chat).now
        if what == "mark":
            self.twice(mark, key, now)
        elif what == "clear":
            self.both(clear_mark, key)
        elif what == "suspend":
            self.twice(suspend_session, key, now)
        elif what in set(BusyMode):
            self.twice(choose_busy, key, what)
        elif (entry := self.both(find_entry, key)) is not None:
            self.both(expire, key, entry.fence, "idle", now)

    def teardown(self) -> None:
        """Every way of looking sees the same on both."""
        self.both(count_open)
        self.both(find_others, 0)
        for entry in self.both(list_entries, "", 99) or ():
            self.both(transcript, str(entry["session_id"]), 0, 999)


def a_turn_is_joined(machine: Machine, run: Run, _data: st.DataObject) -> None:
    begun = structs.replace(run.begun, seq=run.begun.seq + run.written)
    joined = machine.twice(join_turn, begun, run.process.ids.next(), Isolation(), run.process.now, run.process.delivery)
    if joined is not None:
        run.begun, run.written = joined.begun, 0


def a_turn_requests_approval(machine: Machine, run: Run, _data: st.DataObject) -> None:
    """A response whose call needs an approval, and the request."""
    begun, process, call = run.begun, run.process, f"ask {run.begun.attempt} {run.begun.seq + run.written}"
    if run.call:
        return
    asked = ToolCall(id=call, name="tool", ask="May I?")
    said = structs.replace(response(begun, run.written + 1, at=process.now), calls=(asked,))
    machine.twice(step, begun, said, None, None, USED, prove_it=False)
    run.written, run.call = run.written + 1, call
    machine.process.clock.advance(0.001)
    terms = ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=HOUR, delivery=process.delivery)
    machine.twice(begin_approved, begun, asked, terms)


def a_turn_is_compacted(machine: Machine, run: Run, data: st.DataObject) -> None:
    """Between two steps, as agents do it."""
    if run.call:
        return
    move = Compaction(
        session_id=run.process.sessions.next(),
        summary="so far",
        keep=data.draw(st.integers(0, 4)),
        at=run.process.now,
        usage=USED,
    )
    moved = machine.twice(compact, run.begun, move)
    if moved is not None:
        run.begun, run.written = structs.replace(moved.begun, seq=moved.last), 0


def a_call_is_planned(machine: Machine, run: Run, data: st.DataObject) -> None:
    """Counted, or refused by a limit."""
    limits = SpendingLimits(turn_tokens=200, total_tokens_day=data.draw(st.sampled_from([0, 500])))
    plan = Plan(call=run.process.ids.next(), tokens=60, cost=0.0, day="today", spender="person:ann", limits=limits)
    machine.twice(calling_with_plan, run.begun, plan)


MOVES: dict[str, Callable[[Machine, Run, st.DataObject], None]] = {
    "join": a_turn_is_joined,
    "ask": a_turn_requests_approval,
    "compact": a_turn_is_compacted,
    "plan": a_call_is_planned,
}


def drive_machine(server: PostgresServer, folder: Path, seed: int, examples: int, steps: int) -> None:
    """Run so many scenarios of at most so many steps, on an empty database of each engine; the seed decides which ones.

    Raises AssertionError with the shortest scenario on which the engines differ or a rule is broken.
    """
    url = server.create_database()
    try:
        with paired(f"sqlite:///{folder / 'everturn.db'}", url) as pair:
            run_state_machine_as_test(
                draw_from(seed)(partial(Machine, pair)),  # type: ignore[arg-type]  # any maker of machines will do
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    database=None,
                    derandomize=False,  # the seed decides
                    print_blob=True,
                    phases=(Phase.generate, Phase.shrink),  # to explain a failure takes minutes
                    report_multiple_bugs=False,  # AssertionError, not a group of them
                    suppress_health_check=list(HealthCheck),
                ),
            )
    finally:
        server.drop_database(url)


@pytest.mark.timeout(600)  # to find the shortest scenario that fails takes minutes
def test_both_engines_say_and_store_the_same(postgres: PostgresServer, tmp_path: Path) -> None:
    drive_machine(postgres, tmp_path, seed=1, examples=5, steps=25)


@pytest.mark.prove
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_both_engines_say_and_store_the_same_for_long(postgres: PostgresServer, tmp_path: Path, seed: int) -> None:
    drive_machine(postgres, tmp_path, seed, examples=30, steps=60)


async def test_a_broken_rule_is_seen(store_url: str) -> None:
    """The machine sees a broken rule."""
    async with living(store_url) as process:
        await process.called()
        assert await process.store.read(broken) == {}
        await process.plant("UPDATE turn SET instance=9")
        await process.plant("UPDATE message SET seq=2")
        assert set(await process.store.read(broken)) == {"a holder without its running turn", "a transcript with a gap"}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_row_that_only_one_engine_changes_is_seen(
    engine: str, empty_file: EmptyFile, reused_database: str, tmp_path: Path
) -> None:
    """The machine sees the difference, though it reads only the tables that changed."""
    empty_database(reused_database)
    with paired(empty_file.copy(tmp_path), reused_database) as pair:
        for name in "ab":
            pair.both(select, "INSERT INTO memory(scope, name, text, at) VALUES ('x', $1, $1, 1)", name)
        one = pair.sqlite if engine == "sqlite" else pair.postgres
        pair.until(one.run(select, "UPDATE memory SET text=CASE name WHEN 'a' THEN 'b' ELSE 'a' END"))
        with pytest.raises(AssertionError, match="memory: SQLite stores"):
            pair.both(select, "SELECT 1")
        pair.until(one.run(select, "UPDATE memory SET text=name"))
        with pytest.raises(AssertionError, match="stores something else when it is run again"):
            pair.twice(select, "UPDATE memory SET at=at+1")
