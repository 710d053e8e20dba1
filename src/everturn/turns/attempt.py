"""One attempt of a turn, and what belongs to it while it runs: progress notices, the typing indicator, messages that join it,
and the session resources that its agent may use.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from everturn import points
from everturn.agent.interface import NO_USAGE
from everturn.clock import Clock
from everturn.errors import PlatformError
from everturn.ids import Instance
from everturn.inbox.rows.steering import JoinedTurn, join_turn
from everturn.lifecycle.settings import Settings
from everturn.model import Event, HistoryPosition, Message, SettledFiles, ToolCall, TranscriptPart, TurnOpening, Usage
from everturn.outbox.hub import Hub
from everturn.outbox.rules.text import storable
from everturn.outbox.streaming import StreamingMessage
from everturn.platform.connected import Contacts, Platforms
from everturn.platform.interface import CanReact, CanType
from everturn.sessions.rows.compaction import (
    Compaction,
    compact,
    compaction_failed,
    freeze,
    may_compact,
)
from everturn.sessions.rows.entries import calls_of_turn, history_after
from everturn.store.interface import Store
from everturn.telemetry.observing import Observing
from everturn.turns.rows.beginning import with_settled
from everturn.turns.rows.opening import read_opening
from everturn.turns.rows.turn_values import Start, StartedTurn, Streamed
from everturn.turns.rows.turns import PROGRESS, Progress, called_apart, notify_progress
from everturn.turns.rules.recovery import is_suspect
from everturn.turns.rules.turns import Notice, NoticesSent


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnvironment:
    """What turns and their recovery use in this process: where they are stored, how they are shown, and who hears of them."""

    store: Store
    clock: Clock
    instance: Instance
    settings: Settings
    platforms: Platforms
    contacts: Contacts
    hub: Hub
    observing: Observing
    deliver: Callable[[str], None]  # a reply is pending for this key

    def start(self, platform: str, chat_type: str, *, counts: bool, suspects: bool = True) -> Start:
        """Everything the beginning of a turn may need, with fresh ids."""
        settings, ids, delivery = self.settings, self.instance.ids, self.platforms.delivery(platform)
        return Start(
            instance=self.instance.number,
            notice=ids.next(),  # smaller than the turn's id: a notice about its start is sent before its reply
            turn=ids.next(),
            session_id=ids.session(),
            at=self.clock.now(),
            policy=settings.policies.of(platform, chat_type),
            fresh_s=settings.fresh_s,
            resume=settings.resume,
            delivery=delivery,
            stuck_after=settings.stuck_after,
            suspects=suspects,
            counts=counts,
            isolation=settings.isolation,
            # Programs that post know each message by its id: theirs are answered one by one.
            burst_s=0.0 if delivery.by_event else settings.burst_s,
            collect_s=settings.collect_s,
            admission=settings.admission_of(platform),
        )


class Attempt:
    """The started turn, the number of its next transcript row, its streamed text and its model and tool activity."""

    def __init__(self, env: TurnEnvironment, begun: StartedTurn) -> None:
        self.env = env
        self.begun = begun
        self.suspect = is_suspect(begun.unclean_ends, env.settings.stuck_after)
        self.called = begun.called  # an end is an interruption: a model was called, or the agent is not ours
        self.marked = begun.called  # and that is stored
        self.seq = begun.seq
        self.waiting = begun.waiting  # messages and commands behind it, as the last commit saw
        self.woken = False  # a message arrived since the attempt last read the queue
        self.unread: list[Message] = []  # what joined the turn and was not handed to its agent yet
        self.began = self.active_at = env.clock.monotonic()
        self.asked_at: float | None = None  # when a model was asked that has not answered yet
        self.outcome: str | None = None  # how the attempt ended, once that is committed
        self.tool: str | None = None  # the one that runs now
        self.bubble: StreamingMessage | None = None  # its streaming message
        # The turn's calls by their ids; None: earlier attempts may have made some, and nobody looked yet.
        self.used: dict[str, ToolCall] | None = {} if begun.attempt == 1 else None
        self.has_files = False  # what came with earlier attempts' messages was looked for here
        self.look = env.settings.display.look(begun.source)
        self.notices = NoticesSent()  # the progress notices sent so far
        self.stream_held = False  # what was streamed may be committed as the turn's end: nothing more is shown
        self._streamed, self._streamed_after = "", 0
        self._tail_key = begun.note.tail_key if begun.note else None

    def next_seq(self) -> int:
        """Take the number of the next transcript row; the fence makes this attempt its only writer."""
        self.seq += 1
        return self.seq

    def close_bubble(self) -> None:
        """Stop the previews of the streaming message: its final text comes with the end of the turn."""
        if self.bubble is not None:
            self.bubble.close()

    def record_stream(self, text: str) -> bool:
        """Record the answer's text so far; False when it must not be shown now. The next call brings all of it again."""
        if not self.stream_held:
            self._streamed, self._streamed_after = text, self.seq
        return not self.stream_held

    def streamed(self) -> Streamed | None:
        """The streamed text of the answer in progress; the store decides whether a row has it by now."""
        if not self._streamed:
            return None
        return Streamed(
            turn=self.begun.turn,
            session_id=self.begun.session_id,
            after=self._streamed_after,
            text=storable(self._streamed),
            shown=storable(self.bubble.text) if self.bubble is not None else "",
        )

    def mark_active(self) -> None:
        """Record activity, for the inactivity limits."""
        self.active_at = self.env.clock.monotonic()

    def set_tool(self, tool: str | None) -> None:
        """Record the tool that runs now; None when it has ended."""
        self.tool = tool
        self.mark_active()

    def pop_asked_at(self) -> float | None:
        """Return once when the answered model call was made."""
        asked_at, self.asked_at = self.asked_at, None
        return asked_at

    def has_waiting(self) -> bool:
        """Whether messages may be queued behind the turn, so that reading the database is worth it."""
        return self.woken or self.waiting > 0

    def add_joined(self, joined: JoinedTurn) -> None:
        """Add messages that joined the turn."""
        self.begun = joined.begun
        self.seq = max(self.seq, joined.begun.seq)
        self.waiting = joined.begun.waiting
        self.unread += joined.messages

    def add_settled(self, settled: Mapping[int, SettledFiles]) -> None:
        """Add the fetched files to the texts of the messages that they came with."""
        carried = [replace(each, settled=settled.get(each.inbox, each.settled)) for each in self.begun.carried]
        texts = {each.seq: each.settled.text for each in carried if each.settled and each.inbox in settled}
        self.begun = with_settled(self.begun, settled, carried)
        self.unread = [replace(each, content=texts.get(each.seq, each.content)) for each in self.unread]

    def pop_joined(self) -> list[Message]:
        """Return the messages that joined and were not given to the agent yet, once."""
        messages, self.unread = self.unread, []
        return messages

    def pop_tail_key(self) -> str | None:
        """Return the transcript tail that the model has now acknowledged, once."""
        tail, self._tail_key = self._tail_key, None
        return tail


