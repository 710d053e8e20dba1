"""Taking messages in: commit, then acknowledge. A platform is told "received" only after the row is stored."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial

import structlog

from everturn import points
from everturn.decide import words
from everturn.decide.admission import Standing, Verdict, verdict
from everturn.decide.backlog import Arriving, arriving
from everturn.decide.busy import forced_by
from everturn.decide.commands import BY_NAME, parse_command
from everturn.decide.pairing import make_code
from everturn.decide.rights import may
from everturn.errors import Conflict, EverturnError, Full, StoreUnavailable, TooLong
from everturn.gateway.backlog import Backlogs
from everturn.gateway.commands import Commands
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.strangers import Strangers
from everturn.gateway.turns import Turns
from everturn.model import Heard, Inbound
from everturn.platform.interface import Pulled
from everturn.store.operations.entries import write_source
from everturn.store.operations.inbox import Accepted, Arrival, Outcome, accept, read_cursor, turn_away
from everturn.store.operations.revising import Revision, revise
from everturn.store.operations.turn_values import Start

log = structlog.get_logger()
PATIENCE_S = 2.0
RETRY_AFTER_S = 5.0
RECONNECT_S = 5.0


class Intake:
    """The door. `accept` is what every adapter calls, by pulling or by request."""

    def __init__(self, parts: Parts, turns: Turns, commands: Commands, outbox: Outbox, backlogs: Backlogs) -> None:
        self._parts = parts
        self._turns = turns
        self._commands = commands
        self._outbox = outbox
        self._backlogs = backlogs
        self._waiting: set[asyncio.Future[Accepted]] = set()
        self.strangers = Strangers(parts.clock)

    async def accept(self, inbound: Inbound) -> Accepted:
        """Store a message once; returns after the commit. Raises Conflict, Full, TooLong or StoreUnavailable."""
        points.reached("inbox.before")
        settings = self._parts.settings
        if len(inbound.text) > settings.message_chars:
            self._parts.observing.too_long(inbound.source.platform)
            raise TooLong(words.too_long(settings.message_chars))
        arrival = self._arrival(inbound)
        if inbound.what is not Heard.SAID:
            return await self._revise(arrival, inbound)
        accepted = await self._store(arrival)
        points.reached("inbox.committed")
        if accepted.outcome is Outcome.CONFLICT:
            raise Conflict(f"the message id {inbound.id!r} was used before, for other words")
        if accepted.outcome is Outcome.FULL:
            raise Full(words.queued_limit(settings.queue_per_session), RETRY_AFTER_S)
        return accepted

    async def _revise(self, arrival: Arrival, inbound: Inbound) -> Accepted:
        """A message was changed or deleted where it was written: honoured while it waits."""
        revised = await asyncio.shield(self._parts.store.run(revise, arrival, inbound.what, inbound.of or ""))
        points.reached("inbox.committed")
        if revised.what is not Revision.APPLIED:
            log.info("change of a message not taken", key=revised.key, what=inbound.what.value, why=revised.what.value)
        denied = revised.what is Revision.DENIED
        return Accepted(outcome=Outcome.DENIED if denied else Outcome.ACCEPTED, key=revised.key)

    async def pull(self, platform: Pulled) -> None:
        """Read a platform for ever, from where its committed cursor stands; asking for the next acknowledges the last."""
        while True:
            try:
                after = await self._parts.store.read(read_cursor, platform.name, platform.account)
                async for inbound in platform.inbound(after):
                    await self.take(inbound)
                    self._parts.contacts.reads(platform.name)
            except EverturnError as error:
                log.warning("platform not readable", error=str(error))
                self._parts.contacts.reads(platform.name, str(error))
            await self._parts.clock.sleep(RECONNECT_S)

    async def watch_store(self) -> None:
        """Callers are not kept waiting while nothing can be stored: they are told, and their platform tries again."""
        while True:
            await self._parts.clock.sleep(PATIENCE_S)
            trouble = self._parts.store.trouble()
            for waiting in list(self._waiting) if trouble else ():
                if not waiting.done():
                    waiting.set_exception(StoreUnavailable(trouble))

    async def take(self, inbound: Inbound) -> None:
        """From a platform that cannot be refused: what cannot be taken is a dead letter, and its sender is told."""
        while True:
            try:
                await self.accept(inbound)
            except (Full, TooLong) as error:
                await self._turn_away(inbound, error)
            except Conflict as error:
                log.warning("message ignored", error=str(error))
            except StoreUnavailable:
                continue  # not acknowledged: it is asked for again until it is stored
            return

    async def _turn_away(self, inbound: Inbound, error: EverturnError) -> None:
        arrival = self._arrival(inbound)
        why = "too_long" if isinstance(error, TooLong) else "queue_full"
        events = await self._parts.store.run(turn_away, arrival, why, str(error))
        self._parts.hub.publish(arrival.key, events)
        self._outbox.wake(arrival.key)

    def _arrival(self, inbound: Inbound) -> Arrival:
        source, settings = inbound.source, self._parts.settings
        admission = settings.admission_of(source.platform)
        unknown = admission is not None and verdict(admission, source, Standing.UNKNOWN) is Verdict.PAIR
        plain = inbound.brought is not None
        forced, text = (None if plain else forced_by(inbound.text)) or (None, inbound.text)
        if forced is not None and not may(settings.rights, source, BY_NAME[forced]):
            forced, text = None, inbound.text  # as a command it is answered with who may
        command = not plain and forced is None and text.startswith("/") and parse_command(text)
        kind = "command" if command else "message"
        backlog, now = settings.backlog_of(source.platform), self._parts.clock.now()
        return Arrival(
            id=self._parts.ids.next(),
            ext_id=inbound.id,
            source=source,
            raw_source=write_source(source).decode(),
            key=settings.key_of(source, inbound.agent),
            kind=kind,
            text=text,
            at=now,
            by_event=self._parts.delivery(source.platform).by_event,
            cursor=inbound.cursor,
            busy=settings.busy_for(source.platform),
            forced=forced,
            brought=inbound.brought,
            fingerprint=inbound.fingerprint,
            admission=admission,
            code=make_code(secrets.choice) if unknown else "",
            salt=secrets.token_hex(16) if unknown else "",
            arriving=arriving(backlog, inbound.said_at, self._parts.started_at, now, command=kind == "command"),
            backlog=backlog.policy,
            instance=self._parts.instance,
        )

    def _store(self, arrival: Arrival) -> asyncio.Future[Accepted]:
        """The commit goes on, and its turn is run, even if the caller goes away."""
        start = self._turns.offer(arrival.key, arrival.source) if _may_begin(arrival) else None
        outer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting.add(outer)
        inner = self._parts.store.run(accept, arrival, self._parts.settings.queue_per_session, start)
        inner.add_done_callback(partial(self._stored, arrival, start, outer))
        return outer

    def _stored(
        self, arrival: Arrival, start: Start | None, outer: asyncio.Future[Accepted], inner: asyncio.Future[Accepted]
    ) -> None:
        self._waiting.discard(outer)
        error = inner.exception()
        accepted = None if error else inner.result()
        self._parts.observing.arrived(arrival, accepted)
        if accepted is not None and accepted.begun is not None:
            self._turns.launch(accepted.begun)
            if accepted.begun.spoke:
                self._outbox.wake(arrival.key)
        elif start is not None:
            self._turns.give_back(arrival.key)
        if accepted is not None:
            self._follow(arrival, accepted)
        if not outer.done():
            outer.set_exception(error) if error else outer.set_result(inner.result())

    def _follow(self, arrival: Arrival, accepted: Accepted) -> None:
        self._parts.hub.publish(arrival.key, accepted.events)
        self._parts.contacts.received(arrival.source.platform, arrival.source.account)
        if accepted.spoke:
            self._outbox.wake(arrival.key)
        if accepted.outcome is Outcome.DENIED:
            self.strangers.turned_away(arrival.source.platform)
        if accepted.outcome is not Outcome.ACCEPTED:
            return
        if arrival.kind == "command":
            self._commands.apply(arrival.id, arrival.source.platform)
        elif arrival.arriving is Arriving.HOLD:
            self._backlogs.heard(arrival.key)
        elif accepted.begun is None:
            if accepted.stopped is not None:
                self._turns.stop_turn(arrival.key, accepted.stopped)
                self._parts.hub.ended(arrival.key)
            self._turns.wake(arrival.key)


def _may_begin(arrival: Arrival) -> bool:
    return arrival.kind == "message" and arrival.arriving is Arriving.NOW
