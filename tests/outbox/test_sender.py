"""Delivery: in order to each chat, once where the platform lets us find out, retried, looked for, or a dead letter."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest

from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.inbox.rules import ASKED_S
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.operator.rows.actions import Act, Acted, act_on_reply
from everturn.operator.rows.overview import replies
from everturn.operator.rows.reading import count_open
from everturn.outbox.rows.outbox import claim_next, record_sent
from everturn.outbox.rules.delivery import MAY_REPEAT, NO_USE, Surety
from everturn.people.rules.access import VALID_S, AccessPolicy, Admission
from everturn.platform.interface import TextLimits
from everturn.store.interface import Op, Store, sql
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, SendFault, World
from everturn.testing.clock import within
from tests.scenes import Actor, die, happened, restarted, told, trace_of, until_read, while_time_passes

T = TypeVar("T")
LOST = SendFault(OutcomeUnknown("the connection was lost"), accepted=True)
NOT_SENT = SendFault(OutcomeUnknown("the connection was lost"))
BUSY = SendFault(TryLater("slow down", 30))
HOUR = 3600.0
BROKEN = SendFault(TryLater("bad gateway", 0))


class Slow(FakePlatform):
    """A platform that keeps us waiting in one chat."""

    def __init__(self, chat: str, surety: Surety = Surety.KEYED) -> None:
        super().__init__(surety=surety)
        self._chat = chat
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Wait, if it is that chat."""
        if to.chat_id == self._chat:
            self.asked.set()
            await self.go_on.wait()
        return await super().send(to, text, key)


