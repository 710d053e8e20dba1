"""The directory's rows: what was seen, aliases, whose look it is, and the authors of a turn. Each the same when it is run twice."""

from collections.abc import AsyncIterator

import pytest

from everturn.people.rows.access import approve_person
from everturn.people.rows.directory import (
    KEPT_S,
    authors_of_turn,
    claim_look,
    directory,
    drop_alias,
    forget_channels,
    keep_channels,
    origins,
    put_alias,
)
from everturn.people.rules.access import Standing
from everturn.people.rules.directory import KnownChat
from tests.contracts.store import StoreProcess, living

TEAM = KnownChat(platform="fake", account="a", chat_id="team", name="Team", seen_at=1_000.0)
TOPIC = KnownChat(
    platform="fake", account="a", chat_id="team", thread_id="7", name="Plans", parent="Team", seen_at=2_000.0
)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def test_what_was_seen_is_kept_and_what_nobody_sees_for_a_year_is_not(process: StoreProcess) -> None:
    await process.twice(keep_channels, [TEAM, TOPIC])
    later = KnownChat(platform="fake", account="a", chat_id="team", name="Crew", seen_at=9_000.0)
    await process.twice(keep_channels, [later])
    assert (await process.store.read(directory)).channels == (later, TOPIC)
    await process.twice(forget_channels, 2_001.0 + KEPT_S)
    assert (await process.store.read(directory)).channels == (later,)


async def test_a_name_leads_to_its_last_chat_until_it_is_taken_away(process: StoreProcess) -> None:
    await process.twice(put_alias, "garden", TEAM, 1.0)
    await process.twice(put_alias, "garden", TOPIC, 2.0)
    assert (await process.store.read(directory)).aliases == {"garden": "fake:team:7"}
    await process.twice(drop_alias, "garden")
    assert (await process.store.read(directory)).aliases == {}


async def test_one_replica_looks_for_all(process: StoreProcess) -> None:
    assert await process.twice(claim_look, "channels", 1_000.0, 300.0) == 0.0
    assert await process.store.run(claim_look, "channels", 1_100.0, 300.0) is None
    assert await process.twice(claim_look, "channels", 1_300.0, 300.0) == 1_000.0
    assert await process.store.run(claim_look, "channels", 500.0, 300.0) == 0.0  # a clock that was set back


async def test_conversations_tell_where_they_are_held_and_turns_who_asks(process: StoreProcess) -> None:
    begun = await process.called()
    (origin,) = await process.store.read(origins, 2**62, 0.0, 10)
    assert origin.source == begun.source
    assert await process.store.read(origins, origin.id, 0.0, 10) == []
    assert await process.store.read(origins, 2**62, origin.at, 10) == [origin]
    assert await process.store.read(origins, origin.id, origin.at, 10) == []
    assert await process.store.read(origins, 2**62, origin.at + 1, 10) == []
    assert await process.store.read(authors_of_turn, begun.key, begun.turn) == [(begun.source, Standing.UNKNOWN)]
    await process.store.run(approve_person, "fake", [begun.source.user_id or ""], None, 1.0, owner=True)
    assert await process.store.read(authors_of_turn, begun.key, begun.turn) == [(begun.source, Standing.OWNER)]
    assert await process.store.read(authors_of_turn, begun.key, begun.turn + 1) == []
