"""Running turns: one at a time per key, fair between keys, within the limit of running turns.

Keys wait in three queues: new work, interrupted turns (which leave half of the slots to new work), and suspects, of whom
only one may be unproven at a time, so that the next death tells who causes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from everturn import points
from everturn.agent.interface import Agent, Answer
from everturn.decide import words
from everturn.decide.keys import origin_of
from everturn.decide.recovery import Verdict, is_suspect
from everturn.errors import FenceLost, StoreError
from everturn.gateway.journal import JournaledTurn
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.model import Event, Message, SessionSource
from everturn.store.operations.recovery import Interruption, Recovered, cut_off, cut_off_by_drain
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turns import Begun, Finished, NotYet, Start, begin_next, fail, finish, prove

log = structlog.get_logger()


@dataclass(slots=True)
class Running:
    """A turn of this process."""

    begun: Begun
    task: asyncio.Task[None]
    resumed: bool


class Turns:
    """Who runs now, who waits, and who is suspected."""

    def __init__(self, parts: Parts, agent: Agent, outbox: Outbox) -> None:
        self._parts = parts
        self._agent = agent
        self._outbox = outbox
        self._running: dict[str, Running] = {}
        self._claiming: set[str] = set()
        self._fresh: dict[str, None] = {}
        self._resumes: dict[str, None] = {}
        self._suspects: dict[str, None] = {}
        self._again: set[str] = set()
        self._unproven: str | None = None
        self._resumes_at_once = max(1, parts.settings.running_turns // 2)
        self._open = False
        self._background: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    # -- what others ask for ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to take turns."""
        self._open = True
        self._pump()

    def offer(self, key: str, source: SessionSource) -> Start | None:
        """A slot for a message that is just being accepted, if its lane has nothing before it and one is free."""
        if not self._open or self._is_known(key) or self._free() <= 0:
            return None
        self._claiming.add(key)
        return self._parts.start(source.platform, source.chat_type)

    def decline(self, key: str) -> None:
        """The offered slot was not used."""
        self._claiming.discard(key)
        self._pump()

    def launch(self, begun: Begun) -> None:
        """Run a turn that is ours."""
        key = begun.key
        self._claiming.discard(key)
        self._quiet.clear()
        if is_suspect(begun.unclean_ends, self._parts.settings.stuck_after):
            self._unproven = key
            self._spawn(self._prove_by_calm(begun))
        task = asyncio.create_task(self._run(begun))
        self._running[key] = Running(begun, task, resumed=begun.attempt > 1)

    def wake(self, key: str, *, resume: bool = False) -> None:
        """The key has work; when its turn is being run, look again afterwards."""
        if key in self._running or key in self._claiming:
            self._again.add(key)
            return
        if key not in self._resumes and key not in self._suspects:
            (self._resumes if resume else self._fresh)[key] = None
        self._pump()

    def wait_for_calm(self) -> None:
        """The boot breaker: resumes wait until the process has lived for the calm time, then go one at a time."""
        self._resumes_at_once = 0
        self._spawn(self._resume_after_calm())

    def stop_turn(self, key: str, turn: int) -> None:
        """A command ended this turn in the database; end it here too."""
        running = self._running.get(key)
        if running is not None and running.begun.turn == turn:
            running.task.cancel()

    def running(self) -> list[Begun]:
        """The turns that run in this process now."""
        return [each.begun for each in self._running.values()]

    def held_back(self) -> int:
        """How many interrupted turns wait for a calm process."""
        return len(self._resumes) if self._resumes_at_once == 0 else 0

    # -- stopping -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more turns; intake goes on."""
        self._open = False

    async def quiet(self) -> None:
        """Wait until no turn runs."""
        await self._quiet.wait()

    async def cut_off(self, reason: str) -> list[Recovered]:
        """Mark what is still running, count it in the same transaction, and cancel it."""
        now = self._parts.clock.now()
        cause = Interruption(instance=self._parts.instance, reason=reason, at=now, now=now, why=reason)
        marked: list[Recovered] = []
        for running in list(self._running.values()):
            begun = running.begun
            recovered = await self._parts.store.run(
                cut_off_by_drain, begun.turn, begun.key, self._parts.settings.stuck_after, cause,
                self._parts.delivery(begun.source.platform),
            )
            points.reached("drain.marked")
            running.task.cancel()
            if recovered is not None:
                marked.append(recovered)
                self._parts.hub.publish(begun.key, recovered.events)
        return marked

    async def stop(self) -> None:
        """End every task of ours."""
        tasks = [each.task for each in self._running.values()] + list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- queues -------------------------------------------------------------------------------------------------------

    def _is_known(self, key: str) -> bool:
        return (
            key in self._running or key in self._claiming or key in self._fresh
            or key in self._resumes or key in self._suspects
        )  # fmt: skip

    def _free(self) -> int:
        return self._parts.settings.running_turns - len(self._running) - len(self._claiming)

    def _pump(self) -> None:
        """Give free slots away: suspects one by one, interrupted turns up to their share, then new work."""
        while self._open and self._free() > 0:
            key = self._pick()
            if key is None:
                return
            self._claim(key)

    def _pick(self) -> str | None:
        if self._suspects and self._unproven is None:
            self._unproven = key = _pop(self._suspects)
            return key
        resumed = sum(each.resumed for each in self._running.values()) if self._resumes else 0
        if self._resumes and resumed < self._resumes_at_once:
            return _pop(self._resumes)
        return _pop(self._fresh) if self._fresh else None

    def _claim(self, key: str) -> None:
        """Take the key in the database and run what it has to do."""
        self._claiming.add(key)
        start = self._parts.start(*origin_of(key), suspects=self._unproven == key)
        claim = self._parts.store.run(begin_next, key, start)
        claim.add_done_callback(partial(self._claimed, key))

    def _claimed(self, key: str, claim: asyncio.Future[Begun | NotYet | None]) -> None:
        self._claiming.discard(key)
        begun = None if claim.exception() else claim.result()
        if isinstance(begun, Begun):
            self._parts.hub.publish(key, begun.events)
            if begun.spoke:
                self._outbox.wake(key)
            self.launch(begun)
        elif isinstance(begun, NotYet):
            self._suspects[key] = None
        if self._unproven == key and not isinstance(begun, Begun):
            self._unproven = None
        if key in self._again and key not in self._running:
            self._again.discard(key)
            self.wake(key)
        self._pump()

    # -- one turn -----------------------------------------------------------------------------------------------------

    async def _run(self, begun: Begun) -> None:
        more = False
        turn = JournaledTurn(self._parts, begun, self._proved)
        try:
            points.reached("turn.begun")
            more = await self._work(begun, turn)
        except FenceLost:
            log.info("turn lost its conversation", turn=begun.turn, key=begun.key)
            more = True
        except asyncio.CancelledError:
            more = await self._let_go(begun, turn)
            raise
        finally:
            self._ended(begun, more=more)

    async def _work(self, begun: Begun, turn: JournaledTurn) -> bool:
        try:
            answer = await self._agent.run(turn)
        except FenceLost:
            raise
        except Exception as error:  # noqa: BLE001  whatever an agent raises ends its turn, not the gateway
            log.warning("turn failed", turn=begun.turn, key=begun.key, error=repr(error))
            return await self._fail(begun, f"{type(error).__name__}: {error}"[:500])
        if not answer.text.strip():
            return await self._fail(begun, "the agent gave an empty answer")
        return await self._finish(begun, turn, answer)

    async def _finish(self, begun: Begun, turn: JournaledTurn, answer: Answer) -> bool:
        points.reached("turn.answering")
        parts = self._parts
        message = Message(role="assistant", content=answer.text, seq=turn.next_seq(), at=parts.clock.now())
        delivery = parts.delivery(begun.source.platform)
        finishing = parts.store.run(finish, begun, message, delivery, parts.instance, turn.acknowledge())
        # What follows the commit happens even if this task is cancelled meanwhile.
        finishing.add_done_callback(partial(self._finished, begun.key, delivery))
        return (await asyncio.shield(finishing)).more

    def _finished(self, key: str, delivery: Delivery, finishing: asyncio.Future[Finished]) -> None:
        if finishing.exception() is not None:
            return  # the task that finishes is told
        finished = finishing.result()
        points.reached("turn.finished")
        if delivery.by_event:
            self._told(key, finished)
        elif finished.reply is not None:
            self._outbox.send(finished.reply)
        else:
            self._outbox.wake(key)

    def _told(self, key: str, finished: Finished) -> None:
        self._parts.hub.ended(key)
        if finished.events:
            self._parts.hub.publish(key, finished.events)
        else:
            self._parts.hub.resync(key)

    async def _fail(self, begun: Begun, why: str) -> bool:
        parts = self._parts
        delivery = parts.delivery(begun.source.platform)
        failing = parts.store.run(fail, begun, why, words.failed(why), parts.clock.now(), delivery)
        failing.add_done_callback(partial(self._failed, begun.key, delivery))
        await asyncio.shield(failing)
        return True

    def _failed(self, key: str, delivery: Delivery, failing: asyncio.Future[tuple[Event, ...]]) -> None:
        if failing.exception() is not None:
            return
        points.reached("turn.failed")
        self._parts.hub.publish(key, failing.result())
        if not delivery.by_event:
            self._outbox.wake(key)

    async def _let_go(self, begun: Begun, turn: JournaledTurn) -> bool:
        """Who is cancelled releases: unless a command or a drain ended the turn already, it is interrupted here."""
        now = self._parts.clock.now()
        cause = Interruption(
            instance=self._parts.instance, reason="restart_interrupted", at=now, now=now, why="cancelled"
        )
        verdict = Verdict.SPARE if turn.called else Verdict.REQUEUE
        delivery = self._parts.delivery(begun.source.platform)
        try:
            released = await asyncio.shield(
                self._parts.store.run(cut_off, begun.turn, begun.key, verdict, cause, delivery)
            )
        except StoreError:
            return False  # the store is closing: the next life finds the turn running
        return released is None or self._open

    def _ended(self, begun: Begun, *, more: bool) -> None:
        key = begun.key
        del self._running[key]
        self._parts.hub.ended(key)
        if self._unproven == key:
            self._unproven = None
        if more or key in self._again:
            self._again.discard(key)
            self.wake(key)
        else:
            self._pump()
        if not self._running:
            self._quiet.set()

    # -- suspects and storms ------------------------------------------------------------------------------------------

    def _proved(self, key: str) -> None:
        if self._unproven == key:
            self._unproven = None
            self._pump()

    async def _prove_by_calm(self, begun: Begun) -> None:
        await self._parts.clock.sleep(self._parts.settings.calm_s)
        running = self._running.get(begun.key)
        if running is not None and running.begun is begun and self._unproven == begun.key:
            await self._parts.store.run(prove, begun.turn)
            self._proved(begun.key)

    async def _resume_after_calm(self) -> None:
        await self._parts.clock.sleep(self._parts.settings.calm_s)
        self._resumes_at_once = 1
        self._pump()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key
