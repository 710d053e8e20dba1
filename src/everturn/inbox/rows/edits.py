"""Edits and deletions of messages on the platform: applied while the message is queued, without effect later.

Each change is an inbox row of its own, by which a repetition is recognised and from which its outcome can be read.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.inbox.rows.attachments import write_attachments
from everturn.inbox.rows.inbox import ADD, Arrival, move_cursor
from everturn.inbox.rules.quoting import edited
from everturn.model import Heard, SessionSource
from everturn.people.rows.admission import admitted
from everturn.people.rules.admission import AccessVerdict, ids_of
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.store.interface import Op, Row, sql

FIND = "SELECT id, key, kind, state, source, edition, body FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3"
KINDS = {Heard.EDITED: "edit", Heard.DELETED: "deletion"}


class Revision(StrEnum):
    """The outcome of an edit or deletion."""

    APPLIED = "applied"
    TOO_LATE = "too_late"  # its turn has begun or ended
    NOT_THEIRS = "not_theirs"  # somebody else's message stays as it is
    ELSEWHERE = "elsewhere"  # an edit in one chat changes nothing in another
    OTHER_KIND = "other_kind"  # a message that becomes a command, or a command that becomes a message
    OUTDATED = "outdated"  # a later edit came before it
    UNKNOWN = "unknown"  # we never had it
    DENIED = "denied"  # who changed it may not speak


class Revised(msgspec.Struct, frozen=True):
    """The outcome of an edit, and the key of the message that was meant."""

    what: Revision
    key: str


def revise(arrival: Arrival, what: Heard, of: str) -> Op[Revised]:
    """Edit or withdraw the message with the id `of`; the arrival has the new text and the edit's own id."""
    source = arrival.source
    if arrival.cursor is not None:
        yield from move_cursor(source.platform, source.account, arrival.cursor, arrival.at)
    found = yield sql(FIND, of, source.platform, source.account)
    key = found[0][1] if found else arrival.key
    # What strangers wrote was never stored: most of their changes are of messages that are not here.
    if (what is Heard.EDITED or not found) and (
        yield from admitted(arrival.admission, source)
    ) is not AccessVerdict.ALLOWED:
        return Revised(Revision.DENIED, key)
    if not found:
        return Revised(Revision.UNKNOWN, key)
    yield from lock_entry(key)  # beginning a turn locks it, too
    before = yield sql("SELECT why FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3", arrival.ext_id, source.platform, source.account)  # fmt: skip
    if before:  # it came before, or this operation ran before
        return Revised(Revision(before[0][0]) if before[0][0] in set(Revision) else Revision.TOO_LATE, key)
    (row,) = yield sql(FIND, of, source.platform, source.account)
    if not _same_chat(source_of(row[4]), source):
        done = Revision.ELSEWHERE
    else:
        done = yield from (_edit(arrival, row) if what is Heard.EDITED else _delete(arrival, row))
    yield sql(
        ADD, arrival.id, arrival.ext_id, source.platform, source.account, key, KINDS[what], arrival.raw_source, "", "done",
        0, None, arrival.at, None, None, None, None, None, None,
    )  # fmt: skip
    yield sql("UPDATE inbox SET ended_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, done.value)
    return Revised(done, key)


def _edit(arrival: Arrival, row: Row) -> Op[Revision]:
    number, _, kind, state, raw, edition, body = row
    if not _same_author(source_of(raw), arrival.source):
        return Revision.NOT_THEIRS
    if state != "queued":
        return Revision.TOO_LATE
    if kind != arrival.kind:
        return Revision.OTHER_KIND
    if edition is not None and arrival.edition is not None and arrival.edition < edition:
        return Revision.OUTDATED
    yield sql(
        "UPDATE inbox SET body=$2, edited_at=$3, attachments=coalesce($4, attachments), edition=$5 WHERE id=$1 AND state='queued'",
        number,
        edited(body, arrival.text),
        arrival.at,
        write_attachments(arrival.attachments),
        arrival.edition,
    )
    return Revision.APPLIED


def _delete(arrival: Arrival, row: Row) -> Op[Revision]:
    """Withdraw a message: everybody whom the platform lets delete it may."""
    number, key, _, state, *_ = row
    if state != "queued":
        return Revision.TOO_LATE
    yield sql(
        "UPDATE inbox SET state='withdrawn', ended_at=$2, why='deleted' WHERE id=$1 AND state='queued'",
        number,
        arrival.at,
    )
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return Revision.APPLIED


def _same_chat(said: SessionSource | None, by: SessionSource) -> bool:
    """Whether an edit comes from the chat of its message: on some platforms a server may choose an id of another chat."""
    if said is None or said.chat_id == by.chat_id:
        return True
    return bool({said.chat_id, said.chat_id_alt} & {by.chat_id, by.chat_id_alt} - {None})


def _same_author(author: SessionSource | None, by: SessionSource) -> bool:
    theirs, own = set(ids_of(author)) if author else set(), set(ids_of(by))
    return bool(theirs & own) or (not theirs and not own)
