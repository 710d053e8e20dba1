"""`GET /metrics`: every metric of the table, in the formats of Prometheus, with the right values."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Sample

from everturn.clock import SystemClock
from everturn.lifecycle.settings import Settings
from everturn.outbox.hub import Hub
from everturn.store.open import open_store
from everturn.telemetry.meters import METRICS, Histogram, Meters, MetricKind, merged
from everturn.web.control import Metrics
from everturn.web.events import EventStreams
from tests.web.composition import Held, Web, running

OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}
Values = dict[tuple[str, tuple[str, ...]], float]


def values_of(samples: Iterable[Sample]) -> Values:
    return {(each.name, tuple(each.labels.values())): each.value for each in samples}


async def scraped(web: Web) -> Values:
    """Return what Prometheus would store; both formats have the same names."""
    plain = await web.client.get("/metrics")
    modern = await web.client.get("/metrics", headers=OPENMETRICS)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = list(read_text(plain.text))
    modern_families = list(read_open(modern.text))  # type: ignore[no-untyped-call]
    assert {each.name for each in families} == {each.name for each in modern_families}
    return values_of(sample for family in families for sample in family.samples)


async def test_a_conversation_is_counted(store_url: str) -> None:
    async with running(store_url, settings=Settings(message_chars=100)) as web, web.events("alice") as events:
        await web.post("alice", "m1", "hello")
        await events.until("reply")
        await web.post("alice", "m1", "hello")
        await web.post("alice", "m1", "other words")
        await web.post("alice", "m2", "x" * 101)
        found = await scraped(web)
    for outcome in ("accepted", "duplicate", "conflict", "too_long"):
        assert found["everturn_messages_total", ("api", outcome)] == 1
    assert found["everturn_turns_total", ("answered",)] == 1
    assert found["everturn_deliveries_total", ("api", "sent")] == 1
    assert found["everturn_answer_seconds_count", ()] == found["everturn_turn_seconds_count", ()] == 1
    assert found["everturn_streams_open", ()] == 1
    assert found["everturn_store_commit_seconds_count", ()] >= 3
    assert found["everturn_store_group_operations_sum", ()] >= 3
    assert found["everturn_store_read_seconds_count", ()] >= 1
    assert found["everturn_turns_running", ()] == found["everturn_turns_open", ("running",)] == 0


async def test_what_is_open_comes_from_the_store(tmp_path: Path) -> None:
    agent = Held()
    async with running(tmp_path, agent, Settings(busy="queue")) as web, web.events("alice") as events:
        await web.post("alice", "m1", "hello")
        await agent.began.wait()
        await web.post("alice", "m2", "and more")
        found = await scraped(web)
        agent.go.set()
        await events.until("reply")
        await events.until("reply")
    assert found["everturn_turns_running", ()] == found["everturn_turns_open", ("running",)] == 1
    assert found["everturn_inbox_messages", ("queued",)] == found["everturn_inbox_messages", ("claimed",)] == 1
    assert found["everturn_inbox_oldest_seconds", ()] > 0
    assert found["everturn_outbox_oldest_seconds", ()] == 0


async def test_every_metric_of_the_table_is_served_and_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as web:
        text = (await web.client.get("/metrics")).text
    served = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    assert served == {metric.name: metric.kind for metric in METRICS}


async def test_a_store_that_does_not_answer_leaves_the_rest(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'everturn.db'}")
    await store.close()
    families = await Metrics(Meters(), store, EventStreams(Hub(), store, 1.0), SystemClock()).collect()
    assert families["everturn_store_up"] == {(): 0.0}
    assert "everturn_inbox_messages" not in families
    assert "everturn_store_commit_seconds" in families


async def test_a_key_with_only_the_scope_chat_sees_no_metrics(tmp_path: Path) -> None:
    async with running(tmp_path) as web:
        statuses = []
        for scope in ("chat", "read"):
            made = await web.client.post("/control/keys", json={"name": scope, "scopes": [scope]})
            async with web.stranger(Authorization=f"Bearer {made.json()['key']}") as program:
                statuses.append((await program.get("/metrics")).status_code)
    assert statuses == [403, 200]


def test_names_follow_the_customs_of_prometheus() -> None:
    assert all(metric.name.startswith(("everturn_", "process_")) for metric in METRICS)
    assert all(metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER) for metric in METRICS)


def test_histograms_count_up_to_their_bounds_and_add_up() -> None:
    one, two = Histogram((1.0, 2.0)), Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        one.add(value)
    two.add(2.0)
    both = merged([one, two])
    assert (one.counts, both.counts, both.total, both.count()) == ([2, 1, 1], [2, 2, 1], 14.0, 5)
