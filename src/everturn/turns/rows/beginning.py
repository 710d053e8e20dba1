"""Start or resume a turn: choose the session of its messages and its note, and claim the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import cast

from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.inbox.rows.attachments import add_extras, attachments_of, extras_of, settled_of
from everturn.inbox.rows.backlog import pop_takeover, take_over, undone
from everturn.inbox.rules import ALBUM_S, NEW_MESSAGE, BusyMode, burst, quiet_at
from everturn.model import (
    ACTIVE,
    TURN_MOVES,
    Message,
    ResumePending,
    SessionEntry,
    SessionSource,
    SettledFiles,
    Suspended,
    TurnState,
    may_become,
)
from everturn.outbox.rows.replies import Fact, append_events, events_of, fact
from everturn.people.rows.access import REVOKED, revoke_denied
from everturn.people.rules.access import author_of, person_of
from everturn.sessions.rows.boundaries import FIRST_CHARS, open_session, pair_calls, reset_entry
from everturn.sessions.rows.entries import insert_message, lock_entry, open_tail, source_of, write_source
from everturn.sessions.rules.keys import Isolation
from everturn.sessions.rules.notes import Note, choose_note
from everturn.sessions.rules.reset_policy import ResetDecision, Resume, choose
from everturn.store.interface import Op, Row, Rows, sql
from everturn.turns.rows.approval_requests import (
    CLOSE_REQUESTS,
    ApprovalRequest,
    closing,
    request_of,
    waiting_rows,
    without_notice,
)
from everturn.turns.rows.turn_values import (
    NOT_CLOSED,
    BehindApproval,
    Carried,
    Later,
    NotYet,
    QueuedMessage,
    Start,
    StartedTurn,
)
from everturn.turns.rules import turn_texts
from everturn.turns.rules.approvals import closes
from everturn.turns.rules.recovery import is_suspect, resumes_by_itself

ADD_TURN = (
    "INSERT INTO turn (id, key, session_id, state, attempt, instance, note, started_at, attempt_at, first_seq, called)"
    " VALUES ($1, $2, $3, 'running', 1, $4, $5, $6, $6, $7, $8)"
)
RESUME_TURN = (
    "UPDATE turn SET state='running', attempt=attempt+1, instance=$2, attempt_at=$3, verdict=NULL, note=$4,"
    " called=CASE WHEN $5=1 THEN attempt+1 ELSE called END"
    f" WHERE id=$1 AND {may_become(TURN_MOVES, TurnState.RUNNING)} RETURNING attempt, session_id, first_seq"
)
TAKE_KEY = (
    "UPDATE entry SET holder=$2, turn=$3, fence=$4, seq=$5, active_at=$6, event_seq=$7, origin=$8, waiting=waiting-$9"
    f" WHERE key=$1 AND {NOT_CLOSED}/*did*/"
)
CARRIES = "id, body, source, accepted_at, kind, busy, extras, attachments, album"
WAITING = (
    f"SELECT {CARRIES} FROM inbox"
    " WHERE key=$1 AND ended_at IS NULL AND state='queued' AND backlog IS NULL ORDER BY place LIMIT $2"
)
TOGETHER = 100
HAS_NOTICE = (
    "SELECT 1 FROM outbox o JOIN turn t ON t.id=o.id"
    f" WHERE o.key=$1 AND o.ended_at IS NULL AND t.why='{REVOKED}' AND t.ended_by=$2"
)
CLAIM_MESSAGE = "UPDATE inbox SET state='claimed', turn=$2, why=NULL WHERE id=$1 AND state='queued'"


def begin_next(key: str, start: Start) -> Op[StartedTurn | NotYet | BehindApproval | Later | None]:
    """Claim the key if it is free and has work: an interrupted turn that resumes by itself, else its oldest message."""
    facts: list[Fact] = []
    entry = yield from lock_entry(key)
    if entry is None:
        return None
    if entry.holder is not None:
        ours = entry.holder == start.instance and entry.turn is not None
        return (yield from _as_begun(entry, start)) if ours else None  # our own commit, whose outcome was unknown
    if not start.suspects and suspected(entry, start):
        return NotYet(key)
    was, entry = entry.turn, (yield from revoke_denied(entry, start.admission, start.at, start.turn))
    request = (yield from request_of(entry.turn)) if entry.turn is not None else None
    if request is not None or (entry.turn is not None and (yield from _goes_on_by_itself(entry, start))):
        busy = (yield from pop_takeover(key)) if entry.waiting else None
        if busy is None and request is not None and request.id is not None:
            return (yield from _on_request(entry, request, start))
        if busy is None:
            return (yield from _resume(entry, (), start, []))
        ended = yield from take_over(entry, busy, start.at, start.turn)
        facts = [ended] if start.delivery.by_event else []
        entry = cast("SessionEntry", (yield from lock_entry(key)))
    waiting = [_waiting(row, entry) for row in (yield from _messages_in_front(key))]
    if not waiting or (isinstance(entry.state, Suspended) and (yield from _all_suspended(entry))):
        return None
    return (yield from _begin(entry, waiting, start, facts, instead=was is not None))


def _begin(
    entry: SessionEntry, waiting: list[QueuedMessage], start: Start, facts: list[Fact], *, instead: bool
) -> Op[StartedTurn | Later]:
    """Begin a turn with the first messages. `instead` of an earlier turn: a notice may be pending for those who shared it."""
    together = _together(entry.key, waiting, start)
    if isinstance(together, Later):
        return together
    begun = yield from start_turn(entry, together, start, facts)
    told = begun.spoke or (instead and bool((yield sql(HAS_NOTICE, entry.key, start.turn))))
    return replace(begun, spoke=told)


def _messages_in_front(key: str) -> Op[Rows]:
    """The queued messages before the next command: a command in front is applied first, and one behind is not overtaken."""
    rows = yield sql(WAITING, key, TOGETHER)
    return list(takewhile(lambda row: row[4] != "command", rows))


def _waiting(row: Row, entry: SessionEntry) -> QueuedMessage:
    number, text, raw, accepted_at, _, busy = row[:6]
    source = source_of(raw) or entry.origin or SessionSource(platform="")
    extras = extras_of(row[6]).rows if row[6] else ()
    files = attachments_of(row[7])
    return QueuedMessage(
        number, text, source, raw, accepted_at, busy=busy, extras=extras, attachments=files, album=row[8]
    )


def _together(key: str, waiting: list[QueuedMessage], start: Start) -> list[QueuedMessage] | Later:
    """The first messages that begin one turn: what was collected, once it is quiet, or a burst of one author."""
    collected = list(takewhile(lambda each: each.busy == BusyMode.COLLECT, waiting))
    if collected:
        quiet = quiet_at([each.accepted_at for each in collected], start.collect_s)
        waits = start.at < quiet <= start.at + start.collect_s  # a clock that was set back makes nobody wait longer
        return Later(key, quiet) if waits else collected
    # An album is one message, though somebody else may have spoken between its parts.
    album = [each for each in waiting if each.album is not None and each.album == waiting[0].album]
    if album:
        quiet = quiet_at([each.accepted_at for each in album], ALBUM_S)
        return Later(key, quiet) if start.at < quiet <= start.at + ALBUM_S else album
    alone = takewhile(lambda each: each.album is None, waiting)
    times = [((each.source.user_id, each.source.user_id_alt), each.accepted_at) for each in alone]
    return waiting[: burst(times, start.burst_s)]


def _on_request(entry: SessionEntry, request: ApprovalRequest, start: Start) -> Op[StartedTurn | BehindApproval | None]:
    """Handle messages to a turn that awaits approval: they close the request and join the turn, unless their mode queues them."""
    rows = yield from waiting_rows(entry.key)
    if not rows or rows[0][4] == "command":
        return None
    if not closing(rows, request):
        return BehindApproval(entry.key) if without_notice(rows, request) else None
    entry = yield from _close_by_message(entry, start.at)
    closed = fact("approval", start.at, id=str(request.id), turn=str(entry.turn), tool=request.tool, state="closed")
    joining = [_waiting(rows[0], entry)] if closes(rows[0][5]) else []
    return (yield from _resume(entry, joining, start, [closed] if start.delivery.by_event else []))


def _close_by_message(entry: SessionEntry, at: float) -> Op[SessionEntry]:
    """Close the request as not approved and skip the calls behind it: each has its result before the message that closed it."""
    asked = yield sql(CLOSE_REQUESTS, entry.turn, at, "message")
    refused = {row[0]: turn_texts.refused("closed", None) for row in asked}
    added = yield from pair_calls(entry, NEW_MESSAGE, at, refused)
    return replace(entry, seq=entry.seq + added)


def _goes_on_by_itself(entry: SessionEntry, start: Start) -> Op[bool]:
    if not isinstance(entry.state, ResumePending):
        return True  # begun, but the model was never called: simply begin again
    if resumes_by_itself(entry.state.marked_at, start.at, start.fresh_s, start.resume):
        return True
    rows = yield sql("SELECT reason FROM turn WHERE id=$1", entry.turn)
    return bool(rows) and rows[0][0] is None  # a message had woken it, and its attempt never called the model


def suspected(entry: SessionEntry, start: Start) -> bool:
    """Whether the key's next turn is a suspect for crashes; a suspended session is not, as its next turn resets it."""
    return is_suspect(entry.unclean_ends, start.stuck_after) and not isinstance(entry.state, Suspended)


