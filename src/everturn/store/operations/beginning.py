"""How a turn begins, or begins again: which session its message belongs to, what note it carries, who holds the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import cast

from msgspec.structs import replace

from everturn.decide import approval_words
from everturn.decide.approvals import closes, person_of
from everturn.decide.busy import ALBUM_S, NEW_WORDS, BusyMode, burst, quiet_at
from everturn.decide.keys import Isolation
from everturn.decide.names import author_of
from everturn.decide.notes import Note, choose_note
from everturn.decide.recovery import is_suspect, resumes_by_itself
from everturn.decide.session import Reset, Resume, choose
from everturn.model import ACTIVE, Message, ResumePending, SessionEntry, SessionSource, Settled, Suspended
from everturn.store.interface import Op, Row, Rows, sql
from everturn.store.operations.admission import REVOKED, turn_out_denied
from everturn.store.operations.attachments import attachments_of, settled_of
from everturn.store.operations.boundaries import FIRST_WORDS, open_session, pair_calls, reset_entry
from everturn.store.operations.bringing import bring, brought_of
from everturn.store.operations.entries import lock_entry, source_of, write_source
from everturn.store.operations.questions import (
    CLOSE_QUESTIONS,
    Question,
    closing,
    question_of,
    untold,
    waiting_rows,
)
from everturn.store.operations.taking_over import take_over, undone, waiting_over
from everturn.store.operations.telling import Fact, append_events, events_of, fact
from everturn.store.operations.transcripts import open_tail, written
from everturn.store.operations.turn_values import Begun, Carried, Later, NotYet, Start, Waiting, Waits

ADD_TURN = (
    "INSERT INTO turn (id, key, session_id, state, attempt, instance, note, started_at, attempt_at, first_seq, called)"
    " VALUES ($1, $2, $3, 'running', 1, $4, $5, $6, $6, $7, $8)"
)
TAKE_KEY = (
    "UPDATE entry SET holder=$2, turn=$3, fence=$4, seq=$5, active_at=$6, event_seq=$7, origin=$8, waiting=waiting-$9"
    " WHERE key=$1"
)
CARRIES = "id, body, source, accepted_at, kind, busy, brought, attachments, album"
WAITING = (
    f"SELECT {CARRIES} FROM inbox"
    " WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND held IS NULL ORDER BY place LIMIT $2"
)
TOGETHER = 100
TOLD = (
    "SELECT 1 FROM outbox o JOIN turn t ON t.id=o.id"
    f" WHERE o.key=$1 AND o.ended_at IS NULL AND t.why='{REVOKED}' AND t.ended_by=$2"
)
CLAIM_MESSAGE = "UPDATE inbox SET state='claimed', turn=$2, why=NULL WHERE id=$1 AND state='waiting'"


def begin_next(key: str, start: Start) -> Op[Begun | NotYet | Waits | Later | None]:
    """Take the key if it is free and has work: an interrupted turn that resumes by itself, else its oldest message."""
    facts: list[Fact] = []
    entry = yield from lock_entry(key)
    if entry is None:
        return None
    if entry.holder is not None:
        ours = entry.holder == start.instance and entry.turn is not None
        return (yield from _as_begun(entry, start)) if ours else None  # our own commit, of which we had not heard
    if not start.suspects and suspected(entry, start):
        return NotYet(key)
    was, entry = entry.turn, (yield from turn_out_denied(entry, start.admission, start.at, start.turn))
    question = (yield from question_of(entry.turn)) if entry.turn is not None else None
    if question is not None or (entry.turn is not None and (yield from _goes_on_by_itself(entry, start))):
        busy = (yield from waiting_over(key)) if entry.waiting else None
        if busy is None and question is not None and question.id is not None:
            return (yield from _while_asking(entry, question, start))
        if busy is None:
            return (yield from _resume(entry, (), start, []))
        ended = yield from take_over(entry, busy, start.at, start.turn)
        facts = [ended] if start.delivery.by_event else []
        entry = cast("SessionEntry", (yield from lock_entry(key)))
    waiting = [_waiting(row, entry) for row in (yield from _messages_in_front(key))]
    if not waiting or (isinstance(entry.state, Suspended) and (yield from _held(entry))):
        return None
    return (yield from _begin(entry, waiting, start, facts, instead=was is not None))


def _begin(
    entry: SessionEntry, waiting: list[Waiting], start: Start, facts: list[Fact], *, instead: bool
) -> Op[Begun | Later]:
    """Begin with those in front. `instead` of a turn that was there before: who shared it may be owed a notice."""
    together = _together(entry.key, waiting, start)
    if isinstance(together, Later):
        return together
    begun = yield from start_turn(entry, together, start, facts)
    told = begun.spoke or (instead and bool((yield sql(TOLD, entry.key, start.turn))))
    return replace(begun, spoke=told)


def _messages_in_front(key: str) -> Op[Rows]:
    """A command that waits in front is applied first, and wakes the key; one that waits behind is not overtaken."""
    rows = yield sql(WAITING, key, TOGETHER)
    return list(takewhile(lambda row: row[4] != "command", rows))


def _waiting(row: Row, entry: SessionEntry) -> Waiting:
    number, text, raw, accepted_at, _, busy = row[:6]
    source = source_of(raw) or entry.origin or SessionSource(platform="")
    brought = brought_of(row[6]).rows if row[6] else ()
    files = attachments_of(row[7])
    return Waiting(number, text, source, raw, accepted_at, busy=busy, brought=brought, attachments=files, album=row[8])


def _together(key: str, waiting: list[Waiting], start: Start) -> list[Waiting] | Later:
    """Those in front that begin one turn: what was collected, once it is quiet, or a burst of one author."""
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


def _while_asking(entry: SessionEntry, question: Question, start: Start) -> Op[Begun | Waits | None]:
    """The turn waits for an answer. Other words close the question and join the turn, unless their mode lets them wait."""
    rows = yield from waiting_rows(entry.key)
    if not rows or rows[0][4] == "command":
        return None
    if not closing(rows, question):
        return Waits(entry.key) if untold(rows, question) else None
    entry = yield from _close_by_words(entry, start.at)
    closed = fact("approval", start.at, id=str(question.id), turn=str(entry.turn), tool=question.tool, state="closed")
    joining = [_waiting(rows[0], entry)] if closes(rows[0][5]) else []
    return (yield from _resume(entry, joining, start, [closed] if start.delivery.by_event else []))


def _close_by_words(entry: SessionEntry, at: float) -> Op[SessionEntry]:
    """The call is not approved, those behind it are skipped: each has its result before the words that closed it."""
    asked = yield sql(CLOSE_QUESTIONS, entry.turn, at, "words")
    refused = {row[0]: approval_words.refused("closed", None) for row in asked}
    added = yield from pair_calls(entry, NEW_WORDS, at, refused)
    return replace(entry, seq=entry.seq + added)


def _goes_on_by_itself(entry: SessionEntry, start: Start) -> Op[bool]:
    if not isinstance(entry.state, ResumePending):
        return True  # begun, but the model was never called: simply begin again
    if resumes_by_itself(entry.state.marked_at, start.at, start.fresh_s, start.resume):
        return True
    rows = yield sql("SELECT reason FROM turn WHERE id=$1", entry.turn)
    return bool(rows) and rows[0][0] is None  # a message had woken it, and its attempt never called the model


def suspected(entry: SessionEntry, start: Start) -> bool:
    """Whether the key's next turn may be the one that kills the process; what is suspended is left by a fresh one."""
    return is_suspect(entry.unclean_ends, start.stuck_after) and not isinstance(entry.state, Suspended)


