"""Rows of a running turn: its steps, its progress notices, the whole outputs of its tools, and its end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.ids import oldest_id
from everturn.model import Event, Message, ToolCall, Usage
from everturn.outbox.rows.outbox import sent_at_once
from everturn.outbox.rows.replies import Fact, append_events, events_of, fact, queue_notice, queue_reply, report
from everturn.outbox.rows.streaming import queue_answer
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.boundaries import end_open_turn, release
from everturn.sessions.rows.entries import insert_message, lock_entry
from everturn.store.interface import Op, Statement, sql
from everturn.turns.rows.beginning import WAITING
from everturn.turns.rows.spending import Plan, add_plan, count_call_apart, count_failed_call, count_usage, mark_call
from everturn.turns.rows.turn_values import Finished, StartedTurn, fence_lost, fenced

NOTHING = Usage()
# Every boundary that moves the key's fence ends the turn's row or its attempt with the same commit: the row itself is the
# fence for what is written to it alone.
CALLED = "UPDATE turn SET called=attempt WHERE id=$1 AND state='running' AND attempt=$2/*did*/"
PROVEN = CALLED.replace("called", "proven")
ADD_EFFECT = (
    "INSERT INTO effect (turn, call_id, name, effect, state, attempt, begun_at) VALUES ($1, $2, $3, $4, 'begun', $5, $6)"
    " ON CONFLICT (turn, call_id) DO NOTHING"
)
EFFECT_DONE = "UPDATE effect SET state='done', done_at=$3 WHERE turn=$1 AND call_id=$2 AND state='begun'"
RELEASE_KEY = (
    "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, unclean_ends=0, tail=0, rolled_back=NULL, holder=NULL, turn=NULL,"
    " seq=$4, turns=turns+1, event_seq=event_seq+$5 WHERE key=$1 AND fence=$2 AND turn=$3 RETURNING event_seq, waiting"
)
# A cut answer is shown, but it is no success: the mark and the count of unclean ends stay.
RELEASE_AFTER_CUT = RELEASE_KEY.replace("state='active', reason=NULL, marked_at=NULL, unclean_ends=0, ", "")
INBOX_DONE = "UPDATE inbox SET state='done', ended_at=$2 WHERE id=$1 AND state='claimed'"


def calling(begun: StartedTurn, asked: Usage = NOTHING) -> Op[None]:
    """Store that the agent is about to call the model: from now on an end of the process is an interruption."""
    if not (yield mark_call(begun.turn, begun.attempt, asked)):
        raise fence_lost(begun.key, begun.turn)


def calling_with_plan(begun: StartedTurn, plan: Plan) -> Op[None]:
    """Store a model call, after counting what it may use. Raises Spent when that would pass a limit."""
    yield from fenced(begun)
    yield from add_plan(begun, plan)


def prove(begun: StartedTurn) -> Op[None]:
    """Store that a suspect is proven: it survived the crash loop delay or committed a step."""
    if not (yield sql(PROVEN, begun.turn, begun.attempt)):
        raise fence_lost(begun.key, begun.turn)


def step(
    begun: StartedTurn,
    message: Message,
    begin: ToolCall | None,
    acknowledge: str | None,
    usage: Usage = NOTHING,
    *,
    prove_it: bool,
) -> Op[int]:
    """Commit a model response, and with it the start of its first effect; returns how many are queued behind the turn."""
    waiting = yield from fenced(begun)
    added = yield insert_message(begun, message, tell=usage.requests > 0)
    if begin is not None:
        yield sql(ADD_EFFECT, begun.turn, begin.id, begin.name, begin.effect, begun.attempt, message.at)
    if acknowledge is not None:
        yield sql("UPDATE entry SET tail_key=$2, tail_at=$3 WHERE key=$1", begun.key, acknowledge, message.at)
    if prove_it:
        yield from prove(begun)
    if added:  # an operation that runs twice counts once
        yield from count_usage(begun, usage)
    return waiting


def failed_call(
    begun: StartedTurn, number: int, kind: str, why: str, wait_s: float, at: float, usage: Usage = NOTHING
) -> Op[int]:
    """Store that a model call failed, under a number that the caller made; returns how many did since the last committed
    step. Run twice it counts once.
    """
    yield from fenced(begun)
    if (yield from add_failure(begun, number, kind, why, wait_s, at)):
        yield from count_failed_call(begun, usage)
    rows = yield sql("SELECT failures FROM turn WHERE id=$1", begun.turn)
    return int(rows[0][0])


def called_apart(begun: StartedTurn, usage: Usage) -> Op[None]:
    """Count a model call whose answer is no row of the transcript."""
    yield from fenced(begun)
    yield from count_call_apart(begun, usage)


def add_failure(begun: StartedTurn, number: int, kind: str, why: str, wait_s: float, at: float) -> Op[bool]:
    """Store a failed model call, for `explain`; False when an earlier run of the operation stored it."""
    kept_now = yield sql(
        "INSERT INTO failure (turn, number, attempt, kind, why, wait_s, at) VALUES ($1, $2, $3, $4, $5, $6, $7)"
        " ON CONFLICT (turn, number) DO NOTHING RETURNING number",
        begun.turn, number, begun.attempt, kind, why, wait_s, at,
    )  # fmt: skip
    return bool(kept_now)


def begin_effect(begun: StartedTurn, call: ToolCall, at: float) -> Op[None]:
    """Commit that a tool call is about to run, outside the commit of a step: from now on a crash is an interruption."""
    yield from fenced(begun)
    yield sql(CALLED, begun.turn, begun.attempt)
    yield sql(ADD_EFFECT, begun.turn, call.id, call.name, call.effect, begun.attempt, at)


def finish_effect(
    begun: StartedTurn,
    result: Message,
    begin: ToolCall | None,
    whole: str | None = None,
    skipped: Sequence[Message] = (),
) -> Op[int]:
    """Commit a tool's result, the whole of it where it is shortened, and with it the start of the next call, or that
    the rest is skipped; returns how many are queued behind the turn.
    """
    waiting = yield from fenced(begun)
    yield sql(EFFECT_DONE, begun.turn, result.call_id, result.at)
    yield insert_message(begun, result)
    if whole is not None and result.call_id is not None:
        yield keep_output(begun.turn, result.call_id, whole, result.at)
    if begin is not None:
        yield sql(ADD_EFFECT, begun.turn, begin.id, begin.name, begin.effect, begun.attempt, result.at)
    for each in skipped:
        yield insert_message(begun, each)
    return waiting


def skip_calls(begun: StartedTurn, skipped: Sequence[Message]) -> Op[None]:
    """Commit the results of calls that were never begun."""
    yield from fenced(begun)
    for each in skipped:
        yield insert_message(begun, each)


def effects_of(turn: int) -> Op[dict[str, str]]:
    """The state of each effect of a turn, by call id."""
    rows = yield sql("SELECT call_id, state FROM effect WHERE turn=$1", turn)
    return {row[0]: row[1] for row in rows}


def finish(
    begun: StartedTurn,
    answer: Message,
    delivery: Delivery,
    instance: int,
    acknowledge: str | None,
    usage: Usage = NOTHING,
    cut: str | None = None,
    bubble: str | None = None,
    *,
    grew: bool = True,
) -> Op[Finished]:
    """Store the answer, its pending reply, the events and the entry's state in one transaction.

    `cut` is what the user is shown of an answer that is not whole, in place of its text. `bubble` is the final text of the
    streaming message: the same, beneath what was said before tools were used. Not `grew`: nothing was ever shown.
    """
    at, shown = answer.at, answer.content if cut is None else cut
    facts = _answer_facts(begun, answer, shown) if delivery.by_event else []
    rows = yield sql(
        RELEASE_KEY if cut is None else RELEASE_AFTER_CUT, begun.key, begun.fence, begun.turn, answer.seq, len(facts)
    )
    if not rows:
        return (yield from _finished_before(begun, instance))
    yield insert_message(begun, answer)
    why = None if cut is None else "cut"
    yield sql(
        "UPDATE turn SET state='answered', ended_at=$2, why=$3 WHERE id=$1 AND state='running'", begun.turn, at, why
    )
    for number in begun.inbox:
        yield sql(INBOX_DONE, number, at)
    if acknowledge is not None:
        yield sql("UPDATE entry SET tail_key=$2, tail_at=$3 WHERE key=$1", begun.key, acknowledge, at)
    if usage.requests:
        yield from count_usage(begun, usage)
    reply = yield from queue_answer(begun, shown if bubble is None else bubble, at, delivery, instance, grew=grew)
    events = (yield from append_events(begun.key, rows[0][0] - len(facts), facts, begun.fence)) if facts else ()
    return Finished(events=events, reply=reply, more=rows[0][1] > 0)


def _answer_facts(begun: StartedTurn, answer: Message, shown: str) -> list[Fact]:
    turn = str(begun.turn)
    also = {"also": begun.also} if begun.also else {}
    return [
        fact("reply", answer.at, turn=turn, id=turn, text=shown, to=begun.source.message_id, **also),
        fact("turn", answer.at, turn=turn, state="answered", attempt=begun.attempt),
    ]


def _finished_before(begun: StartedTurn, instance: int) -> Op[Finished]:
    """The result of an earlier run (whose commit's outcome was unknown). Raises FenceLost when the key has another owner."""
    rows = yield sql("SELECT state, attempt FROM turn WHERE id=$1", begun.turn)
    if not rows or rows[0] != ("answered", begun.attempt):
        raise fence_lost(begun.key, begun.turn)
    events = yield from events_of(begun.key, begun.fence)
    reply = yield from sent_at_once(begun.turn, instance)
    more = yield sql(WAITING, begun.key, 1)
    return Finished(events=events, reply=reply, more=bool(more))


def fail(begun: StartedTurn, why: str, text: str, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Fail a turn that could not be answered: its messages become dead letters and their sender gets a notice.

    The session's mark and its count of unclean ends stay: only a successful turn clears them.
    """
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.fence != begun.fence or entry.turn != begun.turn:
        return (yield from events_of(begun.key, begun.fence))  # the events of an earlier run of this operation
    yield from end_open_turn(entry, "failed", "dead", why, at, text)
    yield from release(entry)
    facts = yield from queue_notice(begun.turn, begun.key, begun.source, text, "failed", at, delivery, begun.turn)
    if delivery.by_event:
        facts = [*facts, fact("turn", at, turn=str(begun.turn), state="failed", attempt=begun.attempt)]
    return (yield from report(begun.key, entry.event_seq, facts, begun.fence))


# Store the progress notice of a turn: one, replaced in place where the platform can edit, never after the turn's end.


PROGRESS = "progress"
# A sent notice is edited; one that was not sent yet gets the new text.
REPLACE = (
    "UPDATE outbox SET text=$2, state=CASE state WHEN 'sent' THEN 'pending' ELSE state END,"
    " attempts=CASE state WHEN 'sent' THEN 0 ELSE attempts END, due_at=CASE state WHEN 'sent' THEN $3 ELSE due_at END,"
    " ended_at=NULL WHERE id=$1 AND state IN ('pending','sending','sent') RETURNING id"
)
SAY_ELSE = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='pending' RETURNING id"
KEEP_SENT = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='sent' RETURNING id"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A progress notice; `id` is used if the turn has no notice that can be replaced."""

    id: int
    text: str
    reason: str
    at: float


def notify_progress(begun: StartedTurn, progress: Progress, delivery: Delivery) -> Op[tuple[Event, ...] | None]:
    """Store a progress notice; None when the turn no longer has the key: a turn that has ended gets none."""
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.turn != begun.turn or entry.fence != begun.fence:
        return None
    rows = yield sql("SELECT progress FROM turn WHERE id=$1", begun.turn)
    number = rows[0][0] if rows else None
    if number is None or not (yield sql(_statement(delivery), *_values(delivery, number, progress))):
        number = progress.id
        yield sql("UPDATE turn SET progress=$2 WHERE id=$1", begun.turn, number)
        plain = Delivery(by_event=delivery.by_event)
        yield from queue_reply(
            number, begun.key, begun.turn, PROGRESS, begun.source, progress.text, progress.at, plain, 0
        )
    if not delivery.by_event:
        return ()
    said = fact("notice", progress.at, id=str(number), turn=str(begun.turn), text=progress.text, reason=progress.reason)
    before = yield from events_of(begun.key, progress.id)
    return before or (yield from report(begun.key, entry.event_seq, [said], progress.id))


def _statement(delivery: Delivery) -> str:
    if delivery.by_event:
        return KEEP_SENT
    return REPLACE if delivery.edits else SAY_ELSE


def _values(delivery: Delivery, number: int, progress: Progress) -> tuple[object, ...]:
    return (number, progress.text, progress.at) if delivery.edits and not delivery.by_event else (number, progress.text)


def message_waits(key: str) -> Op[bool]:
    """Whether a message is queued behind the turn."""
    return bool(
        (
            yield sql(
                "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message' LIMIT 1",
                key,
            )
        )
    )


# Store long outputs of tools, whole, beside the shortened result in the transcript.


OUTPUTS_KEPT_S = 30 * 86_400.0
BATCH = 50  # they are long
KEEP_OUTPUT = (
    "INSERT INTO output (turn, call_id, text, at) VALUES ($1, $2, $3, $4) ON CONFLICT (turn, call_id) DO UPDATE SET"
    " text=excluded.text"
)


class OutputPage(msgspec.Struct, frozen=True):
    """A part of an output, and how long the whole is."""

    text: str
    length: int


def keep_output(turn: int, call_id: str, text: str, at: float) -> Statement:
    """The statement that stores an output, for the operation that commits its result."""
    return sql(KEEP_OUTPUT, turn, call_id, text, at)


def read_page(turn: int, call_id: str, key: str, session_id: str, start: int, count: int) -> Op[OutputPage | None]:
    """Read a page of an output of this conversation; no other conversation's output is found."""
    rows = yield sql(
        "SELECT substr(o.text, $5, $6), length(o.text) FROM output o JOIN turn t ON t.id=o.turn"
        " WHERE o.turn=$1 AND o.call_id=$2 AND (t.key=$3 OR t.session_id=$4)",
        turn,
        call_id,
        key,
        session_id,
        start + 1,
        count,
    )
    return OutputPage(*rows[0]) if rows else None


def forget_outputs(now: float) -> Op[int]:
    """Delete one bounded batch of outputs that were kept long enough."""
    rows = yield sql(
        "DELETE FROM output WHERE turn IN (SELECT turn FROM output WHERE turn<$1 ORDER BY turn LIMIT $2) RETURNING 1",
        oldest_id(now - OUTPUTS_KEPT_S),
        BATCH,
    )
    return len(rows)
