"""One attempt of a turn, from the agent's first call to what follows the commit of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from everturn import points
from everturn.agent.interface import Agent, Answer
from everturn.decide import words
from everturn.decide.keys import account_of, origin_of
from everturn.decide.recovery import Verdict
from everturn.decide.streaming import whole
from everturn.decide.text import storable
from everturn.errors import FenceLost, Spent, StoreError, Unanswerable
from everturn.gateway.asking import Unwound
from everturn.gateway.attachments import Attachments
from everturn.gateway.attempt import Attempt
from everturn.gateway.damage import suspend_if_damaged
from everturn.gateway.journal import JournaledTurn, take_up
from everturn.gateway.observing import outcome_of
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.model import Event, Message
from everturn.store.operations.recovery import Interruption, cut_off
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun, Finished
from everturn.store.operations.turns import fail, finish, prove

log = structlog.get_logger()


class Runner:
    """Runs a turn that is ours to its end: answered, failed, or let go."""

    def __init__(self, parts: Parts, agent: Agent, outbox: Outbox) -> None:
        self._parts = parts
        self._agent = agent
        self._outbox = outbox
        self._attachments = Attachments(parts, agent)

    async def run(self, attempt: Attempt, proven: Callable[[str], None]) -> bool:
        """Run it; True when its key should be looked at again."""
        begun = attempt.begun
        calm = asyncio.create_task(self._prove_by_calm(begun, proven)) if attempt.suspect else None
        try:
            points.reached("turn.begun")
            return await self._work(attempt, JournaledTurn(attempt, proven, self._attachments))
        except Unwound:
            log.info("turn waits for an approval", turn=begun.turn, key=begun.key)
            attempt.outcome = "waiting"
            return True
        except FenceLost:
            log.info("turn lost its conversation", turn=begun.turn, key=begun.key)
            attempt.outcome = attempt.outcome or "stopped"
            return True
        except StoreError:
            return False  # the store is closing: the next life finds the turn running
        except asyncio.CancelledError:
            return await self._let_go(attempt)
        finally:
            if calm is not None:
                calm.cancel()

    async def _prove_by_calm(self, begun: Begun, proven: Callable[[str], None]) -> None:
        """A suspect that lived for the calm time is not the one that ends the process."""
        await self._parts.clock.sleep(self._parts.settings.calm_s)
        await self._parts.store.run(prove, begun)
        proven(begun.key)

    async def _work(self, attempt: Attempt, turn: JournaledTurn) -> bool:
        try:
            await self._attachments.settle(attempt, turn)
            await take_up(attempt, turn)
            answer = await self._agent.run(turn)
        except StoreError:
            raise
        except (Spent, Unanswerable) as error:
            log.info("turn not answered", turn=attempt.begun.turn, key=attempt.begun.key, why=str(error))
            return await self.fail(attempt, str(error))
        except Exception as error:  # noqa: BLE001  whatever an agent raises ends its turn, not the gateway
            log.warning("turn failed", turn=attempt.begun.turn, key=attempt.begun.key, error=repr(error))
            return await self.fail(attempt, f"{type(error).__name__}: {error}"[:500])
        asks = answer.calls and self._parts.delivery(attempt.begun.source.platform).by_event
        if not answer.text.strip() and not asks:
            return await self.fail(attempt, "the agent gave an empty answer")
        try:
            return await self._finish(attempt, answer)
        except StoreError:
            raise
        except Exception as error:  # an answer that cannot be stored ends its turn, and the key is free again
            log.exception("answer not stored", turn=attempt.begun.turn, key=attempt.begun.key, error=repr(error))
            return await self.fail(attempt, f"the answer could not be stored: {type(error).__name__}")

    async def _finish(self, attempt: Attempt, answer: Answer) -> bool:
        points.reached("turn.answering")
        parts, begun = self._parts, attempt.begun
        message = Message(
            role="assistant",
            content=storable(answer.text),
            seq=attempt.next_seq(),
            calls=answer.calls,
            extra=answer.extra,
            at=parts.clock.now(),
        )
        delivery = parts.delivery(begun.source.platform)
        attempt.close_bubble()
        cut = words.cut(answer.text) if answer.cut else None
        before = attempt.bubble.before if attempt.bubble is not None else ""
        grew = begun.attempt > 1 or (attempt.bubble is not None and attempt.bubble.began)
        finishing = parts.store.run(
            finish,
            begun,
            message,
            delivery,
            parts.instance,
            attempt.acknowledge(),
            answer.usage,
            cut,
            whole(before, message.content if cut is None else cut, attempt.look),
            grew=grew,
        )
        # What follows the commit happens even if this task is cancelled meanwhile.
        finishing.add_done_callback(partial(self._finished, attempt, delivery))
        parts.observing.heard(begun, attempt.answered(), answer.usage)
        return (await asyncio.shield(finishing)).more

    def _finished(self, attempt: Attempt, delivery: Delivery, finishing: asyncio.Future[Finished]) -> None:
        if finishing.exception() is not None:
            return  # the task that finishes is told
        finished, key = finishing.result(), attempt.begun.key
        points.reached("turn.finished")
        attempt.outcome = "answered"
        self._parts.observing.answered(attempt.begun)
        if delivery.by_event:
            self._told(key, finished)
            self._parts.observing.told(attempt.begun)
        elif finished.reply is not None:
            self._outbox.send(finished.reply)
        else:
            self._outbox.wake(key)

    def _told(self, key: str, finished: Finished) -> None:
        self._parts.hub.ended(key)
        self._parts.contacts.sent(origin_of(key)[0], account_of(key))
        if finished.events:
            self._parts.hub.publish(key, finished.events)
        else:
            self._parts.hub.resync(key)

    async def fail(self, attempt: Attempt, why: str) -> bool:
        """End a turn without an answer; its sender is told why."""
        parts, begun, why = self._parts, attempt.begun, storable(why)
        if (asked_at := attempt.answered()) is not None:
            parts.observing.model_failed(begun, asked_at)
        delivery = parts.delivery(begun.source.platform)
        failing = parts.store.run(fail, begun, why, words.failed(why), parts.clock.now(), delivery)
        failing.add_done_callback(partial(self._failed, attempt, delivery))
        await asyncio.shield(failing)
        return True

    def _failed(self, attempt: Attempt, delivery: Delivery, failing: asyncio.Future[tuple[Event, ...]]) -> None:
        if failing.exception() is not None:
            return
        points.reached("turn.failed")
        attempt.outcome = "failed"
        self._parts.hub.publish(attempt.begun.key, failing.result())
        if not delivery.by_event:
            self._outbox.wake(attempt.begun.key)

    async def _let_go(self, attempt: Attempt) -> bool:
        """Who is cancelled releases: unless a command or a drain ended the turn already, it is interrupted here."""
        now, begun = self._parts.clock.now(), attempt.begun
        cause = Interruption(
            instance=self._parts.instance, reason="restart_interrupted", at=now, now=now, why="cancelled"
        )
        verdict = Verdict.SPARE if attempt.called else Verdict.REQUEUE
        delivery = self._parts.delivery(begun.source.platform)
        try:
            marking = asyncio.shield(self._parts.store.run(cut_off, begun.turn, begun.key, verdict, cause, delivery))
            released = await suspend_if_damaged(self._parts, begun.turn, begun.key, cause, marking)
        except StoreError:
            return False  # the store is closing: the next life finds the turn running
        attempt.outcome = outcome_of(released.verdict) if released else attempt.outcome or "stopped"
        self._parts.hub.publish(begun.key, released.events if released else ())
        return True
