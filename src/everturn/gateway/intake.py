"""Taking messages in: commit, then acknowledge. A platform is told "received" only after the row is stored."""

from __future__ import annotations

import asyncio
import random
import secrets
from functools import partial

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.decide import words
from everturn.decide.admission import Standing, Verdict, verdict
from everturn.decide.attachments import stands_for
from everturn.decide.backlog import Arriving, absence, arriving, room_in_queue
from everturn.decide.busy import forced_by
from everturn.decide.commands import BY_NAME, Declared, parse_command
from everturn.decide.keys import is_keepable
from everturn.decide.pairing import make_code
from everturn.decide.reconnecting import asked_s, pause_s
from everturn.decide.rights import may
from everturn.errors import (
    Conflict,
    EverturnError,
    Full,
    PlatformError,
    StoreError,
    StoreUnavailable,
    TooLong,
    Unkeepable,
)
from everturn.gateway.backlog import Backlogs
from everturn.gateway.commands import Commands
from everturn.gateway.dead_letters import DeadLetters
from everturn.gateway.fitting import storable_message
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.strangers import Strangers
from everturn.gateway.turns import Turns
from everturn.model import Heard, Inbound, ReadTo, SessionSource
from everturn.platform.interface import Pulled
from everturn.store.operations.admission import standing
from everturn.store.operations.entries import write_source
from everturn.store.operations.inbox import (
    Accepted,
    Arrival,
    Outcome,
    accept,
    knows_album,
    move_cursor,
    read_cursor,
)
from everturn.store.operations.moved_chats import first_number, move_chat
from everturn.store.operations.revising import Revision, revise
from everturn.store.operations.turn_values import Start

log = structlog.get_logger()
PATIENCE_S = 2.0
MOST_TRIES = 3  # so often storing a message may fail, of which the database says that it is at fault
RETRY_AFTER_S = 5.0


