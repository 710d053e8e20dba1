"""Traces of real gateways at a real collector: one for each message, through a death."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from everturn.telemetry.otel import END_THREAD, EXPORT_S, WAITING_SPANS, OtelTracer
from everturn.telemetry.spans import Span
from everturn.testing import FakePlatform, ScriptedAgent, World
from tests.collector import Collector, Got
from tests.crash.gateways import Gateway
from tests.crash.held import HELD, install_in
from tests.waiting import poll

NOBODY = "http://127.0.0.1:9"
JOIN_S = 20  # the exporter itself would try for half a minute
SECRET = "a secret for the collector"


def turns(spans: list[Got]) -> list[Got]:
    return sorted((each for each in spans if each.name == "turn"), key=lambda each: int(each.about["everturn.attempt"]))


def settings(collector: Collector) -> dict[str, str]:
    return HELD | {
        "EVERTURN_TELEMETRY_ENDPOINT": collector.url,
        "EVERTURN_TELEMETRY_SERVICE_NAME": "tested",
        "EVERTURN_TELEMETRY_HEADERS_ENV": "COLLECTOR_HEADERS",
        "COLLECTOR_HEADERS": "x-key=a%20secret%20for%20the%20collector,x-more=1",
    }


async def killed_in_a_turn(home: Path, collector: Collector) -> None:
    """A gateway that is killed in its second effect, and one that goes on and ends well."""
    async with Gateway(home, settings=settings(collector)) as gateway:
        install_in(home)
        await gateway.up()
        await gateway.says("alice-in-the-chat", "m1", "work 9")
        await asyncio.to_thread(collector.until, lambda spans: any(each.name == "tool" for each in spans))
        await poll(lambda: len(gateway.ledger()) == 2)
        await gateway.killed()
        await gateway.up()
        assert await gateway.reply("alice-in-the-chat", "m1") == "done: 9 steps (1 with unknown outcome)"
        await asyncio.to_thread(collector.until, lambda spans: any(each.name == "message" for each in spans))
        assert await gateway.stopped() == 0


@pytest.mark.prove
async def test_a_message_has_one_trace_through_a_sigkill(tmp_path: Path) -> None:
    with Collector() as collector:
        await killed_in_a_turn(tmp_path, collector)
    spans = collector.spans
    assert len({each.trace for each in spans}) == 1
    (whole,) = (each for each in spans if each.name == "message")
    first, second = turns(spans)
    assert [each.about["everturn.outcome"] for each in (first, second)] == ["interrupted", "answered"]
    assert (whole.parent, first.parent, second.parent) == ("", whole.id, whole.id)
    assert {each.parent for each in spans if each.name == "tool"} == {first.id, second.id}
    assert {"intake", "model", "send"} <= {each.name for each in spans}
    assert whole.start <= first.start <= first.end <= second.start <= second.end <= whole.end
    assert collector.services == {"tested"}
    assert {(each["x-key"], each["x-more"]) for each in collector.headers} == {(SECRET, "1")}
    assert not [word for word in (b"work 9", b"alice", b"done: 9", SECRET.encode()) if word in collector.sent]


async def test_a_collector_that_is_not_there_costs_no_message_and_no_end(tmp_path: Path) -> None:
    tracer, platform = OtelTracer(endpoint=NOBODY, service="tested"), FakePlatform()
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", ScriptedAgent(), [platform], tracer=tracer) as world:
        platform.say("one", "hello")
        await platform.until(lambda: bool(platform.texts("one")))
        for number in range(WAITING_SPANS + 1000):  # more than are kept
            tracer.record(Span(trace=number, name="message", start=1.0, end=2.0, parent=None))
        await world.stop()
    began = time.monotonic()
    await tracer.close()
    assert time.monotonic() - began < EXPORT_S  # nobody waits as long as an export may take
    for thread in [each for each in threading.enumerate() if each.name == END_THREAD]:
        await asyncio.to_thread(thread.join, JOIN_S)
        assert not thread.is_alive()  # nothing tries on beside us