def _all_suspended(entry: SessionEntry) -> Op[bool]:
    """Whether every queued message is from before the suspension: those wait until their sender writes again."""
    rows = yield sql(
        "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message'"
        " AND why IS NULL AND backlog IS NULL LIMIT 1",
        entry.key,
    )
    return not rows


def start_turn(entry: SessionEntry, rows: Sequence[QueuedMessage], start: Start, facts: list[Fact]) -> Op[StartedTurn]:
    """Begin a turn for messages: decide which session they belong to, and store all of it. The entry is locked."""
    first = rows[0]
    decision = choose(entry, first.accepted_at, start.policy, start.fresh_s)
    if isinstance(decision, Resume) and entry.turn is not None:
        return (yield from _resume(entry, rows, start, facts))
    reset_reason: str | None = None
    spoke = False
    if isinstance(decision, ResetDecision):
        reset_reason = decision.reason
        entry, told = yield from reset_entry(entry, decision.reason, start, first)
        facts, spoke = facts + told, True
    elif entry.session_id is None:
        yield from open_session(start.session_id, entry.key, None, first.text, first.accepted_at)
        yield sql("UPDATE entry SET session_id=$2 WHERE key=$1", entry.key, start.session_id)
        entry = replace(entry, session_id=start.session_id, seq=0)
    elif entry.seq == 0:  # a session that /new opened is known by what was said in it first
        yield sql("UPDATE session SET first_text=$2 WHERE session_id=$1", entry.session_id, first.text[:FIRST_CHARS])
    note = yield from _note(entry, start, reset_reason)
    if any(each.extras for each in rows):
        entry = yield from add_extras(entry, rows)
    begun = StartedTurn(
        turn=start.turn,
        key=entry.key,
        session_id=entry.session_id or "",
        attempt=1,
        fence=entry.fence + 1,
        seq=entry.seq,
        first_seq=entry.seq + 1,
        inbox=(),
        texts=(),
        source=first.source,
        note=note,
        unclean_ends=entry.unclean_ends,
        model=entry.model,
        spoke=spoke,
        called=start.counts,
        waiting=_behind(entry, rows),
    )
    yield sql(
        ADD_TURN,
        begun.turn,
        entry.key,
        begun.session_id,
        start.instance,
        note.kind if note else None,
        start.at,
        begun.first_seq,
        int(start.counts),
    )
    return (yield from _add_and_take_key(entry, begun, rows, start, facts))


