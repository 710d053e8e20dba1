"""The kit for people who write adapters and agents does what it says, so that their tests may rely on it."""

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import everturn.testing
from everturn.errors import Conflict, OutcomeUnknown, Refused, TryLater
from everturn.model import Effect, Inbound, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import CanPull, CanReadBack, CanSend, TextLimits
from everturn.sessions.rows.entries import list_entries
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, SendFault, World, key_of
from everturn.testing.clock import within
from everturn.testing.matrix import MatrixProxy
from everturn.testing.model import ScriptedModel
from everturn.testing.telegram import Telegram, person
from tests.scenes import die, told, until_all_are_dead

HERE = SessionSource(platform="fake", chat_id="one", user_id="ann")


# -- ManualClock ------------------------------------------------------------------------------------------------------


async def test_time_passes_only_when_it_is_told_to() -> None:
    clock = ManualClock(100)
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [
        asyncio.ensure_future(sleeper(name, seconds)) for name, seconds in (("late", 20), ("soon", 10), ("now", 0))
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert woken == ["now"]
    clock.advance(10)
    await tasks[1]
    assert (woken, clock.now(), clock.monotonic()) == (["now", "soon"], 110, 110)
    clock.advance(100)
    await tasks[0]


async def test_sleepers_wake_in_the_order_of_their_time() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (3, 1, 2)]
    await asyncio.sleep(0)
    clock.advance(5)
    await asyncio.gather(*tasks)
    assert woken == [1, 2, 3]


async def test_a_sleeper_may_be_cancelled() -> None:
    clock = ManualClock()
    task = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    clock.advance(2)
    assert task.cancelled()


async def test_time_that_passes_before_a_sleepers_first_step_counts() -> None:
    clock = ManualClock()
    task = asyncio.ensure_future(clock.sleep(30))  # it has not run yet
    clock.advance(30)
    async with within():
        await task


def test_a_clock_set_back_wakes_nobody() -> None:
    clock = ManualClock(100)
    clock.set_back(30)
    assert clock.now() == 70


# -- FakePlatform -----------------------------------------------------------------------------------------------------


def test_the_fake_platform_has_the_abilities_of_a_real_one() -> None:
    platform = FakePlatform()
    assert isinstance(platform, CanPull)
    assert isinstance(platform, CanSend)
    assert isinstance(platform, CanReadBack)


@pytest.mark.parametrize(("surety", "shown"), [(Surety.KEYED, 1), (Surety.READ_BACK, 2), (Surety.NEITHER, 2)])
async def test_only_class_a_recognises_a_repeated_key(surety: Surety, shown: int) -> None:
    platform = FakePlatform(surety=surety)
    ids = [await platform.send(HERE, "hello", "key") for _ in range(2)]
    assert (len(platform.screen), len(set(ids)), platform.calls) == (shown, shown, 2)


@pytest.mark.parametrize(
    ("surety", "found"), [(Surety.KEYED, False), (Surety.READ_BACK, True), (Surety.NEITHER, False)]
)
async def test_only_class_b_can_be_read_back(surety: Surety, *, found: bool) -> None:
    platform = FakePlatform(surety=surety)
    sent = await platform.send(HERE, "hello", "key")
    assert (await platform.find(HERE, "key", "hello") == sent) is found
    assert await platform.find(HERE, "another", "hello") is None


@pytest.mark.parametrize("error", [TryLater("later", 1), Refused("never"), OutcomeUnknown("lost")])
@pytest.mark.parametrize("accepted", [False, True])
async def test_faults_come_in_their_order(error: TryLater | Refused | OutcomeUnknown, *, accepted: bool) -> None:
    platform = FakePlatform(faults=[None, SendFault(error, accepted=accepted)])
    await platform.send(HERE, "one", "1")
    with pytest.raises(type(error)):
        await platform.send(HERE, "two", "2")
    await platform.send(HERE, "three", "3")
    assert platform.texts("one") == ["one", *(["two"] if accepted else []), "three"]


async def test_what_is_not_asked_after_is_not_acknowledged() -> None:
    platform = FakePlatform()
    for text in ("first", "second"):
        platform.say("one", text)
    stream = platform.inbound()
    first = await anext(stream)
    assert (first.text, platform.acknowledged) == ("first", 0)
    await anext(stream)
    assert platform.acknowledged == 1
    again = await anext(platform.inbound())
    assert again.text == "second"


async def test_a_platform_may_deliver_more_than_once() -> None:
    platform = FakePlatform(repeat=3)
    platform.say("one", "hello")
    platform.say("one", "again")
    stream = platform.inbound()
    assert [(await anext(stream)).text for _ in range(4)] == ["hello", "hello", "hello", "again"]


def test_a_message_says_where_it_comes_from() -> None:
    platform = FakePlatform("chatter")
    message_id = platform.say("group", "hello", chat_type="group", thread_id="t", user_id="bob")
    (said,) = platform.said()
    assert (said.source.platform, said.source.chat_type, said.source.thread_id) == ("chatter", "group", "t")
    assert (said.source.user_id, said.source.message_id) == ("bob", message_id)


