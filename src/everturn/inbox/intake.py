"""Accepts messages: commit, then acknowledge. A platform gets the acknowledgement only after the row is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from msgspec.structs import replace

from everturn import points
from everturn.commands.applying import Commands
from everturn.commands.rules.registry import BY_NAME, Declared, parse_command
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
from everturn.ids import Instance
from everturn.inbox.backlog import Backlogs, DeadLetters
from everturn.inbox.rows.inbox import Accepted, AcceptOutcome, Arrival, accept, knows_album, move_cursor, read_cursor
from everturn.inbox.rows.steering import Revision, revise
from everturn.inbox.rules import Arriving, arriving, forced_by, outage_id, placeholders, room_in_queue, storable_message
from everturn.lifecycle.settings import Settings
from everturn.model import Heard, Inbound, ReadTo, SessionSource
from everturn.outbox.hub import Hub
from everturn.outbox.sender import ReplySender
from everturn.pauses import asked_s, pause_s
from everturn.people.directory import RecentChats
from everturn.people.pairing import Strangers
from everturn.people.rows.access import standing
from everturn.people.rows.directory import first_number, move_chat
from everturn.people.rules.access import AccessVerdict, Standing, make_code, verdict
from everturn.people.rules.rights import may
from everturn.platform.connected import Contacts, Platforms
from everturn.platform.interface import Pulled
from everturn.sessions.rows.entries import write_source
from everturn.sessions.rules import notices
from everturn.sessions.rules.keys import is_keepable
from everturn.store.interface import Store
from everturn.telemetry.observing import Observing
from everturn.turns.rows.turn_values import Start
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
PATIENCE_S = 2.0
MOST_TRIES = 3  # how often storing a message may fail where the database blames the message
RETRY_AFTER_S = 5.0


class Intake:
    """Stores the messages of all platforms: `accept` is called for every message, pulled or by webhook."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        platforms: Platforms,
        *,
        contacts: Contacts,
        hub: Hub,
        observing: Observing,
        chats: RecentChats | None,
        turns: Scheduler,
        commands: Commands,
        outbox: ReplySender,
        backlogs: Backlogs,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._chance = instance.machine.chance
        self._settings = settings
        self._platforms = platforms
        self._contacts = contacts
        self._hub = hub
        self._observing = observing
        self._chats = chats
        self._turns = turns
        self._commands = commands
        self._outbox = outbox
        self._backlogs = backlogs
        self._dead_letters = DeadLetters(store, instance, settings, hub, outbox, self._arrival)
        self._waiting: dict[asyncio.Future[Accepted], None] = {}  # by when they came
        self.strangers = Strangers(instance.clock)

    async def accept(self, inbound: Inbound) -> Accepted:
        """Store a message once; returns after the commit. Raises Conflict, Full, TooLong or StoreUnavailable."""
        points.reached("inbox.before")
        inbound, settings = storable_message(inbound), self._settings
        key = settings.key_of(inbound.source, inbound.agent)
        if not is_keepable(inbound, key):
            raise Unkeepable(notices.IDS_TOO_LONG)
        if inbound.only_with_album and (unaddressed := await self._unaddressed(inbound)):
            return Accepted(outcome=AcceptOutcome.UNADDRESSED, key=unaddressed)
        if len(inbound.text) > settings.message_chars:
            self._observing.too_long(inbound.source.platform)
            raise TooLong(notices.too_long(settings.message_chars))
        if inbound.what is Heard.MOVED:
            return await self._move(inbound)
        arrival = await self._arrival(inbound, key)
        if inbound.what is not Heard.SAID:
            return await self._revise(arrival, inbound)
        since = self._contacts.hears_since(inbound.source.platform)
        limit = room_in_queue(settings.queue_per_session, inbound.said_at, since)
        accepted = await self._commit(arrival, limit)
        points.reached("inbox.committed")
        if accepted.outcome is AcceptOutcome.CONFLICT:
            raise Conflict(f"the message id {inbound.id!r} was used before for a different message")
        if accepted.outcome is AcceptOutcome.FULL:
            raise Full(notices.queued_limit(limit), RETRY_AFTER_S)
        return accepted

    async def _unaddressed(self, inbound: Inbound) -> str | None:
        """The key, unless a message of the same album was addressed to us: then all of them were."""
        source = inbound.source
        key = self._settings.key_of(source, inbound.agent, await self._first_chat(source))
        if await self._store.read(knows_album, key, inbound.album or ""):
            return None
        if inbound.cursor is not None:
            await self._store.run(move_cursor, source.platform, source.account, inbound.cursor, self._clock.now())
        return key

    async def _revise(self, arrival: Arrival, inbound: Inbound) -> Accepted:
        """Apply an edit or deletion of a message, which counts while the message is queued."""
        revised = await asyncio.shield(self._store.run(revise, arrival, inbound.what, inbound.of or ""))
        points.reached("inbox.committed")
        if revised.what is Revision.DENIED:
            self.strangers.count_denied(inbound.source.platform)
            return Accepted(outcome=AcceptOutcome.DENIED, key=revised.key)
        if revised.what is not Revision.APPLIED:
            log.info(
                "edit of a message not applied",
                session_key=revised.key,
                what=inbound.what.value,
                why=revised.what.value,
            )
        return Accepted(outcome=AcceptOutcome.ACCEPTED, key=revised.key)

    async def _move(self, inbound: Inbound) -> Accepted:
        """Record that a chat has a new id: messages there belong to its earlier conversation."""
        source = inbound.source
        place = (source.platform, source.account, source.chat_id or "", inbound.of or "")
        await asyncio.shield(self._store.run(move_chat, *place, self._clock.now(), inbound.cursor))
        points.reached("chat.moved")
        log.info("chat moved", platform=source.platform, was=inbound.of, now=source.chat_id)
        return Accepted(outcome=AcceptOutcome.ACCEPTED, key=self._settings.key_of(source, first_chat=inbound.of))

    async def _first_chat(self, source: SessionSource) -> str | None:
        """The id that the chat had first, if it moved."""
        if self._platforms.delivery(source.platform).by_event or not source.chat_id:
            return None
        return await self._store.read(first_number, source.platform, source.account, source.chat_id)

    async def pull(self, platform: Pulled, acquire: Callable[[Pulled], Awaitable[None]]) -> None:
        """Read a platform for ever, from its committed cursor, as soon as this process has acquired its credential. Asking for
        the next message acknowledges the last.

        This is the only loop that retries a read. Whatever an adapter raises while it reads is logged and shown in the status, and the
        adapter is asked again after a pause; the others are read on.
        """
        await acquire(platform)
        while True:
            wait_s = pause_s(0, self._chance.random())
            try:
                after = await self._store.read(read_cursor, platform.name, platform.account)
                async for heard in platform.inbound(after):
                    await (
                        self._read_to(platform, heard) if isinstance(heard, ReadTo) else self.take(heard, patient=True)
                    )
                    self._contacts.heard(platform.name)
            except Exception as error:  # noqa: BLE001  an adapter that raises anything else must not end the others
                wait_s = self._reading_failed(platform, error)
            await self._clock.sleep(wait_s)

    def _reading_failed(self, platform: Pulled, error: Exception) -> float:
        """Log and record why a platform cannot be read; returns how many seconds to wait before the next read."""
        ours = isinstance(error, EverturnError)
        trouble = str(error) if ours else f"the adapter failed: {type(error).__name__}"
        failures = self._contacts.failed(platform.name, trouble, own_fault=not isinstance(error, PlatformError))
        wait_s = pause_s(failures, self._chance.random(), asked_s(error))
        log.warning(
            "platform not readable", platform=platform.name, error=trouble, again_in_s=round(wait_s, 1),
            exc_info=None if ours else error,
        )  # fmt: skip
        return wait_s

    async def _read_to(self, platform: Pulled, place: ReadTo) -> None:
        """Move the cursor past updates that are not addressed to us."""
        now = self._clock.now()
        await self._store.run(move_cursor, platform.name, platform.account, place.cursor, now)
        points.reached("cursor.moved")

    async def watch_store(self) -> None:
        """Fail waiting callers with StoreUnavailable while nothing can be stored, so that their platform tries again."""
        while True:
            await self._clock.sleep(PATIENCE_S)
            trouble = self._store.trouble()
            for waiting in list(self._waiting) if trouble else ():
                if not waiting.done():
                    waiting.set_exception(StoreUnavailable(trouble))

    async def take(self, inbound: Inbound, *, patient: bool = False) -> None:
        """Accept a message of a platform that cannot be refused; a rejected one is a dead letter, and its sender gets a notice.
        Raises StoreUnavailable while nothing can be stored; a `patient` caller waits, however long that takes.
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
            except Exception as error:  # noqa: BLE001  read again for ever, it would block its platform for everybody
                tries += 1
                if tries < MOST_TRIES:
                    await self._clock.sleep(pause_s(tries, self._chance.random()))
                    continue
                await self._dead_letters.keep(inbound, error)
            return

    async def _until_stored(self) -> None:
        """Wait until the database can store again; a closed store reports no trouble, and its closer ends this task."""
        await self._clock.sleep(PATIENCE_S)
        while self._store.trouble():
            await self._clock.sleep(PATIENCE_S)

    async def _arrival(self, inbound: Inbound, key: str) -> Arrival:
        """The row to store for a message with this key, unless its chat had another id first."""
        settings = self._settings
        first = await self._first_chat(inbound.source) if inbound.source.chat_type != "dm" else None
        source = replace(inbound.source, chat_id_alt=first) if first else inbound.source  # lists may name either
        admission = settings.admission_of(source.platform)
        unknown = admission is not None and verdict(admission, source, Standing.UNKNOWN) is AccessVerdict.PAIR
        plain = inbound.extras is not None
        said = inbound.text if inbound.text.strip() else placeholders(inbound.attachments) or inbound.text
        forced, text = (None if plain else forced_by(said)) or (None, said)
        if forced is not None and not await self._may_use(source, BY_NAME[forced]):
            forced, text = None, said  # as a command it is answered with a refusal
        command = not plain and forced is None and text.startswith("/") and parse_command(text)
        kind = "command" if command else "message"
        backlog, now = settings.backlog_of(source.platform), self._clock.now()
        since = self._contacts.hears_since(source.platform)
        meaning = arriving(backlog, inbound.said_at, since, now, command=kind == "command")
        return Arrival(
            id=self._instance.ids.next(),
            ext_id=inbound.id,
            source=source,
            raw_source=write_source(source).decode(),
            key=settings.key_of(source, inbound.agent, first) if first else key,
            kind=kind,
            text=text,
            at=now,
            by_event=self._platforms.delivery(source.platform).by_event,
            cursor=inbound.cursor,
            busy=settings.busy_for(source.platform),
            forced=forced,
            extras=inbound.extras,
            fingerprint=inbound.fingerprint,
            admission=admission,
            code=make_code(self._chance.choice) if unknown else "",
            salt=self._chance.randbytes(16).hex() if unknown else "",
            arriving=meaning,
            backlog=backlog.policy,
            outage_id=outage_id(since) if meaning is not Arriving.NOW else 0,
            attachments=inbound.attachments,
            album=inbound.album,
            edition=inbound.edition,
        )

    async def _may_use(self, source: SessionSource, command: Declared) -> bool:
        """Whether the author may use a command, by the settings or as an approved owner."""
        return may(self._settings.rights, source, command) or await self._store.read(standing, source) is Standing.OWNER

    def _commit(self, arrival: Arrival, limit: int) -> asyncio.Future[Accepted]:
        """Store a message; the commit goes on, and its turn is run, even if the caller is cancelled."""
        alone = arrival.kind == "message" and arrival.album is None  # an album waits until it is whole
        may_begin = alone and arrival.arriving is Arriving.NOW
        start = self._turns.take_slot(arrival.key, arrival.source) if may_begin else None
        if start is None and (streamed := self._turns.streams.of(arrival.key)) is not None:
            arrival = replace(arrival, streamed=streamed)  # should it end the turn that runs
        outer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting[outer] = None
        if arrival.album is not None:
            self._turns.bursts.storing_part(arrival.key)
        inner = self._store.run(accept, arrival, limit, start)
        inner.add_done_callback(partial(self._stored, arrival, start, outer))
        return outer

    def _stored(
        self, arrival: Arrival, start: Start | None, outer: asyncio.Future[Accepted], inner: asyncio.Future[Accepted]
    ) -> None:
        self._waiting.pop(outer, None)
        error = StoreUnavailable("the store is closed") if inner.cancelled() else inner.exception()
        accepted = None if error else inner.result()
        try:
            if arrival.album is not None:
                self._turns.bursts.stored_part(arrival.key)
            self._observing.arrived(arrival, accepted)
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
        self._hub.publish(arrival.key, accepted.events)
        self._contacts.received(arrival.source.platform, arrival.source.account)
        if accepted.spoke:
            self._outbox.wake(arrival.key)
        if accepted.outcome is AcceptOutcome.DENIED:
            self.strangers.count_denied(arrival.source.platform)
        if accepted.outcome is not AcceptOutcome.ACCEPTED:
            return
        if self._chats is not None:
            self._chats.note(arrival.source, arrival.at)
        if arrival.kind == "command":
            self._commands.apply(arrival.id, arrival.key)
        elif arrival.arriving is Arriving.HOLD:
            self._backlogs.wait_until_quiet(arrival.key)
        elif accepted.begun is None:
            self._let_wait(arrival, accepted)

    def _let_wait(self, arrival: Arrival, accepted: Accepted) -> None:
        """Stop the turn that the message ended, and wake the scheduler; an album waits until it is whole."""
        if accepted.stopped is not None:
            self._turns.stop_turn(arrival.key, accepted.stopped)
            self._hub.ended(arrival.key)
        if arrival.album is None:
            self._turns.wake(arrival.key)