def _behind(entry: SessionEntry, rows: Sequence[QueuedMessage]) -> int:
    """How many messages and commands stay queued when these are part of the turn."""
    return entry.waiting - len([each for each in rows if each.stored])


def add_texts(
    begun: StartedTurn, rows: Sequence[QueuedMessage], isolation: Isolation
) -> Op[tuple[StartedTurn, list[Message]]]:
    """Add messages to the turn: store each as a row of the transcript and claim it."""
    said = spoken(begun, rows, isolation)
    for message in said:
        yield insert_message(begun, message)
    for each in rows:
        if each.stored:
            yield sql(CLAIM_MESSAGE, each.id, begun.turn)
    now = with_text(begun, rows)
    for carried in now.carried[len(begun.carried) :]:
        yield sql("UPDATE inbox SET seq=$2, fetched=NULL WHERE id=$1", carried.inbox, carried.seq)
    return now, said


def spoken(begun: StartedTurn, rows: Sequence[QueuedMessage], isolation: Isolation) -> list[Message]:
    """The messages as the next rows of the transcript."""
    said: list[Message] = []
    for each in rows:
        if each.text or not each.extras:  # what only brings rows says nothing
            author, seq = author_of(each.source, isolation), begun.seq + len(said) + 1
            said.append(
                Message(role="user", content=each.text, seq=seq, author=author, turn=begun.turn, at=each.accepted_at)
            )
    return said


