"""One credential, one owner: in one database, and on one machine across homes."""

import hashlib
import resource
from dataclasses import replace
from pathlib import Path

from everturn.home.folder import CredentialLock
from everturn.inbox.rows.inbox import read_cursor
from everturn.lifecycle.rows import join, record_end
from everturn.lifecycle.settings import Settings
from everturn.people.rows.credentials import Claim, claim_credential
from everturn.testing import FakePlatform, ManualClock, World
from tests.contracts.store import living
from tests.scenes import Actor, answer_to, told, until_read, while_time_passes

HASH = hashlib.sha256(b"a token").hexdigest()


class Secretive(FakePlatform):
    """Read with a secret."""

    credential = HASH


def state_of(world: World) -> str:
    seen = world.gateway.contacts.connected()["fake", ""]
    return f"{seen['state']}: {seen['trouble']}" if seen["trouble"] else str(seen["state"])


async def test_a_living_instance_keeps_its_credential_and_a_dead_one_loses_it(store_url: str) -> None:
    one = Claim(hash=HASH, platform="fake", account="", instance=1, host="here", pid=7, home="home", since=1.0)
    two = Claim(hash=HASH, platform="fake", account="", instance=2, host="there", pid=8, home="home", since=2.0)
    async with living(store_url) as process:
        for token in "ab":
            await process.store.run(join, token, "here", 7, process.now)
        assert await process.twice(claim_credential, one) is None
        assert await process.twice(claim_credential, two) == one
        await process.store.run(record_end, 1, "unclean", process.now)
        assert await process.twice(claim_credential, two) is None
        assert await process.twice(claim_credential, one) == two


async def test_another_home_with_the_same_credential_stays_off_and_says_whose_it_is(tmp_path: Path) -> None:
    settings = Settings(burst_s=0.0, credentials=tmp_path / "state", home="first")
    first, second, clock = Secretive(), Secretive(), ManualClock()
    async with World(f"sqlite:///{tmp_path / 'one.db'}", Actor(), [first], settings=settings):
        first.say("one", "hello")
        await told(first, "one", answer_to("hello"))
        other = World(f"sqlite:///{tmp_path / 'two.db'}", Actor(), [second], clock, replace(settings, home="second"))
        await other.start()
        second.say("one", "hello")
        said = await until_read(lambda: _now(other), lambda state: state.startswith("trouble"))
        assert "with the home first" in said
        assert second.acknowledged == 0
    await while_time_passes(other, told(second, "one", answer_to("hello")))
    assert state_of(other) == "reading"
    await other.abandon()


async def _now(world: World) -> str:
    await world.store.read(read_cursor, "fake", "")
    return state_of(world)


def test_a_lock_is_held_on_a_full_disk_too(tmp_path: Path) -> None:
    first, second = (CredentialLock(tmp_path, HASH, home) for home in ("first", "second"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        assert first.acquire() is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert second.acquire() == "another process"
    first.release()


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    first, second = (CredentialLock(tmp_path / "state", HASH, home) for home in ("first", "second"))
    assert first.acquire() is None
    assert "with the home first" in str(second.acquire())
    first.release()
    assert second.acquire() is None
    second.release()
