"""Words that grew on the screen, and an answer that says nothing in the end: none of them is left as if more came."""

import asyncio
from collections.abc import Sequence

import pytest

from everturn.decide import bubble_words
from everturn.decide.delivery import Surety
from everturn.model import SessionSource
from everturn.testing import CardPlatform, DeletingPlatform, EditingPlatform, World
from tests.gateway.scenes import die, until_ended
from tests.gateway.test_streaming import CURSOR, EAGER, Talker, cut_off, seen


@pytest.mark.parametrize(
    ("kind", "left"), [(DeletingPlatform, []), (EditingPlatform, [bubble_words.NOTHING_SAID]), (CardPlatform, [bubble_words.NOTHING_SAID])]
)  # fmt: skip
async def test_words_that_became_silence_are_taken_away(
    store_url: str, kind: type[EditingPlatform], left: list[str]
) -> None:
    platform, agent = kind(), Talker()
    async with await cut_off(store_url, platform, agent):
        agent.answer = "(silent)"
        agent.go()
        await seen(platform, *left)


class Cut:
    """A platform that shows the first words it is sent, and whose answer never comes."""

    cut = True

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Shown, and nothing said."""
        cut, self.cut = self.cut, False
        number = await super().send(to, text, key)  # type: ignore[misc]
        if cut:
            await asyncio.Event().wait()
        return str(number)


class CutEditing(Cut, EditingPlatform):
    """What it shows can be changed."""


class CutDeleting(Cut, DeletingPlatform):
    """What it shows can be taken away."""


LEFT = f"one two{CURSOR}", f"{bubble_words.REPLACES}\n\n{bubble_words.NOTHING_SAID}"


@pytest.mark.parametrize(
    ("kind", "surety", "left"),
    [
        (CutEditing, Surety.KEYED, [bubble_words.NOTHING_SAID]),
        (CutEditing, Surety.READ_BACK, [bubble_words.NOTHING_SAID]),
        (CutEditing, Surety.NEITHER, LEFT),
        (CutDeleting, Surety.KEYED, []),
        (CutDeleting, Surety.READ_BACK, []),
        (CutDeleting, Surety.NEITHER, LEFT),
    ],
)
async def test_words_in_doubt_that_became_silence_are_not_left_as_if_more_came(
    store_url: str, kind: type[CutEditing], surety: Surety, left: Sequence[str]
) -> None:
    """A death between showing the first words and knowing it, and a next life that says nothing."""
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