def _held(entry: SessionEntry) -> Op[bool]:
    """Messages queued behind a suspended turn wait until their sender writes again."""
    rows = yield sql(
        "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'"
        " AND why IS NULL AND held IS NULL LIMIT 1",
        entry.key,
    )
    return not rows


def start_turn(entry: SessionEntry, rows: Sequence[Waiting], start: Start, facts: list[Fact]) -> Op[Begun]:
    """Begin a turn for messages: decide which session they belong to, and store all of it. The entry is locked."""
    first = rows[0]
    decision = choose(entry, first.accepted_at, start.policy, start.fresh_s)
    if isinstance(decision, Resume) and entry.turn is not None:
        return (yield from _resume(entry, rows, start, facts))
    reset_reason: str | None = None
    spoke = False
    if isinstance(decision, Reset):
        reset_reason = decision.reason
        entry, told = yield from reset_entry(entry, decision.reason, start, first)
        facts, spoke = facts + told, True
    elif entry.session_id is None:
        yield from open_session(start.session_id, entry.key, None, first.text, first.accepted_at)
        yield sql("UPDATE entry SET session_id=$2 WHERE key=$1", entry.key, start.session_id)
        entry = replace(entry, session_id=start.session_id, seq=0)
    elif entry.seq == 0:  # a session that /new opened is known by what was said in it first
        yield sql("UPDATE session SET first_words=$2 WHERE session_id=$1", entry.session_id, first.text[:FIRST_WORDS])
    note = yield from _note(entry, start, reset_reason)
    entry = yield from bring(entry, rows)
    begun = Begun(
        turn=start.turn,
        key=entry.key,
        session_id=entry.session_id or "",
        attempt=1,
        fence=entry.fence + 1,
        seq=entry.seq,
        first_seq=entry.seq + 1,
        inbox=(),
        words=(),
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
    return (yield from _take(entry, begun, rows, start, facts))


def _behind(entry: SessionEntry, rows: Sequence[Waiting]) -> int:
    """How many messages and commands still wait when these are part of the turn."""
    return entry.waiting - len([each for each in rows if each.stored])


def _take(entry: SessionEntry, begun: Begun, rows: Sequence[Waiting], start: Start, facts: list[Fact]) -> Op[Begun]:
    """Store the user's words and make the key ours."""
    begun, _ = yield from add_words(begun, rows, start.isolation)
    return (yield from _hold(entry, begun, rows, start, facts))


def add_words(begun: Begun, rows: Sequence[Waiting], isolation: Isolation) -> Op[tuple[Begun, list[Message]]]:
    """Make messages part of the turn: each is a row of the transcript, and claimed."""
    said = spoken(begun, rows, isolation)
    for message in said:
        yield written(begun, message)
    for each in rows:
        if each.stored:
            yield sql(CLAIM_MESSAGE, each.id, begun.turn)
    now = with_words(begun, rows)
    for carried in now.carried[len(begun.carried) :]:
        yield sql("UPDATE inbox SET seq=$2, fetched=NULL WHERE id=$1", carried.inbox, carried.seq)
    return now, said


def spoken(begun: Begun, rows: Sequence[Waiting], isolation: Isolation) -> list[Message]:
    """What was said, as the transcript's next rows."""
    said: list[Message] = []
    for each in rows:
        if each.speaks:
            author, seq = author_of(each.source, isolation), begun.seq + len(said) + 1
            said.append(
                Message(role="user", content=each.text, seq=seq, author=author, turn=begun.turn, at=each.accepted_at)
            )
    return said


def with_words(begun: Begun, rows: Sequence[Waiting]) -> Begun:
    """The turn with these messages as its last."""
    seq, source, authors = begun.seq, begun.source if begun.inbox else None, dict.fromkeys(begun.authors)
    inbox, words, also, carried = [*begun.inbox], [*begun.words], [*begun.also], [*begun.carried]
    for each in rows:
        seq += each.speaks
        inbox.append(each.id)
        words.append(each.text)
        if source is not None and source.message_id:
            also.append(source.message_id)
        source = each.source
        authors[person_of(source)] = None
        if each.attachments:
            platform, files = source.platform, each.attachments
            carried.append(Carried(inbox=each.id, seq=seq, text=each.text, platform=platform, attachments=files))
    return replace(
        begun, seq=seq, inbox=tuple(inbox), words=tuple(words), source=source or begun.source, authors=tuple(authors),
        also=tuple(also), carried=tuple(carried),
    )  # fmt: skip


def _hold(entry: SessionEntry, begun: Begun, rows: Sequence[Waiting], start: Start, facts: list[Fact]) -> Op[Begun]:
    last = rows[-1] if rows else None
    if start.delivery.by_event:
        facts = [*facts, fact("turn", start.at, turn=str(begun.turn), state="running", attempt=begun.attempt)]
    yield sql(
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
    if not facts:
        return begun
    return replace(begun, events=(yield from append_events(entry.key, entry.event_seq, facts, start.turn)))


def _resume(entry: SessionEntry, joining: Sequence[Waiting], start: Start, facts: list[Fact]) -> Op[Begun]:
    """The same turn, its next attempt, from the last committed step; messages that wake it join it."""
    entry = yield from bring(entry, joining)
    waited = yield sql("SELECT 1 FROM turn WHERE id=$1 AND state='waiting'", entry.turn)
    note = None if waited else (yield from _note(entry, start, None))  # who waited was not cut off
    rows = yield sql(
        "UPDATE turn SET state='running', attempt=attempt+1, instance=$2, attempt_at=$3, verdict=NULL, note=$4,"
        " called=CASE WHEN $5=1 THEN attempt+1 ELSE called END"
        " WHERE id=$1 AND state IN ('interrupted','waiting') RETURNING attempt, session_id, first_seq",
        entry.turn,
        start.instance,
        start.at,
        note.kind if note else None,
        int(start.counts),
    )
    attempt, session_id, first_seq = rows[0]
    begun = yield from _begun_of(entry, attempt, session_id, first_seq, note)
    begun = replace(begun, fence=entry.fence + 1, called=start.counts, waiting=_behind(entry, joining))
    if not joining:
        return (yield from _hold(entry, begun, (), start, facts))
    return (yield from _take(entry, begun, joining, start, facts))


def _begun_of(entry: SessionEntry, attempt: int, session_id: str, first_seq: int, note: Note | None) -> Op[Begun]:
    turn = entry.turn or 0
    rows = yield sql(
        f"SELECT {CARRIES}, seq, fetched FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 ORDER BY place, id",
        entry.key,
        turn,
    )
    begun = Begun(
        turn=turn,
        key=entry.key,
        session_id=session_id,
        attempt=attempt,
        fence=entry.fence,
        seq=entry.seq,
        first_seq=first_seq,
        inbox=(),
        words=(),
        source=entry.origin or SessionSource(platform=""),
        note=note,
        unclean_ends=entry.unclean_ends,
        model=entry.model,
        waiting=entry.waiting,
    )
    said = [_waiting(row, entry) for row in rows]
    if not said:
        return begun
    now = replace(with_words(begun, said), seq=entry.seq)
    return _as_settled(now, rows) if now.carried else now


def _as_settled(begun: Begun, rows: Rows) -> Begun:
    """The turn with what earlier attempts did about its files."""
    known = {row[0]: (row[9] or 0, settled_of(row[10])) for row in rows}
    carried = [replace(each, seq=known[each.inbox][0], settled=known[each.inbox][1]) for each in begun.carried]
    return with_settled(begun, {each.inbox: each.settled for each in carried if each.settled}, carried)


def with_settled(begun: Begun, settled: Mapping[int, Settled], carried: Sequence[Carried]) -> Begun:
    """The turn whose words name the files that came with them."""
    words = (
        settled[number].text if number in settled else text
        for number, text in zip(begun.inbox, begun.words, strict=True)
    )
    return replace(begun, words=tuple(words), carried=tuple(carried))


def _as_begun(entry: SessionEntry, start: Start) -> Op[Begun | None]:
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
    spoke = reset_reason is not None or bool((yield sql(TOLD, entry.key, start.turn)))
    return replace(begun, events=events, spoke=spoke, called=called == attempt)


def begun_again(key: str, start: Start) -> Op[Begun | None]:
    """For an operation that runs twice: what its first run began."""
    entry = yield from lock_entry(key)
    if entry is None or entry.holder != start.instance or entry.turn != start.turn:
        return None
    return (yield from _as_begun(entry, start))


def _note(entry: SessionEntry, start: Start, reset_reason: str | None) -> Op[Note | None]:
    """Only a session that was cut off, or may end with a tool result, costs a look at its last rows."""
    if reset_reason is None and not entry.tail and entry.state == ACTIVE and not entry.rolled_back:
        return None
    tail = yield from open_tail(entry.session_id or "")
    happened = (yield from undone(entry)) if entry.rolled_back else []
    return choose_note(entry, tail, start.at, start.fresh_s, reset_reason, happened)