def with_text(begun: StartedTurn, rows: Sequence[QueuedMessage]) -> StartedTurn:
    """The turn with these messages as its last."""
    seq, source, authors = begun.seq, begun.source if begun.inbox else None, dict.fromkeys(begun.authors)
    inbox, texts, also, carried = [*begun.inbox], [*begun.texts], [*begun.also], [*begun.carried]
    for each in rows:
        seq += bool(each.text) or not each.extras
        inbox.append(each.id)
        texts.append(each.text)
        if source is not None and source.message_id:
            also.append(source.message_id)
        source = each.source
        authors[person_of(source)] = None
        if each.attachments:
            platform, files = source.platform, each.attachments
            carried.append(Carried(inbox=each.id, seq=seq, text=each.text, platform=platform, attachments=files))
    return replace(
        begun, seq=seq, inbox=tuple(inbox), texts=tuple(texts), source=source or begun.source, authors=tuple(authors),
        also=tuple(also), carried=tuple(carried),
    )  # fmt: skip


def _add_and_take_key(
    entry: SessionEntry, begun: StartedTurn, rows: Sequence[QueuedMessage], start: Start, facts: list[Fact]
) -> Op[StartedTurn]:
    """Store the user's messages in the transcript and take the key."""
    begun, _ = yield from add_texts(begun, rows, start.isolation)
    last = rows[-1] if rows else None
    if start.delivery.by_event:
        facts = [*facts, fact("turn", start.at, turn=str(begun.turn), state="running", attempt=begun.attempt)]
    taken = yield sql(
        TAKE_KEY,
        entry.key,
        start.instance,
        begun.turn,
        begun.fence,
        begun.seq,
        last.accepted_at if last else entry.active_at,
        entry.event_seq + len(facts),
        last.raw_source if last else write_source(begun.source).decode(),
        entry.waiting - begun.waiting,
    )
    if not taken:
        raise FenceLost(f"instance {start.instance} was closed: it begins no turn of {entry.key}")
    if not facts:
        return begun
    return replace(begun, events=(yield from append_events(entry.key, entry.event_seq, facts, start.turn)))


