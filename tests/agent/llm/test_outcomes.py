"""Each way a model call can fail, over real HTTP: how often it is asked, what the user sees, and that no key is in it."""

import asyncio
import json

import pytest

from everturn.agent.llm.calls import CallWatch, Pulse, unless_stalled
from everturn.agent.llm.failures import Stalled
from everturn.operator.rows.reading import explain
from everturn.testing import ManualClock
from tests.agent.llm.scenes import KEY, STALL_S, Impatient, Scene, scene

TEXT = "tell me something"
WHOLE = f"answer to {TEXT}"
HALF = "answer to"


Fails = tuple[str, int, float | None]


@pytest.mark.parametrize(
    ("fault", "shown", "requests", "waits"),
    [
        (("limited", 1, 3), WHOLE, 2, [3]),
        (("limited", 9, 2), "takes no more requests from us at the moment (asked 3 times)", 3, [2, 2]),
        (("limited", 9, 9999), "takes no more requests from us", 1, []),
        (("server", 1, None), WHOLE, 2, [0.5]),
        (("server", 9, None), "has a problem at the moment (asked 3 times)", 3, [0.5, 1.0]),
        (("unavailable", 2, None), WHOLE, 3, [0.5, 1.0]),
        (("reset", 1, None), WHOLE, 2, [0.5]),
        (("reset", 9, None), "cannot be reached (tried 3 times)", 3, [0.5, 1.0]),
        (("cut", 1, None), WHOLE, 2, [0.5]),
        (("cut", 9, None), HALF, 3, [0.5, 1.0]),
        (("malformed", 1, None), WHOLE, 2, [0.5]),
        (("malformed", 9, None), "cannot be read (asked 3 times)", 3, [0.5, 1.0]),
        (("error", 1, None), WHOLE, 2, [0.5]),
        (("length", 1, None), HALF, 1, []),
        (("empty", 1, None), WHOLE, 2, [0.0]),
        (("empty", 9, None), "gave an empty answer", 2, [0.0]),
        (("refused", 1, None), "declined to answer", 1, []),
        (("filter", 1, None), "declined to answer", 1, []),
        (("overflow", 9, None), "longer than the model can read", 1, []),
        (("denied", 9, None), "refused our key; the owner should check the variable TEST_KEY", 1, []),
        (("missing", 9, None), "does not know the model 'openai:scripted'", 1, []),
        (("quota", 9, None), "no credit left", 1, []),
        (("rejected", 9, None), "does not accept the request (The request is not valid.)", 1, []),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
async def test_each_failure_has_its_outcome(
    tmp_path: object, capsys: pytest.CaptureFixture[str], fault: Fails, shown: str, requests: int, waits: list[float]
) -> None:
    clock = Impatient()
    async with scene(f"sqlite:///{tmp_path}/everturn.db", agent_clock=clock, retries=2, stall_s=STALL_S) as it:
        it.model.fail(fault[0], fault[1], fault[2])
        answer = await it.ask(TEXT)
        assert shown in answer
        assert len(it.seen()) == requests
        assert clock.waits == waits
        assert KEY not in await everything(it)
    assert KEY not in "".join(capsys.readouterr())


async def everything(it: Scene) -> str:
    """All that is kept or shown of the chat."""
    trace = await it.world.store.read(explain, "m1@one")
    return repr((it.platform.texts("one"), await it.transcript(), trace))


async def test_a_wrong_key_is_told_without_the_key(store_url: str) -> None:
    async with scene(store_url, api_key="sk-wrong-9876543210") as it:
        answer = await it.ask(TEXT)
        assert answer.startswith("I could not answer: the model's provider refused our key")
        assert "9876543210" not in await everything(it)


async def test_a_call_without_activity_is_cancelled_and_retried(store_url: str) -> None:
    clock = Impatient()
    async with scene(store_url, agent_clock=clock, retries=2, stall_s=STALL_S) as it:
        it.model.fail("silent")
        it.platform.say("one", TEXT)
        await it.model.until(lambda: len(it.model.seen) == 1)
        clock.stall.set()
        assert await it.told(WHOLE)
        assert len(it.seen()) == 2


async def test_broken_arguments_are_an_error_that_the_model_reads(store_url: str) -> None:
    async with scene(store_url) as it:
        it.model.fail("arguments")
        assert await it.ask("tools 1") == "answer to tools 1"
        assert it.lines.written == []
        (row,) = [row for row in await it.transcript() if row.role == "tool"]
        assert "Error: the arguments are not" in row.content
        sent = [call for message in it.sent()[-1] for call in message.get("tool_calls", [])]
    assert json.loads(sent[0]["function"]["arguments"]) == {"INVALID_JSON": '{"line": "half'}


async def test_the_fallback_models_are_asked_in_their_order(store_url: str) -> None:
    clock = Impatient()
    async with scene(
        store_url, agent_clock=clock, retries=1, stall_s=STALL_S, fallback=("openai:second", "openai:third")
    ) as it:
        it.model.fail("server", times=2)
        it.model.fail("missing")
        assert await it.ask(TEXT) == WHOLE
        asked = [seen.asked.body["model"] for seen in it.seen()]
    assert asked == ["scripted", "scripted", "second", "third"]


async def test_who_has_to_wait_long_is_told(store_url: str) -> None:
    clock = Impatient()
    async with scene(store_url, agent_clock=clock, stall_s=STALL_S) as it:
        it.model.fail("limited", retry_after=30)
        it.platform.say("one", TEXT)
        assert await it.told("asks us to wait. I'll try again in about 30 seconds (try 2 of 6).")
        assert await it.told(WHOLE)
        assert clock.waits == [30]


async def test_a_turn_that_never_ends_is_ended_honestly(store_url: str) -> None:
    async with scene(store_url, max_steps=2) as it:
        assert "I stopped after 2 steps" in await it.ask("tools 5")
        assert it.lines.written == ["1", "2"]


def watching(clock: ManualClock) -> CallWatch:
    return CallWatch(clock, 10.0, lambda _: None, lambda: None)


async def test_a_stream_that_moves_is_not_stalled_and_one_that_stops_is() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    watched = asyncio.ensure_future(unless_stalled(work, pulse, watching(clock)))
    await asyncio.sleep(0)
    for _ in range(3):
        clock.advance(6)
        pulse.beat()
        await asyncio.sleep(0)
    assert not watched.done()
    for _ in range(40):
        clock.advance(5)
        await asyncio.sleep(0)
    assert isinstance(watched.exception(), Stalled)
    assert work.cancelled()
