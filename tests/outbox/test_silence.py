"""Text that was streamed, and an answer that says nothing in the end: none of it is left as if more came."""

import asyncio
from collections.abc import Sequence

import pytest

from everturn.model import SessionSource
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Surety
from everturn.testing import CardPlatform, DeletingPlatform, EditingPlatform, World
from tests.outbox.test_streaming import CURSOR, EAGER, Talker, cut_off, seen
from tests.scenes import die, until_ended


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
