"""Suspend the session of a damaged row, so that all other sessions go on. The log names the row."""

from __future__ import annotations

from collections.abc import Awaitable

import structlog

from everturn.errors import StoreError
from everturn.lifecycle.parts import Parts
from everturn.sessions.rules.keys import origin_of
from everturn.turns.rows.recovery import Interruption, Recovered, quarantine

log = structlog.get_logger()
REMEDY = "the rows are kept as they are: inspect them with `everturn explain`, or reset the session with /new"
ORPHANED = "the turn was ended and its messages are dead letters: see `everturn dead`"


async def suspend_if_damaged(
    parts: Parts, turn: int, key: str, cause: Interruption, marking: Awaitable[Recovered | None]
) -> Recovered | None:
    """Await the operation that marks a cut-off turn. If it fails on what is stored, suspend the turn's session instead."""
    try:
        return await marking
    except StoreError:
        raise
    except Exception as error:  # one damaged row must not keep the gateway from the others
        log.exception("turn damaged", turn_id=turn, session_key=key, error=repr(error), remedy=REMEDY)
    return await suspend_damaged(parts, turn, key, cause)


async def suspend_damaged(parts: Parts, turn: int, key: str, cause: Interruption) -> Recovered | None:
    """Suspend the session of a turn that cannot be read. None when somebody else did, or when even that fails."""
    delivery = parts.delivery(origin_of(key)[0])
    try:
        return await parts.store.run(quarantine, key, turn, cause.instance, parts.ids.next(), cause.now, delivery)
    except StoreError:
        raise
    except Exception as error:
        log.exception("session not suspended", turn_id=turn, session_key=key, error=repr(error))
        return None
