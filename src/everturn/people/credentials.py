"""One credential, one owner: a platform is read only by the process that holds its secret, on this machine and in this
database. A refused process names the holder in its status, tries again, and takes over when the holder is gone.
"""

from __future__ import annotations

import structlog

from everturn.home.folder import CredentialLock
from everturn.ids import Instance
from everturn.lifecycle.settings import Settings
from everturn.people.rows.credentials import Claim, claim_credential
from everturn.people.rules import people_texts
from everturn.platform.connected import Contacts
from everturn.platform.interface import HasCredential, Pulled
from everturn.store.interface import Store

log = structlog.get_logger()
AGAIN_S = 10.0


class Credentials:
    """The credentials this process holds."""

    def __init__(self, store: Store, instance: Instance, settings: Settings, contacts: Contacts) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._contacts = contacts
        self._locks: dict[str, CredentialLock] = {}

    async def acquire(self, platform: Pulled) -> None:
        """Wait until the platform's credential is ours. Until then the platform stays off, and status says why."""
        told = ""
        while isinstance(platform, HasCredential) and (why := await self._refused(platform, platform.credential)):
            self._contacts.reads(platform.name, why)
            if why != told:
                log.error("platform stays off", platform=platform.name, error=why)
                told = why
            await self._clock.sleep(AGAIN_S)
        self._contacts.reads(platform.name)

    def release(self) -> None:
        """Release the lock files at the end of the process; the rows then belong to an ended instance."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    async def _refused(self, platform: Pulled, secret_hash: str) -> str | None:
        settings = self._settings
        if settings.credentials is not None and secret_hash not in self._locks:
            lock = CredentialLock(settings.credentials, secret_hash, settings.home)
            if (user := lock.acquire()) is not None:
                return people_texts.held_on_machine(platform.name, user)
            self._locks[secret_hash] = lock
        machine = self._instance.machine
        claim = Claim(
            hash=secret_hash, platform=platform.name, account=platform.account, instance=self._instance.number,
            host=machine.host, pid=machine.pid, home=settings.home, since=self._clock.now(),
        )  # fmt: skip
        holder = await self._store.run(claim_credential, claim)
        if holder is None:
            return None
        return people_texts.held_in_database(platform.name, holder.pid, holder.host, holder.home)
