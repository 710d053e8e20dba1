"""Text that was streamed, and an answer that says nothing in the end: none of it is left as if more came."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from everturn.errors import OutcomeUnknown, Refused
from everturn.model import SessionSource
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Surety
from everturn.testing import CardPlatform, DeletingPlatform, EditingPlatform, ManualClock, World
from tests.outbox.test_streaming import CURSOR, EAGER, Talker, cut_off, seen
from tests.scenes import die, happened, trace_of, until_ended, until_read, while_time_passes


@pytest.mark.parametrize(
    ("kind", "left"), [(DeletingPlatform, []), (EditingPlatform, [outbox_texts.NOTHING_SAID]), (CardPlatform, [outbox_texts.NOTHING_SAID])]
)  # fmt: skip
async def test_text_that_became_silence_is_removed(
    store_url: str, kind: type[EditingPlatform], left: list[str]
) -> None:
    platform, agent = kind(), Talker()
    async with await cut_off(store_url, platform, agent):
        agent.answer = "(silent)"
        agent.go()
        await seen(platform, *left)


class Cut:
    """A platform that shows the first text it is sent, and whose response never comes."""

    cut = True

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Shown, and nothing said."""
        cut, self.cut = self.cut, False
        number = await super().send(to, text, key)  # type: ignore[misc]
        if cut:
            await asyncio.Event().wait()
        return str(number)


class CutEditing(Cut, EditingPlatform):
    """What it shows can be edited."""


class CutDeleting(Cut, DeletingPlatform):
    """What it shows can be deleted."""


LEFT = f"one two{CURSOR}", f"{outbox_texts.REPLACES}\n\n{outbox_texts.NOTHING_SAID}"


@pytest.mark.parametrize(
    ("kind", "surety", "left"),
    [
        (CutEditing, Surety.KEYED, [outbox_texts.NOTHING_SAID]),
        (CutEditing, Surety.READ_BACK, [outbox_texts.NOTHING_SAID]),
        (CutEditing, Surety.NEITHER, LEFT),
        (CutDeleting, Surety.KEYED, []),
        (CutDeleting, Surety.READ_BACK, []),
        (CutDeleting, Surety.NEITHER, LEFT),
    ],
)
async def test_text_with_unknown_delivery_that_became_silence_is_not_left_as_if_more_came(
    store_url: str, kind: type[CutEditing], surety: Surety, left: Sequence[str]
) -> None:
    """A crash between showing the first text and knowing it, and a next process that says nothing."""
    platform, agent = kind(surety=surety), Talker()
    world = World(store_url, agent, [platform], settings=EAGER)
    await world.start()
    message = platform.say("one", "hello")
    agent.go(2)
    await seen(platform, f"one two{CURSOR}")
    await die(world)
    async with world:
        agent.answer = "(silent)"
        agent.go()
        await until_ended(world, message, "done")
        await seen(platform, *left)
        await world.gateway.outbox.quiet()
    assert platform.texts("one") == list(left)


async def replied(world: World, message: str) -> None:
    """Wait until its reply is delivered."""
    await until_read(lambda: trace_of(world, message), lambda trace: trace["replies"][0]["state"] == "sent")


class Aging(EditingPlatform):
    """Once it is `old`, it refuses to edit what was sent before, and the response to the next message is lost."""

    old = frozenset[str]()

    def age(self) -> None:
        """Everything sent so far is too old to be edited."""
        self.old = frozenset(shown.id for shown in self.screen)
        self.lost = asyncio.Event()

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Edit what is not too old."""
        if message_id in self.old:
            raise Refused("too old to be edited")
        await super().edit(to, message_id, text)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Show it, and say nothing about the first one."""
        number = await super().send(to, text, key)
        if self.old and not self.lost.is_set():
            self.lost.set()
            raise OutcomeUnknown("no response")
        return number


@pytest.mark.parametrize("surety", Surety)
async def test_a_replacement_with_unknown_delivery_that_became_silence_is_not_left_as_if_more_came(
    store_url: str, surety: Surety
) -> None:
    """What was shown cannot be edited, what replaces it may be out, and then there is nothing to say."""
    platform, agent = Aging(surety=surety), Talker()
    await cut_off(store_url, platform, agent)
    platform.age()
    shown = platform.texts("one")
    # Its next try to show that the task was interrupted is not due, before the next attempt ends.
    async with World(store_url, agent, [platform], ManualClock(time.time()), EAGER) as world:
        await happened(platform.lost)
        agent.answer = "(silent)"
        agent.go()
        await until_ended(world, "m1", "done")
        await while_time_passes(world, replied(world, "m1"))
    unknown = platform.texts("one")[len(shown) : -1]
    assert len(unknown) == (surety is Surety.NEITHER)
    assert platform.texts("one") == [*shown, *unknown, f"{outbox_texts.REPLACES}\n\n{outbox_texts.NOTHING_SAID}"]
