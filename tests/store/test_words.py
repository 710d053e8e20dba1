"""A home of 17aaa40, from before stored values and columns got their present names (ADR 66), opens with everything in place.

Its rows were left by the code of 17aaa40 (schema 14): replies that were sent, pending, of unknown delivery and dead; turns that ran
and that awaited approval; queued messages, a backlog, suspended sessions, and what operators did.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.inbox.rules import BacklogRule
from everturn.lifecycle.settings import Settings
from everturn.model import InboxState, OutboxState, ToolCall, TurnState
from everturn.operator.rows.overview import counts, recoveries
from everturn.operator.rows.reading import explain
from everturn.operator.rules.timeline import timeline
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import Platform
from everturn.platform.posted import ApiPlatform
from everturn.store.interface import Rows, Store
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ManualClock, World
from tests.contracts.store import broken, select
from tests.store.old_homes import make_old_home

NOW = 1_800_000_200.0
SETTINGS = Settings(
    burst_s=0.0,
    busy="queue",
    on_unknown_delivery="ask",
    backlog={"late": BacklogRule(policy="ask"), "newest": BacklogRule(policy="newest")},
    busy_by_platform={"api": "steer"},
)


@pytest.fixture
async def old_home(fresh_store_url: str, tmp_path: Path) -> str:
    await make_old_home(fresh_store_url, "schema_0014_busy", tmp_path / "then")
    return fresh_store_url


@pytest.fixture
async def home(old_home: str) -> AsyncIterator[Store]:
    store = await open_store(old_home)
    yield store
    await store.close()


async def look(store: Store, text: str, *args: object) -> Rows:
    return await store.read(select, text, *args)


async def test_every_state_has_its_present_name(home: Store) -> None:
    for table, states in (("inbox", InboxState), ("turn", TurnState), ("outbox", OutboxState)):
        assert {row[0] for row in await look(home, f"SELECT state FROM {table}")} <= set(states)
    assert dict(await look(home, "SELECT state, count(*) FROM outbox GROUP BY state")) == {
        "sent": 15, "pending": 1, "unknown": 1, "dead": 1,
    }  # fmt: skip
    assert dict(await look(home, "SELECT state, count(*) FROM turn WHERE ended_at IS NULL GROUP BY state")) == {
        "awaiting_approval": 3, "running": 1,
    }  # fmt: skip
    assert await home.read(broken) == {}


async def test_values_beside_the_states_are_renamed_too(home: Store) -> None:
    asking = "SELECT kind, count(*) FROM outbox WHERE kind LIKE '%request' GROUP BY kind ORDER BY kind"
    assert await look(home, asking) == [("approval_request", 4), ("delivery_request", 1)]
    assert await look(home, "SELECT kind FROM failure ORDER BY kind") == [("dead",), ("later",), ("unknown",)]
    reasons = "SELECT body, why FROM inbox WHERE why IS NOT NULL AND state IN ('queued','expired') ORDER BY id"
    assert await look(home, reasons) == [
        ("and then?", "awaiting_approval"), ("held back", "suspended"), ("new 1", "backlog"),
    ]  # fmt: skip
    backlog = "SELECT body, backlog FROM inbox WHERE backlog IS NOT NULL ORDER BY id"
    assert await look(home, backlog) == [
        ("old 1", "asked"), ("old 2", "asked"), ("older", "collecting"), ("new 2", "collecting"),
    ]  # fmt: skip
    assert await look(home, "SELECT why FROM approval WHERE state='closed'") == [("message",)]
    assert "be kind" in (await look(home, "SELECT extras FROM inbox WHERE extras IS NOT NULL"))[0][0]
    ((sticker,),) = await look(home, "SELECT attachments FROM inbox WHERE attachments IS NOT NULL")
    assert '"text":":)"' in sticker
    events = [
        row[0] for row in await look(home, "SELECT data FROM event WHERE kind IN ('approval','turn') ORDER BY id")
    ]
    assert sum('"request":"run: ls"' in each for each in events) == 2
    assert sum('"state":"awaiting_approval"' in each for each in events) == 2
    assert not any('"question"' in each or '"waiting"' in each for each in events)


async def test_who_spent_acted_and_was_approved_is_still_known(home: Store) -> None:
    assert ("person:fake:ann",) in await look(home, "SELECT spender FROM spending")
    assert await look(home, "SELECT DISTINCT actor FROM action") == [("owner",)]
    assert await look(home, "SELECT main_id, state FROM person") == [("eve", "granted")]
    (recovery,) = await home.read(recoveries)
    assert (recovery["instance"], recovery["previous_exit"], recovery["continued"]) == (1, "unclean", 1)
    found = await home.read(counts, NOW)
    assert {name: found[name] for name in ("awaiting_approval", "outbox_pending", "outbox_unknown", "suspended")} == {
        "awaiting_approval": 3, "outbox_pending": 1, "outbox_unknown": 1, "suspended": 2,
    }  # fmt: skip


async def test_each_message_can_be_explained(home: Store) -> None:
    for (number,) in await look(home, "SELECT ext_id FROM inbox"):
        found = [each for each in await home.read(explain, number) if each["id"] == number]
        assert found
        assert all(timeline(each) for each in found)


class Agent:
    """Goes on with what its predecessor began, as the agent that wrote this home did."""

    async def run(self, turn: TurnContext) -> Answer:
        if turn.attempt > 1:
            await turn.settle(self._use)
        used = [row.content for row in await turn.own() if row.role == "tool"]
        return Answer(" ".join([f"re: {turn.text}", *used]))

    async def _use(self, _call: ToolCall, _key: str) -> str:
        return "used"


async def test_the_gateway_goes_on_with_all_of_it(old_home: str) -> None:
    fake, slow, late = FakePlatform(), FakePlatform("slow"), FakePlatform("late")
    lossy, strict = FakePlatform("lossy", surety=Surety.NEITHER), FakePlatform("strict")
    platforms: list[Platform] = [fake, slow, late, lossy, strict, FakePlatform("newest"), ApiPlatform()]
    clock = ManualClock(NOW)
    async with World(old_home, Agent(), platforms, clock, SETTINGS) as world:
        await fake.until(lambda: fake.texts("running") == ["re: wait here", "re: queued behind"])  # cut off, and queued
        fake.say("asks", "/approve", "x1")
        await fake.until(lambda: fake.texts("asks")[-2:] == ["re: use shell used", "re: and then?"])
        clock.advance(7200)
        await slow.until(lambda: slow.texts("one") == ["re: hello"])  # pending
        lossy.say("one", "/resend", "x2")
        await lossy.until(lambda: any("re: hello" in text for text in lossy.texts("one")))  # delivery unknown
        ((dead,),) = await look(world.store, "SELECT id FROM outbox WHERE state='dead'")
        await world.gateway.operator.act("reply", "send", str(dead), "again", "owner")
        await strict.until(lambda: strict.texts("one") == ["re: hello"])  # a dead letter
        late.say("old", "/answer", "x3")
        await late.until(lambda: {"re: old 1", "re: old 2"} <= set(late.texts("old")))  # a backlog that was asked about
        fake.say("held", "/resume", "x4")
        await fake.until(lambda: "re: held back" in fake.texts("held"))  # suspended
        assert await world.store.read(broken) == {}