class Timed(FakePlatform):
    """A platform that keeps when it was called."""

    def __init__(self, clock: ManualClock, faults: Iterable[SendFault]) -> None:
        super().__init__(faults=faults)
        self._now = clock.now
        self.times: list[float] = []

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Note the time first."""
        self.times.append(self._now())
        return await super().send(to, text, key)


@asynccontextmanager
async def said_hello(
    url: str,
    platform: FakePlatform,
    settings: Settings = Settings(in_flight_s=0.0),  # noqa: B008
    clock: ManualClock | None = None,
) -> AsyncIterator[World]:
    """A world with a pending answer to hello in chat `one`, and a clock of its own."""
    async with World(url, ScriptedAgent(), [platform], clock or ManualClock(), settings) as world:
        platform.say("one", "hello")
        await platform.until(lambda: platform.calls > 0)
        yield world


async def attempts(world: World, count: int, step_s: float = 1.0) -> None:
    """Let time pass until the platform was called this often."""
    platform = world.platforms["fake"]
    assert isinstance(platform, FakePlatform)
    await while_time_passes(world, platform.until(lambda: platform.calls >= count), step_s)


async def reply_to(world: World, message_id: str, state: str) -> dict[str, object]:
    """Wait until the reply to a message is in this state; its row."""
    trace = await until_read(
        lambda: trace_of(world, message_id),
        lambda trace: [each["state"] for each in trace["replies"]] == [state],
    )
    reply: dict[str, object] = trace["replies"][0]
    return reply


async def test_a_platforms_own_delay_is_kept(store_url: str) -> None:
    platform = FakePlatform(faults=[BUSY])
    async with said_hello(store_url, platform) as world:
        reply = await reply_to(world, "m1", "pending")
        world.clock.advance(29)  # type: ignore[attr-defined]
        assert (await trace_of(world, "m1"))["replies"][0]["state"] == "pending"
        assert (platform.calls, reply["error"]) == (1, "slow down")
        world.clock.advance(1)  # type: ignore[attr-defined]
        assert (await reply_to(world, "m1", "sent"))["attempts"] == 2
    assert platform.texts("one") == ["echo: hello"]


async def test_attempts_back_off(store_url: str) -> None:
    clock = ManualClock()
    platform = Timed(clock, [BROKEN] * 4)
    async with said_hello(store_url, platform, clock=clock) as world:
        await attempts(world, 5)
        await platform.until(lambda: bool(platform.screen))
    gaps = [after - before for before, after in itertools.pairwise(platform.times)]
    assert all(gap >= wanted for gap, wanted in zip(gaps, (1, 2, 4, 8), strict=True)), gaps


@pytest.mark.parametrize("surety", Surety)
async def test_a_reply_is_a_dead_letter_after_eight_attempts(store_url: str, surety: Surety) -> None:
    platform = FakePlatform(faults=[BROKEN] * 20, surety=surety)
    async with said_hello(store_url, platform) as world:
        await attempts(world, 8, step_s=10.0)
        reply = await reply_to(world, "m1", "dead")
        world.clock.advance(10_000)  # type: ignore[attr-defined]
        assert reply["error"] == "gave up after 8 failed attempts: bad gateway"
    assert (platform.calls, platform.screen, reply["attempts"]) == (8, [], 8)


async def test_what_a_platform_refuses_is_a_dead_letter_at_once(store_url: str) -> None:
    platform = FakePlatform(faults=[SendFault(Refused("the chat is gone"))])
    async with said_hello(store_url, platform) as world:
        reply = await reply_to(world, "m1", "dead")
        assert reply["error"] == "the platform refused it: the chat is gone"
        platform.say("one", "again")
        await told(platform, "one", "echo: again")


async def test_a_reply_that_is_out_of_date_is_a_dead_letter(store_url: str) -> None:
    platform = FakePlatform(faults=[BUSY], limits=TextLimits(valid_s=10))
    async with said_hello(store_url, platform) as world:
        assert "out of date" in str((await reply_to(world, "m1", "dead"))["error"])


async def test_a_reply_that_is_out_of_date_is_not_sent_by_a_later_process(store_url: str) -> None:
    """Also if nothing failed meanwhile: the gateway was not running."""
    platform = FakePlatform(faults=[BUSY], limits=TextLimits(valid_s=60))
    async with said_hello(store_url, platform) as world:
        await reply_to(world, "m1", "pending")
        await die(world)
        world.clock.advance(3 * 86_400)  # type: ignore[attr-defined]
        await world.start()
        assert (await reply_to(world, "m1", "dead"))["error"] == NO_USE
        platform.say("one", "again")
        await told(platform, "one", "echo: again")
    assert platform.texts("one") == ["echo: again"]


async def test_a_pairing_code_is_not_sent_after_its_hour(store_url: str) -> None:
    admission = Admission(policies={"fake": AccessPolicy(unknown="pair")})
    platform, settings = FakePlatform(faults=[BUSY]), Settings(admission=admission)
    async with World(store_url, ScriptedAgent(), [platform], ManualClock(), settings) as world:
        platform.say("one", "hello")
        await platform.until(lambda: platform.calls == 1)
        await die(world)
        world.clock.advance(VALID_S + 1)  # type: ignore[attr-defined]
        await world.start()
        await until_read(lambda: world.store.read(count_open), lambda found: not found["outbox"])
    assert (platform.calls, platform.screen) == (1, [])


@pytest.mark.parametrize(
    "valid_s", [60, 10], ids=["too late in the next life", "too late after the wait that is asked for"]
)
async def test_of_what_people_see_a_part_the_rest_follows_however_late(store_url: str, valid_s: float) -> None:
    words = " ".join(f"word{number}" for number in range(30))
    platform = FakePlatform(limits=TextLimits(text=80, valid_s=valid_s), faults=[None, BUSY])
    async with World(store_url, ScriptedAgent(answer=lambda _: words), [platform], ManualClock()) as world:
        platform.say("one", "hello")
        await reply_to(world, "m1", "pending")
        await die(world)
        world.clock.advance(3 * 86_400)  # type: ignore[attr-defined]
        await world.start()
        await reply_to(world, "m1", "sent")
    assert " ".join(platform.texts("one")) == words


@pytest.mark.parametrize("fault", [LOST, NOT_SENT])
async def test_class_a_repeats_with_its_key_and_shows_it_once(store_url: str, fault: SendFault) -> None:
    """Promise 6."""
    platform = FakePlatform(faults=[fault])
    async with said_hello(store_url, platform) as world:
        await attempts(world, 2)
        await reply_to(world, "m1", "sent")
    assert platform.texts("one") == ["echo: hello"]


@pytest.mark.parametrize(("fault", "calls"), [(LOST, 1), (NOT_SENT, 2)])
async def test_class_b_looks_before_it_repeats(store_url: str, fault: SendFault, calls: int) -> None:
    """Promise 6: what is found is not sent again."""
    platform = FakePlatform(faults=[fault], surety=Surety.READ_BACK)
    async with said_hello(store_url, platform) as world:
        await reply_to(world, "m1", "pending")
        world.clock.advance(10)  # type: ignore[attr-defined]
        await reply_to(world, "m1", "sent")
    assert (platform.texts("one"), platform.calls) == (["echo: hello"], calls)


async def test_class_c_marks_a_possible_duplicate(store_url: str) -> None:
    platform = FakePlatform(faults=[LOST], surety=Surety.NEITHER)
    async with said_hello(store_url, platform) as world:
        await attempts(world, 2)
        assert (await reply_to(world, "m1", "sent"))["marked"]
    assert platform.texts("one") == ["echo: hello", f"echo: hello\n\n{MAY_REPEAT}"]


@pytest.mark.parametrize(("policy", "state"), [("ask", "unknown"), ("drop", "dead")])
async def test_class_c_does_what_the_owner_said_and_goes_on(store_url: str, policy: str, state: str) -> None:
    """Promise 6: an unknown delivery is visible, and holds up nobody."""
    platform = FakePlatform(faults=[LOST], surety=Surety.NEITHER)
    async with said_hello(store_url, platform, Settings(on_unknown_delivery=policy)) as world:
        await reply_to(world, "m1", state)
        await reply_to(world, platform.say("one", "again"), "sent")
        await world.gateway.outbox.quiet()  # the delivery request is sent, too
        assert (await world.store.read(count_open))["outbox"] == ({"unknown": 1} if policy == "ask" else {})
    seen = [text for text in platform.texts("one") if "/resend" not in text]
    assert seen == ["echo: hello", "echo: again"]
    assert len(platform.texts("one")) == 2 + (policy == "ask")


async def test_a_delivery_request_that_its_chat_leaves_expires(store_url: str) -> None:
    """The request says that nothing is to be done if the reply arrived: after a day that is the answer."""
    clock = ManualClock()
    platform = FakePlatform(faults=[LOST], surety=Surety.NEITHER)
    async with World(store_url, ScriptedAgent([]), [platform], clock, Settings(on_unknown_delivery="ask")) as world:
        message = platform.say("one", "hello")
        await platform.until(lambda: any("/resend" in text for text in platform.texts("one")))
        await world.gateway.outbox.quiet()  # that it was asked is committed
        clock.advance(ASKED_S - HOUR)
        await world.gateway.upkeep.expire_unknown_deliveries()
        await reply_to(world, message, "unknown")
        clock.advance(2 * HOUR)
        await world.gateway.upkeep.expire_unknown_deliveries()
        await reply_to(world, message, "sent")
    assert len(platform.texts("one")) == 2


async def test_a_delivery_request_that_was_not_sent_does_not_expire(store_url: str) -> None:
    """Promise 13: it was pending for a day, and could not be sent."""
    clock = ManualClock()
    faults = [LOST, SendFault(TryLater("flood", ASKED_S))]
    platform = FakePlatform(faults=faults, surety=Surety.NEITHER)
    async with World(store_url, ScriptedAgent([]), [platform], clock, Settings(on_unknown_delivery="ask")) as world:
        message = platform.say("one", "hello")
        await platform.until(lambda: platform.calls == 2)
        await world.gateway.outbox.quiet()
        clock.advance(ASKED_S + HOUR)
        await world.gateway.upkeep.expire_unknown_deliveries()
        await reply_to(world, message, "unknown")


async def test_a_reply_whose_delivery_is_unknown_again_is_asked_about_again(store_url: str) -> None:
    platform = FakePlatform(faults=[LOST, None, LOST], surety=Surety.NEITHER)

    def asked() -> list[str]:
        return [text for text in platform.texts("one") if "/resend" in text]

    async with World(store_url, ScriptedAgent([]), [platform], settings=Settings(on_unknown_delivery="ask")):
        platform.say("one", "hello")
        await platform.until(lambda: len(asked()) == 1)
        platform.say("one", f"/resend {asked()[0].split()[-1]}")
        await platform.until(lambda: len(asked()) == 2)
        platform.say("one", f"/resend {asked()[0].split()[-1]}")
        await platform.until(lambda: sum("echo: hello" in text for text in platform.texts("one")) == 3)


async def test_a_long_answer_leaves_in_parts(store_url: str) -> None:
    words = " ".join(f"word{number}" for number in range(30))
    platform = FakePlatform(limits=TextLimits(text=80))
    async with World(store_url, ScriptedAgent(answer=lambda _: words), [platform]):
        platform.say("one", "hello")
        await platform.until(lambda: "word29" in "".join(platform.texts("one")))
    assert " ".join(platform.texts("one")) == words
    assert len(platform.screen) == len({shown.key for shown in platform.screen}) > 2


@pytest.mark.parametrize("surety", [Surety.KEYED, Surety.READ_BACK])
@pytest.mark.parametrize("fault", [BROKEN, LOST])
async def test_after_a_failure_between_parts_the_rest_goes_on(store_url: str, surety: Surety, fault: SendFault) -> None:
    words = " ".join(f"word{number}" for number in range(30))
    platform = FakePlatform(limits=TextLimits(text=80), faults=[None, fault], surety=surety)
    async with World(store_url, ScriptedAgent(answer=lambda _: words), [platform], ManualClock()) as world:
        platform.say("one", "hello")
        await platform.until(lambda: platform.calls > 0)  # its turn has ended: no time passes while it works
        await while_time_passes(world, reply_to(world, "m1", "sent"))
    assert " ".join(platform.texts("one")) == words


async def test_replies_to_one_chat_leave_in_order_even_if_the_first_is_delayed(store_url: str) -> None:
    """Promise 3."""
    platform = FakePlatform(faults=[BUSY])
    async with said_hello(store_url, platform) as world:
        await reply_to(world, "m1", "pending")
        second = platform.say("one", "second")
        await until_read(lambda: trace_of(world, second), lambda trace: trace["state"] == "done")
        assert platform.screen == []
        world.clock.advance(30)  # type: ignore[attr-defined]
        await platform.until(lambda: len(platform.texts("one")) == 2)
    assert platform.texts("one") == ["echo: hello", "echo: second"]


@pytest.mark.parametrize("surety", Surety)
async def test_nobody_waits_for_a_reply_that_was_ended_elsewhere(store_url: str, surety: Surety) -> None:
    """By an operator of another replica, say: the lane that sleeps for it looks again when there is more to send."""
    platform = FakePlatform(faults=[SendFault(TryLater("busy", 3600))], surety=surety)
    async with said_hello(store_url, platform, Settings(burst_s=0.0)) as world:
        await reply_to(world, "m1", "pending")
        await world.gateway.outbox.quiet()
        (reply,) = await world.store.read(replies, "pending", 0, 9)
        drop = Act(id="d", action="drop", target=str(reply["reply"]), actor="owner", at=world.clock.now(), number=1)
        assert isinstance(await world.store.run(act_on_reply, drop), Acted)
        platform.say("one", "second")
        await told(platform, "one", "echo: second")
        await reply_to(world, platform.say("one", "third"), "sent")
    assert platform.texts("one") == ["echo: second", "echo: third"]


async def test_a_slow_chat_does_not_hold_up_others(store_url: str) -> None:
    platform = Slow("slow")
    async with World(store_url, ScriptedAgent(), [platform]):
        platform.say("slow", "hello")
        await happened(platform.asked)
        platform.say("quick", "hello")
        await told(platform, "quick", "echo")
        assert platform.texts("slow") == []
        platform.go_on.set()
        await told(platform, "slow", "echo")


@pytest.mark.parametrize("surety", [Surety.KEYED, Surety.READ_BACK])
async def test_a_crash_between_send_and_commit_shows_the_reply_once(store_url: str, surety: Surety) -> None:
    platform = Slow("one", surety)
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        platform.say("one", "hello")
        await happened(platform.asked)
        platform.go_on.set()
        await die(world)
        await world.start()
        await told(platform, "one", "echo: hello")
        await reply_to(world, "m1", "sent")
        assert platform.texts("one") == ["echo: hello"]


async def test_a_reply_that_a_dead_process_could_not_send_is_sent_by_the_next(store_url: str) -> None:
    platform = FakePlatform(faults=[BUSY])
    async with said_hello(store_url, platform) as world:
        await reply_to(world, "m1", "pending")
        await restarted(world)
        world.clock.advance(30)  # type: ignore[attr-defined]
        await told(platform, "one", "echo: hello")


async def test_a_reply_to_a_platform_that_is_gone_waits_for_it(store_url: str) -> None:
    clock = ManualClock()
    platform, other = Slow("one"), FakePlatform("other")
    async with World(store_url, Actor(), [platform], clock) as world:
        platform.say("one", "hello")
        await happened(platform.asked)
        await die(world)
        async with World(store_url, Actor(), [other], clock) as without:
            await reply_to(without, "m1", "pending")
        platform.go_on.set()
        clock.advance(120)
        await world.start()
        await told(platform, "one", "answer: hello")


class LateStore:
    """A store that commits one operation late, the first of its kind: others look on other connections meanwhile."""

    def __init__(self, store: Store, late: Callable[..., Op[Any]]) -> None:
        self._store = store
        self._late_one = late
        self.called, self.go_on = asyncio.Event(), asyncio.Event()
        self.calls = 0
        self._late: list[asyncio.Task[object]] = []
        self.read, self.lock_instance, self.locks_settled = store.read, store.lock_instance, store.locks_settled
        self.alive, self.trouble, self.now = store.alive, store.trouble, store.now
        self.meters, self.close = store.meters, store.close

    def run(self, operation: Callable[..., Op[T]], *args: Any, **named: Any) -> asyncio.Future[T]:
        """Run and commit; the first of its kind later."""
        bound = partial(operation, *args, **named)
        self.calls += operation is self._late_one
        if operation is not self._late_one or self.called.is_set():
            return self._store.run(bound)
        self.called.set()
        late = asyncio.ensure_future(self._run_late(bound))
        self._late.append(late)
        outer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        late.add_done_callback(lambda done: None if outer.done() else outer.set_result(done.result()))
        return outer

    async def _run_late(self, operation: Callable[[], Op[T]]) -> T:
        await self.go_on.wait()
        return await self._store.run(operation)


def late(operation: Callable[..., Op[Any]]) -> tuple[list[LateStore], Callable[[str], Awaitable[Store]]]:
    """What opens a store that commits this operation late, and where that store is then."""
    opened: list[LateStore] = []

    async def open_late(url: str) -> Store:
        opened.append(LateStore(await open_store(url), operation))
        return opened[0]

    return opened, open_late


def sent_rows() -> Op[int]:
    """How many replies are recorded as sent."""
    return len((yield sql("SELECT id FROM outbox WHERE state='sent'")))


async def test_a_cancelled_lane_ends_when_what_it_recorded_is_committed(store_url: str) -> None:
    """Else the next lane finds the reply still being sent, and nobody looks for the one behind it."""
    platform, (opened, open_late) = FakePlatform(), late(record_sent)
    async with World(store_url, ScriptedAgent(), [platform], opened=open_late) as world:
        platform.say("one", "hello")
        await told(platform, "one", "echo: hello")
        (store,) = opened
        await happened(store.called)
        await reply_to(world, platform.say("one", "again"), "pending")
        (lane,) = (each for each in asyncio.all_tasks() if each.get_name().startswith("outbox "))
        lane.cancel()
        await world.store.read(sent_rows)  # time for a lane that does not wait to end, and for the next one
        assert not lane.done()
        store.go_on.set()
        await told(platform, "one", "echo: again")


async def test_a_stop_ends_a_lane_whose_claim_hangs(store_url: str) -> None:
    """The stop waits for it until its time is over, then the lane is cancelled again; it must not claim once more."""
    opened, open_late = late(claim_next)
    async with World(store_url, ScriptedAgent(), [FakePlatform()], ManualClock(), opened=open_late) as world:
        (store,) = opened
        world.gateway.outbox.wake("agent:main:fake:dm:one")
        await happened(store.called)
        (lane,) = (each for each in asyncio.all_tasks() if each.get_name().startswith("outbox "))
        await while_time_passes(world, world.gateway.stop(None))
        async with within():
            await asyncio.wait({lane})
        assert (lane.cancelled(), store.calls) == (True, 1)
        store.go_on.set()
