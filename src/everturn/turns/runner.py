"""Run one attempt of a turn, from the agent's first call to what follows the commit of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from everturn import points
from everturn.agent.interface import Agent, Answer
from everturn.errors import FenceLost, Spent, StoreError, Unanswerable
from everturn.home.files import Media
from everturn.inbox.attachments import Attachments
from everturn.model import Event, Message
from everturn.outbox.rows.streaming import asked_calls
from everturn.outbox.rules.delivery import Delivery
from everturn.outbox.rules.streaming import said_before, whole
from everturn.outbox.rules.text import storable
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules import notices
from everturn.sessions.rules.keys import account_of, origin_of
from everturn.telemetry.observing import outcome_of
from everturn.turns.approvals import TurnAwaitsApproval
from everturn.turns.attempt import Attempt, TurnEnvironment
from everturn.turns.damage import suspend_if_damaged
from everturn.turns.journal import JournaledTurn
from everturn.turns.rows.recovery import Interruption, cut_off
from everturn.turns.rows.turn_values import Finished, StartedTurn
from everturn.turns.rows.turns import fail, finish, prove
from everturn.turns.rules.recovery import RecoveryVerdict

log = structlog.get_logger()


class Runner:
    """Runs a turn of this process to its end: answered, failed, awaiting approval, or released."""

    def __init__(self, env: TurnEnvironment, agent: Agent, outbox: ReplySender, media: Media | None) -> None:
        self._env = env
        self._agent = agent
        self._outbox = outbox
        self._attachments = Attachments(env, agent, media)

    async def run(self, attempt: Attempt, proven: Callable[[str], None]) -> bool:
        """Run the attempt; True when its key may have more work."""
        begun = attempt.begun
        proving = asyncio.create_task(self._prove_by_time(begun, proven)) if attempt.suspect else None
        try:
            points.reached("turn.begun")
            return await self._work(attempt, JournaledTurn(attempt, proven, self._attachments))
        except TurnAwaitsApproval:
            log.info("turn awaiting approval", turn_id=begun.turn, session_key=begun.key)
            attempt.outcome = "awaiting_approval"
            return True
        except FenceLost:
            log.info("turn lost its conversation", turn_id=begun.turn, session_key=begun.key)
            attempt.outcome = attempt.outcome or "stopped"
            return True
        except StoreError:
            return False  # the store is closing: the next process finds the turn running
        except asyncio.CancelledError:
            return await self._let_go(attempt)
        finally:
            if proving is not None:
                proving.cancel()

    async def _prove_by_time(self, begun: StartedTurn, proven: Callable[[str], None]) -> None:
        """Prove a suspect that ran for the crash loop delay: it is not the turn that ends the process."""
        await self._env.clock.sleep(self._env.settings.crash_loop_delay_s)
        await self._env.store.run(prove, begun)
        proven(begun.key)

    async def _work(self, attempt: Attempt, turn: JournaledTurn) -> bool:
        try:
            if attempt.begun.carried or attempt.begun.attempt > 1:
                await self._prepare(attempt, turn)
            answer = await self._agent.run(turn)
        except StoreError:
            raise
        except (Spent, Unanswerable) as error:
            log.info("turn not answered", turn_id=attempt.begun.turn, session_key=attempt.begun.key, error=str(error))
            return await self.fail(attempt, str(error))
        except Exception as error:  # noqa: BLE001  whatever an agent raises ends its turn, not the gateway
            log.warning("turn failed", turn_id=attempt.begun.turn, session_key=attempt.begun.key, error=repr(error))
            return await self.fail(attempt, f"{type(error).__name__}: {error}"[:500])
        asks = answer.calls and self._env.platforms.delivery(attempt.begun.source.platform).by_event
        if not answer.text.strip() and not asks:
            return await self.fail(attempt, "the agent gave an empty answer")
        try:
            return await self._finish(attempt, answer)
        except StoreError:
            raise
        except Exception as error:  # an answer that cannot be stored ends its turn, and the key is free again
            log.exception(
                "answer not stored", turn_id=attempt.begun.turn, session_key=attempt.begun.key, error=repr(error)
            )
            return await self.fail(attempt, f"the answer could not be stored: {type(error).__name__}")

    async def _prepare(self, attempt: Attempt, turn: JournaledTurn) -> None:
        """Fetch the files of its messages, and show again what earlier attempts said before they used tools."""
        await self._attachments.settle(attempt, turn)
        if attempt.bubble is not None and attempt.begun.attempt > 1:
            asked = await self._env.store.read(asked_calls, attempt.begun.turn)
            attempt.bubble.text = attempt.bubble.before = said_before(await turn.own(), asked, attempt.look)

    async def _finish(self, attempt: Attempt, answer: Answer) -> bool:
        points.reached("turn.answering")
        env, begun = self._env, attempt.begun
        message = Message(
            role="assistant",
            content=storable(answer.text),
            seq=attempt.next_seq(),
            calls=answer.calls,
            extra=answer.extra,
            at=env.clock.now(),
        )
        delivery = env.platforms.delivery(begun.source.platform)
        attempt.close_bubble()
        cut = notices.cut(answer.text) if answer.cut else None
        before = attempt.bubble.before if attempt.bubble is not None else ""
        said = message.content if cut is None else cut
        grew = begun.attempt > 1 or (attempt.bubble is not None and attempt.bubble.began)
        finishing = env.store.run(
            finish,
            begun,
            message,
            delivery,
            env.instance.number,
            attempt.pop_tail_key(),
            answer.usage,
            cut,
            whole(before, said, attempt.look) if before else said,
            grew=grew,
        )
        # What follows the commit happens even if this task is cancelled meanwhile.
        finishing.add_done_callback(partial(self._finished, attempt, delivery, message.at))
        env.observing.model_answered(begun, attempt.pop_asked_at(), answer.usage)
        return (await asyncio.shield(finishing)).more

    def _finished(
        self, attempt: Attempt, delivery: Delivery, asked_at: float, finishing: asyncio.Future[Finished]
    ) -> None:
        if finishing.exception() is not None:
            return  # the finishing task gets the error
        finished, key = finishing.result(), attempt.begun.key
        points.reached("turn.finished")
        attempt.outcome = "answered"
        self._env.observing.answered(attempt.begun)
        if delivery.by_event:
            self._publish_answer(key, finished)
            self._env.observing.sent_by_commit(attempt.begun)
        elif finished.reply is not None:
            self._outbox.send(finished.reply, asked_at)
        else:
            self._outbox.wake(key)

    def _publish_answer(self, key: str, finished: Finished) -> None:
        self._env.hub.ended(key)
        self._env.contacts.sent(origin_of(key)[0], account_of(key))
        if finished.events:
            self._env.hub.publish(key, finished.events)
        else:
            self._env.hub.resync(key)

    async def fail(self, attempt: Attempt, why: str) -> bool:
        """End a turn without an answer; its sender gets a notice with the reason."""
        env, begun, why = self._env, attempt.begun, storable(why)
        if (asked_at := attempt.pop_asked_at()) is not None:
            env.observing.model_failed(begun, asked_at)
        delivery = env.platforms.delivery(begun.source.platform)
        failing = env.store.run(fail, begun, why, notices.failed(why), env.clock.now(), delivery)
        failing.add_done_callback(partial(self._failed, attempt, delivery))
        await asyncio.shield(failing)
        return True

    def _failed(self, attempt: Attempt, delivery: Delivery, failing: asyncio.Future[tuple[Event, ...]]) -> None:
        if failing.exception() is not None:
            return
        points.reached("turn.failed")
        attempt.outcome = "failed"
        self._env.hub.publish(attempt.begun.key, failing.result())
        if not delivery.by_event:
            self._outbox.wake(attempt.begun.key)

    async def _let_go(self, attempt: Attempt) -> bool:
        """Release the turn of a cancelled task: interrupt it, unless a command or a drain ended it already."""
        now, begun = self._env.clock.now(), attempt.begun
        cause = Interruption(
            instance=self._env.instance.number, reason="restart_interrupted", at=now, now=now, why="cancelled"
        )
        verdict = RecoveryVerdict.SPARE if attempt.called else RecoveryVerdict.REQUEUE
        delivery = self._env.platforms.delivery(begun.source.platform)
        try:
            marking = asyncio.shield(self._env.store.run(cut_off, begun.turn, begun.key, verdict, cause, delivery))
            released = await suspend_if_damaged(self._env, begun.turn, begun.key, cause, marking)
        except StoreError:
            return False  # the store is closing: the next process finds the turn running
        attempt.outcome = outcome_of(released.verdict) if released else attempt.outcome or "stopped"
        self._env.hub.publish(begun.key, released.events if released else ())
        return True