async def test_a_platform_with_a_file_outlives_its_process(tmp_path: Path) -> None:
    before = FakePlatform(file=tmp_path / "platform")
    before.say("one", "hello", thread_id="t")
    before.say("one", "again")
    stream = before.inbound()
    await anext(stream)
    await anext(stream)
    await before.send(HERE, "answer", "key")
    after = FakePlatform(file=tmp_path / "platform")
    after.say_once("one", "hello")
    assert after.said() == before.said()
    assert (after.screen, after.acknowledged) == (before.screen, 1)
    await after.send(HERE, "answer", "key")
    assert len(after.screen) == 1


async def test_waiting_for_what_never_comes_ends_and_tells_what_there_was_instead() -> None:
    platform = FakePlatform()
    platform.say("one", "hello")
    await platform.send(HERE, "an answer", "key")
    with pytest.raises(TimeoutError, match=r"'one': \['an answer'\].* 0 of 1 messages acknowledged"):
        await platform.until(lambda: False, timeout_s=0.01)


async def test_so_it_does_with_the_servers_beside_it() -> None:
    telegram, model, proxy = Telegram(), ScriptedModel(), MatrixProxy("http://127.0.0.1:9")
    person(telegram, "Ann").says("hello")
    telegram.called("getMe", {})
    model.saw('{"messages": [{"role": "user", "content": "hello"}]}', None)
    waits = {
        r"\{1001: \[\]\}; 1 updates wait; 1 calls.*getMe": telegram.until(lambda: False, 0.01),
        "1 requests.*hello": model.until(lambda: False, 0.01),
        "0 requests": proxy.until(lambda: False, 0.01),
    }
    for seen, waiting in waits.items():
        with pytest.raises(TimeoutError, match=seen):
            await waiting


# -- ScriptedAgent and World ------------------------------------------------------------------------------------------


async def test_a_scripted_agent_uses_its_tools_in_order_then_answers(store_url: str) -> None:
    used: list[tuple[str, str]] = []

    async def act(name: str, key: str) -> str:
        used.append((name, key))
        return f"{name} found"

    platform = FakePlatform()
    agent = ScriptedAgent(["search", "write"], lambda turn: f"done: {turn.text}", act, Effect.PURE)
    async with World(store_url, agent, [platform]):
        platform.say("one", "hello")
        await platform.until(lambda: bool(platform.screen))
    assert platform.texts("one") == ["done: hello"]
    assert [name for name, _ in used] == ["search", "write"]
    assert len({key for _, key in used}) == 2
    assert agent.notes == [None]


async def test_a_scripted_agent_goes_on_after_an_interruption(store_url: str) -> None:
    begun, used = asyncio.Event(), []

    async def act(name: str, _key: str) -> str:
        used.append(name)
        if name == "write" and not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "done"

    platform, agent = FakePlatform(), ScriptedAgent(["search", "write"], act=act, effect=Effect.IDEMPOTENT)
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hello")
        await begun.wait()
        await die(world)
        await world.start()
        await platform.until(lambda: bool(platform.screen))
    assert used == ["search", "write", "write"]
    assert [note is None for note in agent.notes] == [True, False]


async def test_a_world_is_closed_however_it_is_left(store_url: str) -> None:
    world = World(store_url, ScriptedAgent(), [FakePlatform()], ManualClock())
    with pytest.raises(RuntimeError, match="not started"):
        world.gateway.turns.running()
    with pytest.raises(ZeroDivisionError):
        async with world:
            raise ZeroDivisionError
    await until_all_are_dead(store_url)
    report = await world.start()
    assert report.previous_exit == "unclean"
    assert await world.stop() is True
    assert (await world.start()).previous_exit == "stop"
    await world.stop()


async def test_a_world_takes_messages_at_its_door(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        inbound = Inbound(id="1", source=HERE, text="hello")
        assert await world.accept(inbound) == key_of(platform, "one")
        with pytest.raises(Conflict):
            await world.accept(Inbound(id="1", source=HERE, text="other words"))
        await platform.until(lambda: bool(platform.screen))
        (entry,) = await world.store.read(list_entries, "", 10)
    assert (entry["key"], platform.texts("one")) == (key_of(platform, "one"), ["echo: hello"])


async def test_a_world_may_have_several_platforms(store_url: str) -> None:
    platforms = [FakePlatform("a"), FakePlatform("b", limits=TextLimits(text=10))]
    async with World(store_url, ScriptedAgent(), platforms):
        for platform in platforms:
            platform.say("one", f"I am {platform.name} here")
        for platform in platforms:
            await told(platform, "one", "here")
    assert [len(platform.screen) for platform in platforms] == [1, 2]


# -- The servers beside it --------------------------------------------------------------------------------------------


def test_the_kit_names_the_servers_beside_it_and_loads_none_of_them() -> None:
    """Who writes an adapter finds them; who only wants a fake platform waits for no web server."""
    servers = ("everturn.testing.telegram", "everturn.testing.matrix")
    asked = f"import sys, everturn.testing; print([name for name in {servers} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
    for server in servers:
        assert server in (everturn.testing.__doc__ or "")
        assert importlib.util.find_spec(server)
