"""Finds other instances that died. What was observed is kept in memory: an observer that dies observes again."""

from __future__ import annotations

from everturn.decide.liveness import Suspect, is_dead, is_stale, watch
from everturn.gateway.parts import Parts
from everturn.store.interface import GRACE_S
from everturn.store.operations.instances import Life, find_others


class Liveness:
    """Judges the other instances of the database. A wrong verdict is harmless: a closed instance is refused by its fences, and
    ends when it sees that it was closed.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._suspects: dict[int, Suspect] = {}

    async def dead_at_start(self) -> list[Life]:
        """Instances whose lock is free. That counts at once, so that a process that was killed is recovered by its next start;
        only a database that was itself restarted must have given the living the time to take their locks again.
        """
        store, us = self._parts.store, self._parts.instance
        others = (await store.read(find_others, us)).open
        if not others or {life.number for life in others} <= await store.alive():
            return []
        await store.settled()
        others = (await store.read(find_others, us)).open
        alive = await store.alive()
        return [life for life in others if life.number not in alive]

    async def dead(self, others: list[Life]) -> list[Life]:
        """Those of these instances whose lock was free, or whose heartbeat was stale, through a whole grace."""
        store = self._parts.store
        alive, database_now = (await store.alive(), await store.now()) if others else (set(), 0.0)
        suspects = [life for life in others if life.number not in alive or is_stale(life.alive_at, database_now)]
        now = self._parts.clock.monotonic()
        self._suspects = watch(self._suspects, {life.number: life.heartbeat_at for life in suspects}, now)
        return [life for life in suspects if is_dead(self._suspects[life.number], now, GRACE_S)]