# Send the progress notice of a running turn: one notice, replaced where the platform can edit.


IN_THE_BUBBLE = frozenset({PROGRESS, Notice.WORKING})  # other notices are for a waiting sender: they are messages


async def notify(attempt: Attempt, text: str, reason: str = PROGRESS) -> None:
    """Store a progress notice, then send it; none for a turn that has ended.

    Where the answer is streamed, the streaming message shows it until there is more of the answer.
    """
    if reason in IN_THE_BUBBLE and not attempt.look.progress:
        return
    if attempt.bubble is not None and reason in IN_THE_BUBBLE:
        attempt.bubble.show_status(text)
        return
    env, begun = attempt.env, attempt.begun
    progress = Progress(id=env.instance.ids.next(), text=text, reason=reason, at=env.clock.now())
    storing = env.store.run(notify_progress, begun, progress, env.platforms.delivery(begun.source.platform))
    # What follows the commit happens even if this task is cancelled meanwhile.
    storing.add_done_callback(partial(_notified, attempt))
    await asyncio.shield(storing)


def _notified(attempt: Attempt, storing: asyncio.Future[tuple[Event, ...] | None]) -> None:
    if storing.cancelled() or storing.exception() is not None or storing.result() is None:
        return
    points.reached("turn.notified")
    key = attempt.begun.key
    attempt.env.hub.publish(key, storing.result() or ())
    if not attempt.env.platforms.delivery(attempt.begun.source.platform).by_event:
        attempt.env.deliver(key)


# Show the typing indicator and the reaction while a turn runs, where the platform can. Nothing depends on it.


EVERY_S = 4.0


def show_typing(attempt: Attempt, work: asyncio.Task[bool]) -> None:
    """Show typing and the reaction until the turn's task ends, as the chat's display settings say."""
    source = attempt.begun.source
    typist = attempt.env.platforms.typists.get(source.platform) if attempt.look.typing else None
    if typist is not None:
        typing = asyncio.create_task(_type(attempt, typist))
        work.add_done_callback(lambda _: typing.cancel())
    if attempt.look.reaction and source.message_id:
        platform: object = attempt.env.platforms.adapters.get(source.platform)
        if isinstance(platform, CanReact):
            marking = asyncio.create_task(_mark(attempt, platform, work))
            work.add_done_callback(lambda _: marking.done())  # it is held until then


async def _type(attempt: Attempt, platform: CanType) -> None:
    while True:
        with contextlib.suppress(PlatformError, OSError):
            await platform.typing(attempt.begun.source)
        await attempt.env.clock.sleep(EVERY_S)


