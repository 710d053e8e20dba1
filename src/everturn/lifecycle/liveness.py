"""Find other instances that died. Observations are in memory: a restarted observer observes again."""

from __future__ import annotations

from everturn.ids import Instance
from everturn.lifecycle.rows import InstanceRow, find_others
from everturn.lifecycle.rules import Suspect, is_dead, is_stale, watch
from everturn.store.interface import GRACE_S, Store


class Liveness:
    """Judges the other instances of the database. A wrong verdict is harmless: a closed instance is refused by its fences, and
    ends when it sees that it was closed.
    """

    def __init__(self, store: Store, instance: Instance) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._suspects: dict[int, Suspect] = {}

    async def dead_at_start(self) -> list[InstanceRow]:
        """Find instances whose lock is free. That counts at once, so that a killed process is recovered by its next start; only
        a database that was itself restarted must have given live instances the time to take their locks again.
        """
        store, us = self._store, self._instance.number
        others = (await store.read(find_others, us)).open
        if not others or {instance.number for instance in others} <= await store.alive():
            return []
        while True:
            await store.locks_settled()
            others = (await store.read(find_others, us)).open
            alive = await store.alive()
            if us in alive:
                return [instance for instance in others if instance.number not in alive]
            await self._clock.sleep(GRACE_S)  # our own lock is free: the database has restarted since

    async def dead(self, others: list[InstanceRow]) -> list[InstanceRow]:
        """Find those of these instances whose lock was free, or whose heartbeat was stale, for the whole grace period."""
        store = self._store
        alive, database_now = (await store.alive(), await store.now()) if others else (set(), 0.0)
        suspects = [
            instance for instance in others if instance.number not in alive or is_stale(instance.alive_at, database_now)
        ]
        now = self._clock.monotonic()
        self._suspects = watch(self._suspects, {instance.number: instance.heartbeat_at for instance in suspects}, now)
        dead = [instance for instance in suspects if is_dead(self._suspects[instance.number], now, GRACE_S)]
        if not dead:
            return []
        await store.locks_settled()  # the database may have restarted at both looks
        alive = await store.alive()
        if self._instance.number not in alive:
            return []
        return [each for each in dead if each.number not in alive or is_stale(each.alive_at, database_now)]
