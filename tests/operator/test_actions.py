"""An operator's actions in a running gateway: the loops are woken at once; and what a start records of the instance before."""

from pathlib import Path

from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.lifecycle.settings import Settings
from everturn.operator.rows.actions import Acted
from everturn.operator.rows.overview import accounts, recoveries, replies
from everturn.outbox.rules.delivery import MAY_REPEAT, Surety
from everturn.testing import FakePlatform, ScriptedAgent, SendFault, World
from tests.scenes import Actor, die, until_read


async def listed(world: World, state: str) -> list[str]:
    """The replies in a state, waited for: they are stored after the platform was called."""
    found = await until_read(lambda: world.store.read(replies, state, 0, 9), bool)
    return [str(each["reply"]) for each in found]


async def act(world: World, action: str, reply: str) -> None:
    done = await world.gateway.operator.act("reply", action, reply, f"{action} {reply}", "owner")
    assert isinstance(done, Acted)


async def test_a_dead_letter_leaves_at_once_when_it_is_sent_again(store_url: str) -> None:
    platform = FakePlatform(faults=[SendFault(Refused("blocked"))])
    async with World(store_url, ScriptedAgent([]), [platform]) as world:
        platform.say("one", "hello")
        (reply,) = await listed(world, "dead")
        await act(world, "send", reply)
        await platform.until(lambda: len(platform.texts("one")) == 1)
        await until_read(lambda: world.store.read(accounts), lambda known: known.get(("fake", ""), {}).get("sent_at"))


async def test_a_reply_that_sleeps_until_later_is_woken(tmp_path: Path) -> None:
    platform = FakePlatform(faults=[SendFault(TryLater("busy", 3600))])
    async with World(f"sqlite:///{tmp_path}/e.db", ScriptedAgent([]), [platform]) as world:
        platform.say("one", "hello")
        await platform.until(lambda: platform.calls > 0)  # what is being sent is pending, too
        await world.gateway.outbox.quiet()
        (reply,) = await listed(world, "pending")
        await act(world, "send", reply)
        await platform.until(lambda: len(platform.texts("one")) == 1)


async def test_a_reply_of_unknown_delivery_is_sent_again_with_its_mark(tmp_path: Path) -> None:
    platform = FakePlatform(surety=Surety.NEITHER, faults=[SendFault(OutcomeUnknown("lost"), accepted=True)])
    settings = Settings(on_unknown_delivery="ask")
    async with World(f"sqlite:///{tmp_path}/e.db", ScriptedAgent([]), [platform], settings=settings) as world:
        platform.say("one", "hello")
        (reply,) = await listed(world, "unknown")
        await platform.until(lambda: len(platform.texts("one")) == 2)  # the chat was asked
        await act(world, "send", reply)
        await platform.until(lambda: len(platform.texts("one")) == 3)
    assert [MAY_REPEAT in text for text in platform.texts("one") if "/resend" not in text] == [False, True]


async def test_a_start_records_how_the_last_instance_ended(store_url: str) -> None:
    platform, actor = FakePlatform(), Actor()
    first = World(store_url, actor, [platform])
    await first.start()
    platform.say("one", "hold")
    await actor.held("hold")
    await die(first)
    async with World(store_url, actor, [platform]) as world:
        (told,) = await world.store.read(recoveries)
        assert (told["previous_exit"], told["continued"], told["by"]) == ("unclean", 1, 2)
        assert isinstance(told["back_after_s"], float)
        actor.release()
        await platform.until(lambda: len(platform.texts("one")) == 1)
