"""The directory's rows: what was seen, names, who looks, and who asks in a turn. Each the same when it is run twice."""

from collections.abc import AsyncIterator

import pytest

from everturn.decide.admission import Standing
from everturn.decide.directory import Known
from everturn.store.operations.admission import let_in
from everturn.store.operations.directory import (
    KEPT_S,
    asking,
    claim_look,
    directory,
    drop_alias,
    forget_channels,
    keep_channels,
    origins,
    put_alias,
)
from tests.contracts.store import Life, living

TEAM = Known(platform="fake", account="a", chat_id="team", name="Team", seen_at=1_000.0)
TOPIC = Known(platform="fake", account="a", chat_id="team", thread_id="7", name="Plans", parent="Team", seen_at=2_000.0)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def test_what_was_seen_is_kept_and_what_nobody_sees_for_a_year_is_not(life: Life) -> None:
    await life.twice(keep_channels, [TEAM, TOPIC])
    later = Known(platform="fake", account="a", chat_id="team", name="Crew", seen_at=9_000.0)
    await life.twice(keep_channels, [later])
    assert (await life.store.read(directory)).channels == (later, TOPIC)
    await life.twice(forget_channels, 2_001.0 + KEPT_S)
    assert (await life.store.read(directory)).channels == (later,)


async def test_a_name_leads_to_its_last_chat_until_it_is_taken_away(life: Life) -> None:
    await life.twice(put_alias, "garden", TEAM, 1.0)
    await life.twice(put_alias, "garden", TOPIC, 2.0)
    assert (await life.store.read(directory)).aliases == {"garden": "fake:team:7"}
    await life.twice(drop_alias, "garden")
    assert (await life.store.read(directory)).aliases == {}


async def test_one_replica_looks_for_all(life: Life) -> None:
    assert await life.twice(claim_look, "channels", 1_000.0, 300.0) == 0.0
    assert await life.store.run(claim_look, "channels", 1_100.0, 300.0) is None
    assert await life.twice(claim_look, "channels", 1_300.0, 300.0) == 1_000.0
    assert await life.store.run(claim_look, "channels", 500.0, 300.0) == 0.0  # a clock that was set back


async def test_conversations_tell_where_they_are_held_and_turns_who_asks(life: Life) -> None:
    begun = await life.called()
    (origin,) = await life.store.read(origins, 2**62, 0.0, 10)
    assert origin.source == begun.source
    assert await life.store.read(origins, origin.id, 0.0, 10) == []
    assert await life.store.read(origins, 2**62, origin.at, 10) == [origin]
    assert await life.store.read(origins, origin.id, origin.at, 10) == []
    assert await life.store.read(origins, 2**62, origin.at + 1, 10) == []
    assert await life.store.read(asking, begun.key, begun.turn) == [(begun.source, Standing.UNKNOWN)]
    await life.store.run(let_in, "fake", [begun.source.user_id or ""], None, 1.0, owner=True)
    assert await life.store.read(asking, begun.key, begun.turn) == [(begun.source, Standing.OWNER)]
    assert await life.store.read(asking, begun.key, begun.turn + 1) == []
