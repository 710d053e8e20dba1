"""One credential, one owner: a platform is read only by the process that holds its secret, on this machine and in this
database. Who is refused says who has it, looks again now and then, and takes over when the other one is gone.
"""

from __future__ import annotations

import os
import socket

import structlog

from everturn.decide import admission_words
from everturn.gateway.parts import Parts
from everturn.home import CredentialLock
from everturn.platform.interface import HasCredential, Pulled
from everturn.store.operations.credentials import Claim, claim_credential

log = structlog.get_logger()
AGAIN_S = 10.0


class Credentials:
    """The secrets this process holds."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._locks: dict[str, CredentialLock] = {}

    async def own(self, platform: Pulled) -> None:
        """Return when the platform's secret is ours. Until then it stays off, and status says why."""
        told = ""
        while isinstance(platform, HasCredential) and (why := await self._refused(platform, platform.credential)):
            self._parts.contacts.reads(platform.name, why)
            if why != told:
                log.error("platform stays off", platform=platform.name, why=why)
                told = why
            await self._parts.clock.sleep(AGAIN_S)
        self._parts.contacts.reads(platform.name)

    def let_go(self) -> None:
        """At the end of a life: the files are free, and the rows are a dead instance's."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    async def _refused(self, platform: Pulled, secret_hash: str) -> str | None:
        parts, settings = self._parts, self._parts.settings
        if settings.credentials is not None and secret_hash not in self._locks:
            lock = CredentialLock(settings.credentials, secret_hash, settings.home)
            if (who := lock.acquire()) is not None:
                return admission_words.held_on_machine(platform.name, who)
            self._locks[secret_hash] = lock
        claim = Claim(
            hash=secret_hash, platform=platform.name, account=platform.account, instance=parts.instance,
            host=socket.gethostname(), pid=os.getpid(), home=settings.home, since=parts.clock.now(),
        )  # fmt: skip
        holder = await parts.store.run(claim_credential, claim)
        if holder is None:
            return None
        return admission_words.held_in_database(platform.name, holder.pid, holder.host, holder.home)