class Intake:
    """The door. `accept` is what every adapter calls, by pulling or by request."""

    def __init__(self, parts: Parts, turns: Turns, commands: Commands, outbox: Outbox, backlogs: Backlogs) -> None:
        self._parts = parts
        self._turns = turns
        self._commands = commands
        self._outbox = outbox
        self._backlogs = backlogs
        self._dead_letters = DeadLetters(parts, outbox, self._arrival)
        self._waiting: set[asyncio.Future[Accepted]] = set()
        self.strangers = Strangers(parts.clock)

    async def accept(self, inbound: Inbound) -> Accepted:
        """Store a message once; returns after the commit. Raises Conflict, Full, TooLong or StoreUnavailable."""
        points.reached("inbox.before")
        inbound, settings = storable_message(inbound), self._parts.settings
        key = settings.key_of(inbound.source, inbound.agent)
        if not is_keepable(inbound, key):
            raise Unkeepable(words.IDS_TOO_LONG)
        if inbound.only_with_album and (unaddressed := await self._unaddressed(inbound)):
            return Accepted(outcome=Outcome.UNADDRESSED, key=unaddressed)
        if len(inbound.text) > settings.message_chars:
            self._parts.observing.too_long(inbound.source.platform)
            raise TooLong(words.too_long(settings.message_chars))
        if inbound.what is Heard.MOVED:
            return await self._move(inbound)
        arrival = await self._arrival(inbound, key)
        if inbound.what is not Heard.SAID:
            return await self._revise(arrival, inbound)
        since = self._parts.contacts.hears_since(inbound.source.platform)
        limit = room_in_queue(settings.queue_per_session, inbound.said_at, since)
        accepted = await self._store(arrival, limit)
        points.reached("inbox.committed")
        if accepted.outcome is Outcome.CONFLICT:
            raise Conflict(f"the message id {inbound.id!r} was used before, for other words")
        if accepted.outcome is Outcome.FULL:
            raise Full(words.queued_limit(limit), RETRY_AFTER_S)
        return accepted

    async def _unaddressed(self, inbound: Inbound) -> str | None:
        """The key, unless a message of the same album was said to us: then all of them were."""
        source = inbound.source
        key = self._parts.settings.key_of(source, inbound.agent, await self._first_chat(source))
        if await self._parts.store.read(knows_album, key, inbound.album or ""):
            return None
        if inbound.cursor is not None:
            await self._parts.store.run(
                move_cursor, source.platform, source.account, inbound.cursor, self._parts.clock.now()
            )
        return key

    async def _revise(self, arrival: Arrival, inbound: Inbound) -> Accepted:
        """A message was changed or deleted where it was written: honoured while it waits."""
        revised = await asyncio.shield(self._parts.store.run(revise, arrival, inbound.what, inbound.of or ""))
        points.reached("inbox.committed")
        if revised.what is Revision.DENIED:
            self.strangers.turned_away(inbound.source.platform)
            return Accepted(outcome=Outcome.DENIED, key=revised.key)
        if revised.what is not Revision.APPLIED:
            log.info("change of a message not taken", key=revised.key, what=inbound.what.value, why=revised.what.value)
        return Accepted(outcome=Outcome.ACCEPTED, key=revised.key)

    async def _move(self, inbound: Inbound) -> Accepted:
        """A chat has another number: what is said there from now on belongs to the conversation it had."""
        source = inbound.source
        place = (source.platform, source.account, source.chat_id or "", inbound.of or "")
        await asyncio.shield(self._parts.store.run(move_chat, *place, self._parts.clock.now(), inbound.cursor))
        points.reached("chat.moved")
        log.info("chat moved", platform=source.platform, was=inbound.of, now=source.chat_id)
        return Accepted(outcome=Outcome.ACCEPTED, key=self._parts.settings.key_of(source, first_chat=inbound.of))

    async def _first_chat(self, source: SessionSource) -> str | None:
        """The number that the chat had first, if it moved."""
        if source.chat_type == "dm" or self._parts.delivery(source.platform).by_event or not source.chat_id:
            return None
        return await self._parts.store.read(first_number, source.platform, source.account, source.chat_id)

    async def pull(self, platform: Pulled) -> None:
        """Read a platform for ever, from where its committed cursor stands; asking for the next acknowledges the last.

        This is the only loop that retries a read. Whatever an adapter raises is logged and shown in the status, and the
        adapter is asked again after a pause; the others are read on.
        """
        while True:
            wait_s = pause_s(0, random.random())  # noqa: S311  not a secret
            try:
                after = await self._parts.store.read(read_cursor, platform.name, platform.account)
                async for heard in platform.inbound(after):
                    await (
                        self._read_to(platform, heard) if isinstance(heard, ReadTo) else self.take(heard, patient=True)
                    )
                    self._parts.contacts.heard(platform.name)
            except Exception as error:  # noqa: BLE001  an adapter that breaks its word must not end the others
                wait_s = self._reading_failed(platform, error)
            await self._parts.clock.sleep(wait_s)

    def _reading_failed(self, platform: Pulled, error: Exception) -> float:
        """Say why a platform cannot be read; returns how long to wait before it is asked again."""
        ours = isinstance(error, EverturnError)
        trouble = str(error) if ours else f"the adapter failed: {type(error).__name__}"
        failures = self._parts.contacts.failed(platform.name, trouble, own_fault=not isinstance(error, PlatformError))
        wait_s = pause_s(failures, random.random(), asked_s(error))  # noqa: S311  not a secret
        log.warning(
            "platform not readable", platform=platform.name, error=trouble, again_in_s=round(wait_s, 1),
            exc_info=None if ours else error,
        )  # fmt: skip
        return wait_s

    async def _read_to(self, platform: Pulled, place: ReadTo) -> None:
        """Nothing was said to us: only the place moves."""
        now = self._parts.clock.now()
        await self._parts.store.run(move_cursor, platform.name, platform.account, place.cursor, now)
        points.reached("cursor.moved")

    async def watch_store(self) -> None:
        """Callers are not kept waiting while nothing can be stored: they are told, and their platform tries again."""
        while True:
            await self._parts.clock.sleep(PATIENCE_S)
            trouble = self._parts.store.trouble()
            for waiting in list(self._waiting) if trouble else ():
                if not waiting.done():
                    waiting.set_exception(StoreUnavailable(trouble))

    async def take(self, inbound: Inbound, *, patient: bool = False) -> None:
        """From a platform that cannot be refused: what cannot be taken is a dead letter, and its sender is told. Raises
        StoreUnavailable while nothing can be stored; who is `patient` waits, however long that takes.
        """
        tries = 0
        while True:
            try:
                try:
                    await self.accept(inbound)
                except (Full, TooLong, Conflict) as error:
                    await self._dead_letters.refuse(inbound, error)
            except StoreError:
                if not patient:
                    raise
                await self._until_stored()
                continue
            except Exception as error:  # noqa: BLE001  brought again for ever, it would stop its platform for everybody
                tries += 1
                if tries < MOST_TRIES:
                    await self._parts.clock.sleep(pause_s(tries, random.random()))  # noqa: S311  not a secret
                    continue
                await self._dead_letters.keep(inbound, error)
            return

    async def _until_stored(self) -> None:
        """Wait until the database takes something; a store that was closed says nothing, and who closed it ends this task."""
        await self._parts.clock.sleep(PATIENCE_S)
        while self._parts.store.trouble():
            await self._parts.clock.sleep(PATIENCE_S)

    async def _arrival(self, inbound: Inbound, key: str) -> Arrival:
        """What is stored of a message whose key is this, unless its chat had another number first."""
        first, settings = await self._first_chat(inbound.source), self._parts.settings
        source = replace(inbound.source, chat_id_alt=first) if first else inbound.source  # lists may name either
        admission = settings.admission_of(source.platform)
        unknown = admission is not None and verdict(admission, source, Standing.UNKNOWN) is Verdict.PAIR
        plain = inbound.brought is not None
        said = inbound.text if inbound.text.strip() else stands_for(inbound.attachments) or inbound.text
        forced, text = (None if plain else forced_by(said)) or (None, said)
        if forced is not None and not await _may_use(self._parts, source, BY_NAME[forced]):
            forced, text = None, said  # as a command it is answered with who may
        command = not plain and forced is None and text.startswith("/") and parse_command(text)
        kind = "command" if command else "message"
        backlog, now = settings.backlog_of(source.platform), self._parts.clock.now()
        since = self._parts.contacts.hears_since(source.platform)
        return Arrival(
            id=self._parts.ids.next(),
            ext_id=inbound.id,
            source=source,
            raw_source=write_source(source).decode(),
            key=settings.key_of(source, inbound.agent, first) if first else key,
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
            arriving=arriving(backlog, inbound.said_at, since, now, command=kind == "command"),
            backlog=backlog.policy,
            absence=absence(since),
            attachments=inbound.attachments,
            album=inbound.album,
            edition=inbound.edition,
        )

    def _store(self, arrival: Arrival, limit: int) -> asyncio.Future[Accepted]:
        """The commit goes on, and its turn is run, even if the caller goes away."""
        start = self._turns.offer(arrival.key, arrival.source) if _may_begin(arrival) else None
        if start is None and (streamed := self._turns.streams.of(arrival.key)) is not None:
            arrival = replace(arrival, streamed=streamed)  # should it end the turn that runs
        outer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting.add(outer)
        if arrival.album is not None:
            self._turns.bursts.storing_part(arrival.key)
        inner = self._parts.store.run(accept, arrival, limit, start)
        inner.add_done_callback(partial(self._stored, arrival, start, outer))
        return outer

    def _stored(
        self, arrival: Arrival, start: Start | None, outer: asyncio.Future[Accepted], inner: asyncio.Future[Accepted]
    ) -> None:
        self._waiting.discard(outer)
        error = StoreUnavailable("the store is closed") if inner.cancelled() else inner.exception()
        accepted = None if error else inner.result()
        try:
            if arrival.album is not None:
                self._turns.bursts.stored_part(arrival.key)
            self._parts.observing.arrived(arrival, accepted)
            if accepted is not None and accepted.begun is not None:
                self._turns.launch(accepted.begun)
                if accepted.begun.spoke:
                    self._outbox.wake(arrival.key)
            elif start is not None:
                self._turns.give_back(arrival.key)
            if accepted is not None:
                self._follow(arrival, accepted)
        finally:  # whatever follows the commit, the caller waits for the commit alone
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
        self._parts.chats.note(arrival.source, arrival.at)
        if arrival.kind == "command":
            self._commands.apply(arrival.id, arrival.key)
        elif arrival.arriving is Arriving.HOLD:
            self._backlogs.heard(arrival.key)
        elif accepted.begun is None:
            self._let_wait(arrival, accepted)

    def _let_wait(self, arrival: Arrival, accepted: Accepted) -> None:
        """Behind what runs, unless it ended that; an album is looked at when it is whole."""
        if accepted.stopped is not None:
            self._turns.stop_turn(arrival.key, accepted.stopped)
            self._parts.hub.ended(arrival.key)
        if arrival.album is None:
            self._turns.wake(arrival.key)


def _may_begin(arrival: Arrival) -> bool:
    """An album waits until it is whole."""
    return arrival.kind == "message" and arrival.arriving is Arriving.NOW and arrival.album is None


async def _may_use(parts: Parts, source: SessionSource, command: Declared) -> bool:
    """Whether the author may use a command, by the settings or by the rows: who was let in as an owner is one."""
    if may(parts.settings.rights, source, command):
        return True
    return await parts.store.read(standing, source) is Standing.OWNER