def _resume(entry: SessionEntry, joining: Sequence[QueuedMessage], start: Start, facts: list[Fact]) -> Op[StartedTurn]:
    """Start the next attempt of the same turn, from its last committed step; messages that wake it join it."""
    if any(each.extras for each in joining):
        entry = yield from add_extras(entry, joining)
    waited = yield sql("SELECT 1 FROM turn WHERE id=$1 AND state='awaiting_approval'", entry.turn)
    note = None if waited else (yield from _note(entry, start, None))  # a turn that awaited approval was not cut off
    rows = yield sql(
        RESUME_TURN,
        entry.turn,
        start.instance,
        start.at,
        note.kind if note else None,
        int(start.counts),
    )
    attempt, session_id, first_seq = rows[0]
    begun = yield from _begun_of(entry, attempt, session_id, first_seq, note)
    begun = replace(begun, fence=entry.fence + 1, called=start.counts, waiting=_behind(entry, joining))
    return (yield from _add_and_take_key(entry, begun, joining, start, facts))


def _begun_of(entry: SessionEntry, attempt: int, session_id: str, first_seq: int, note: Note | None) -> Op[StartedTurn]:
    turn = entry.turn or 0
    rows = yield sql(
        f"SELECT {CARRIES}, seq, fetched FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 ORDER BY place, id",
        entry.key,
        turn,
    )
    begun = StartedTurn(
        turn=turn,
        key=entry.key,
        session_id=session_id,
        attempt=attempt,
        fence=entry.fence,
        seq=entry.seq,
        first_seq=first_seq,
        inbox=(),
        texts=(),
        source=entry.origin or SessionSource(platform=""),
        note=note,
        unclean_ends=entry.unclean_ends,
        model=entry.model,
        waiting=entry.waiting,
    )
    said = [_waiting(row, entry) for row in rows]
    if not said:
        return begun
    now = replace(with_text(begun, said), seq=entry.seq)
    return _as_settled(now, rows) if now.carried else now


def _as_settled(begun: StartedTurn, rows: Rows) -> StartedTurn:
    """The turn with the files that earlier attempts fetched."""
    known = {row[0]: (row[9] or 0, settled_of(row[10])) for row in rows}
    carried = [replace(each, seq=known[each.inbox][0], settled=known[each.inbox][1]) for each in begun.carried]
    return with_settled(begun, {each.inbox: each.settled for each in carried if each.settled}, carried)


def with_settled(begun: StartedTurn, settled: Mapping[int, SettledFiles], carried: Sequence[Carried]) -> StartedTurn:
    """The turn with texts that name the files of its messages."""
    texts = (
        settled[number].text if number in settled else text
        for number, text in zip(begun.inbox, begun.texts, strict=True)
    )
    return replace(begun, texts=tuple(texts), carried=tuple(carried))


def _as_begun(entry: SessionEntry, start: Start) -> Op[StartedTurn | None]:
    """The turn that an earlier run of this very operation began."""
    rows = yield sql(
        "SELECT attempt, session_id, first_seq, note, called FROM turn WHERE id=$1 AND state='running'", entry.turn
    )
    if not rows:
        return None
    attempt, session_id, first_seq, kind, called = rows[0]
    reset_reason = kind.removeprefix("reset:") if kind and kind.startswith("reset:") else None
    note = (yield from _note(entry, start, reset_reason)) if kind else None
    begun = yield from _begun_of(entry, attempt, session_id, first_seq, note)
    events = yield from events_of(entry.key, start.turn)
    spoke = reset_reason is not None or bool((yield sql(HAS_NOTICE, entry.key, start.turn)))
    return replace(begun, events=events, spoke=spoke, called=called == attempt)


def begun_again(key: str, start: Start) -> Op[StartedTurn | None]:
    """For an operation that runs twice: what its first run began."""
    entry = yield from lock_entry(key)
    if entry is None or entry.holder != start.instance or entry.turn != start.turn:
        return None
    return (yield from _as_begun(entry, start))


def _note(entry: SessionEntry, start: Start, reset_reason: str | None) -> Op[Note | None]:
    """The note for the model. Reads the last rows only of a session that was cut off or may end with a tool result."""
    if reset_reason is None and not entry.tail and entry.state == ACTIVE and not entry.rolled_back:
        return None
    tail = yield from open_tail(entry.session_id or "")
    happened = (yield from undone(entry)) if entry.rolled_back else []
    return choose_note(entry, tail, start.at, start.fresh_s, reset_reason, happened)