async def _mark(attempt: Attempt, platform: CanReact, work: asyncio.Task[bool]) -> None:
    """React to the message while its turn runs; a later process that resumes the turn removes the reaction."""
    source, message = attempt.begun.source, attempt.begun.source.message_id or ""
    for mark in (attempt.look.reaction, ""):
        with contextlib.suppress(PlatformError, OSError):
            await platform.react(source, message, mark)
        await asyncio.wait({work})


# Join messages that arrive while a turn runs: committed as part of the turn before its next model call.


async def join_waiting(attempt: Attempt) -> None:
    """Join the queued messages to the turn, for its agent to read next. Reads nothing while none is queued."""
    if attempt.has_waiting():
        attempt.woken = False  # a message that arrives from now on joins the next time
        env, begun = attempt.env, replace(attempt.begun, seq=attempt.seq)
        delivery = env.platforms.delivery(begun.source.platform)
        isolation, admission = env.settings.isolation, env.settings.admission_of(begun.source.platform)
        joining = env.store.run(
            join_turn, begun, env.instance.ids.next(), isolation, env.clock.now(), delivery, admission
        )
        # What follows the commit happens even if this task is cancelled meanwhile.
        joining.add_done_callback(partial(_joined, attempt))
        await asyncio.shield(joining)


def _joined(attempt: Attempt, joining: asyncio.Future[JoinedTurn]) -> None:
    if joining.cancelled() or joining.exception() is not None:
        return  # the awaiting task gets the error
    joined, before = joining.result(), attempt.begun
    attempt.add_joined(joined)
    if joined.messages:
        attempt.env.observing.joined(before, joined.begun)
        points.reached("turn.joined")
        attempt.env.hub.publish(attempt.begun.key, joined.events)


class SessionResources:
    """What an agent has of its session beside the transcript: frozen prompt, chosen model, compaction (agent/interface.py)."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._env = attempt.env
        self._store = attempt.env.store

    @property
    def model(self) -> str | None:
        """The model that /model chose for the session."""
        return self._attempt.begun.model

    @property
    def limited(self) -> bool:
        """Whether a spending limit is set."""
        return self._env.settings.limits.any()

    async def opening(self, known: HistoryPosition) -> TurnOpening:
        """The session's prompt, the rows behind a position, and the request extras, in one read."""
        return await self._store.read(read_opening, self._here(known), self._attempt.begun.inbox)

    async def history_after(self, known: HistoryPosition) -> TranscriptPart:
        """The rows behind a position."""
        return await self._store.read(history_after, self._here(known))

    def _here(self, known: HistoryPosition) -> HistoryPosition:
        """The position, if it is of the turn's session, which a compaction may have changed."""
        here = self._attempt.begun.session_id
        return known if known.session_id == here else HistoryPosition(here)

    def freeze(self, prompt: str) -> asyncio.Future[str]:
        """Freeze the session's prompt, unless it has one."""
        return self._store.run(freeze, self._attempt.begun.session_id, prompt)

    async def may_compact(self) -> bool:
        """Whether a compaction may be tried now; an interrupt or a command that waits comes first."""
        return await self._store.read(may_compact, self._attempt.begun, self._env.clock.now())

    async def compact(self, summary: str, keep: int, usage: Usage = NO_USAGE) -> None:
        """Move to a child session with the summary; from the commit on this attempt writes there."""
        move = Compaction(
            session_id=self._env.instance.ids.session(),
            summary=summary,
            keep=keep,
            at=self._env.clock.now(),
            usage=usage,
        )
        moved = await self._store.run(compact, self._attempt.begun, move)
        points.reached("session.compacted")
        self._env.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        self._attempt.begun, self._attempt.seq = moved.begun, moved.last

    async def used_ids(self) -> set[str]:
        """The ids of the turn's calls, also of those that a compaction left in another session."""
        return set(await used_calls(self._attempt))

    async def called_apart(self, usage: Usage) -> None:
        """Count a model call whose answer is no row of the transcript."""
        self._env.observing.model_answered(self._attempt.begun, self._attempt.pop_asked_at(), usage)
        await self._store.run(called_apart, self._attempt.begun, usage)

    async def compaction_failed(self, why: str, usage: Usage = NO_USAGE) -> None:
        """Store that a compaction failed: the next try waits longer."""
        if (asked_at := self._attempt.pop_asked_at()) is not None:
            self._env.observing.model_failed(self._attempt.begun, asked_at, usage)
        number, now = self._env.instance.ids.next(), self._env.clock.now()
        await self._store.run(compaction_failed, self._attempt.begun, number, why, now, usage)


async def used_calls(attempt: Attempt) -> dict[str, ToolCall]:
    """The turn's calls by their ids; those of earlier attempts are read once."""
    if attempt.used is None:
        attempt.used = await attempt.env.store.read(calls_of_turn, attempt.begun.session_id, attempt.begun.turn)
    return attempt.used
