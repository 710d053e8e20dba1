"""Blame is fair: with fifty long turns beside one that kills the process every time, exactly that one is suspended."""

from pathlib import Path

import pytest

from everturn.sessions.rows.entries import list_entries
from everturn.store.open import open_store
from everturn.testing import FakePlatform, key_of
from tests.scenes import answer_to, until_all_are_dead
from tests.turns.fifty import DIED, KILLER, Crowd, run


async def kill_until_suspended(crowd: Crowd) -> None:
    """Let one conversation kill the process until it is suspended; every other one is answered."""
    codes = []
    for _ in range(4):
        codes.append(run(crowd))
        await until_all_are_dead(crowd.url)
    store = await open_store(crowd.url)
    entries = await store.read(list_entries, "", 100)
    await store.close()
    platform = FakePlatform(file=crowd.folder / "platform")
    assert codes == [DIED, DIED, DIED, 0]
    assert [each["key"] for each in entries if each["state"] == "suspended"] == [key_of(platform, KILLER)]
    assert {each["state"] for each in entries if each["key"] != key_of(platform, KILLER)} == {"active"}
    assert [platform.texts(name) for name in crowd.neighbours] == [[answer_to(name)] for name in crowd.neighbours]
    assert "suspended" in platform.texts(KILLER)[0]


async def test_turns_finish_beside_one_that_kills_the_process_every_time(store_url: str, tmp_path: Path) -> None:
    """Promise 9: one bad conversation stays alone."""
    await kill_until_suspended(Crowd(store_url, tmp_path, size=6, steps=4))


@pytest.mark.prove
async def test_fifty_long_turns_finish_beside_one_that_kills_the_process_every_time(
    store_url: str, tmp_path: Path
) -> None:
    """Promise 9: one bad conversation stays alone."""
    await kill_until_suspended(Crowd(store_url, tmp_path, size=50, steps=12))
