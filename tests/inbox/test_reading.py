"""Reading platforms: one loop retries, waits as long as it should, and says what is wrong until it is not."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from everturn.errors import OutcomeUnknown, TryLater
from everturn.model import Inbound
from everturn.platform.interface import Contact
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, World
from tests.scenes import told, while_time_passes

STEP_S = 0.5  # of the clock
AWAY = OutcomeUnknown("the platform is away")


class Unsteady(FakePlatform):
    """Fails with one error after the other, before or after it answered a read with nothing new; then it is well."""

    def __init__(self, *errors: Exception, answers: bool = False) -> None:
        super().__init__()
        self.contact = Contact()
        self.asked_at: list[float] = []
        self.clock = ManualClock()
        self._errors = list(errors)
        self._answers = answers

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:
        """The next error, if there is one left; what was said, if not."""
        self.asked_at.append(self.clock.now())
        error = self._errors.pop(0) if self._errors else None
        if self._answers:
            self.contact = self.contact.answered(self.clock.now())
        self._notify()
        if error is not None:
            raise error
        async for message in super().inbound(after):
            yield message


async def pauses(url: str, platform: Unsteady, count: int, step_s: float = STEP_S) -> list[float]:
    """How long the gateway said that it would wait before each of so many reads, and no less did it wait. It may be more: time
    passes while a database is asked.
    """
    with capture_logs() as logs:
        async with World(url, ScriptedAgent(), [platform], platform.clock) as world:
            await while_time_passes(world, platform.until(lambda: len(platform.asked_at) > count), step_s)
    said = [float(each["again_in_s"]) for each in logs if each["event"] == "platform not readable"][:count]
    waited = [after - before for before, after in pairwise(platform.asked_at)]
    assert all(pause - 0.1 <= real for pause, real in zip(said, waited, strict=False)), (said, waited)
    return said


@pytest.mark.parametrize(("asked_s", "waited_s"), [(300.0, 300.0), (86_400.0, 600.0)])
async def test_a_platform_is_not_read_sooner_than_it_asks_within_reason(
    store_url: str, asked_s: float, waited_s: float
) -> None:
    (pause,) = await pauses(store_url, Unsteady(TryLater("too many requests", asked_s)), 1, step_s=10.0)
    assert waited_s <= pause <= waited_s + 2


async def test_pauses_grow_to_a_minute(store_url: str) -> None:
    for number, pause in enumerate(await pauses(store_url, Unsteady(*[AWAY] * 9), 8, step_s=1.0)):
        assert min(60, 2**number) / 2 <= pause <= min(60, 2**number)


async def test_a_trouble_is_shown_until_it_is_over(store_url: str) -> None:
    """Promise 13."""
    platform = Unsteady(*[AWAY] * 4)
    async with World(store_url, ScriptedAgent(), [platform], platform.clock) as world:
        contacts = world.gateway.contacts
        await while_time_passes(world, platform.until(lambda: len(platform.asked_at) > 2))
        assert [each["trouble"] for each in contacts.listed()] == [str(AWAY)]
        platform.say("one", "hello")
        await while_time_passes(world, told(platform, "one", "echo: hello"), step_s=10.0)
        assert [each["trouble"] for each in contacts.listed()] == [None]


async def test_single_failures_between_reads_that_work_do_not_add_up(store_url: str) -> None:
    """Nothing is said in between: it is the answered read that counts, and that ends the trouble."""
    assert max(await pauses(store_url, Unsteady(*[AWAY] * 6, answers=True), 6)) <= 1
    platform = Unsteady(AWAY, answers=True)
    async with World(store_url, ScriptedAgent(), [platform], platform.clock) as world:
        await while_time_passes(world, platform.until(lambda: len(platform.asked_at) > 1))
        (seen,) = world.gateway.contacts.listed()
        assert (seen["state"], seen["trouble"], seen["since"]) == ("reading", None, None)


async def test_a_fault_of_the_adapter_itself_is_met_less_and_less_often(store_url: str) -> None:
    """The platform answers each time; what is made of the answer fails."""
    assert (await pauses(store_url, Unsteady(*[KeyError("result")] * 5, answers=True), 5))[-1] >= 8
