"""What piled up while the gateway was away, by policy; and messages that are edited while they wait."""

import pytest

from everturn.decide.backlog import Backlog
from everturn.gateway.parts import Settings
from everturn.model import Heard, Inbound, SessionSource
from everturn.store.operations.reading import explain
from everturn.testing import FakePlatform, ManualClock, World
from tests.gateway.scenes import Actor, answer_to, die, told, until_ended, while_time_passes

HOUR = 3600.0


def settings(policy: str, age_s: float = 0.0) -> Settings:
    return Settings(burst_s=0.0, busy="queue", backlog={"fake": Backlog(policy=policy, age_s=age_s)})


def said(clock: ManualClock, number: str, text: str, ago: float = HOUR) -> Inbound:
    source = SessionSource(platform="fake", chat_id="one", user_id="ann", message_id=number)
    return Inbound(id=f"{number}@one", source=source, text=text, said_at=clock.now() - ago)


async def pile_up(world: World, clock: ManualClock, *texts: str) -> None:
    for number, text in enumerate(texts, 1):
        await world.accept(said(clock, f"m{number}", text))


async def states(world: World, *numbers: str) -> list[str]:
    return [(await world.store.read(explain, number))[0]["state"] for number in numbers]  # type: ignore[misc]


async def test_only_the_newest_is_answered_and_that_is_told_once(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("newest")) as world:
        await pile_up(world, clock, "one", "two", "three")
        await while_time_passes(world, told(platform, "one", answer_to("three")))
        assert await states(world, "m1", "m2", "m3") == ["expired", "expired", "done"]
        await world.accept(said(clock, "m4", "now", ago=0))
        await told(platform, "one", answer_to("now"))
    assert [each.words for each in actor.attempts] == ["three", "now"]
    assert sum("only your newest" in text for text in platform.texts("one")) == 1


async def test_all_of_a_conversation_begin_one_turn_also_after_a_death(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    world = World(store_url, actor, [platform], clock, settings("digest"))
    await world.start()
    await pile_up(world, clock, "one", "two")
    await die(world)
    async with world:
        await while_time_passes(world, told(platform, "one", "answer"))
    assert [each.words.split() for each in actor.attempts] == [["one", "two"]]


@pytest.mark.parametrize(
    ("command", "ends", "heard"), [("/answer", "done", ["one", "two"]), ("/skip", "withdrawn", [])]
)
async def test_their_sender_is_asked_first(
    tmp_path_factory: pytest.TempPathFactory, command: str, ends: str, heard: list[str]
) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    url = f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}"
    async with World(url, actor, [platform], clock, settings("ask")) as world:
        await pile_up(world, clock, "one", "two")
        question = await while_time_passes(world, told(platform, "one", "/answer or /skip"))
        assert question.startswith("2 messages came")
        await world.accept(said(clock, "m3", "live", ago=0))
        await told(platform, "one", answer_to("live"))
        await world.accept(said(clock, "m4", command, ago=0))
        await until_ended(world, "m1", ends)
        await until_ended(world, "m2", ends)
    assert [each.words for each in actor.attempts] == ["live", *heard]


async def test_a_question_about_them_is_not_open_for_ever(tmp_path_factory: pytest.TempPathFactory) -> None:
    platform, clock = FakePlatform(), ManualClock()
    url = f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}"
    async with World(url, Actor(), [platform], clock, settings("ask", 2 * HOUR)) as world:
        await pile_up(world, clock, "one")
        await while_time_passes(world, told(platform, "one", "A message came"))
        assert await world.gateway.backlogs.expire_once() == 0
        clock.advance(2 * HOUR)
        assert await world.gateway.backlogs.expire_once() == 1
        assert await states(world, "m1") == ["expired"]


async def test_what_is_too_old_expires_visibly_and_is_told_once(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("all", HOUR)) as world:
        for number in ("m1", "m2", "m1"):
            await world.accept(said(clock, number, "old", ago=HOUR + 1))
        await world.accept(said(clock, "m3", "young"))
        await told(platform, "one", answer_to("young"))
        assert await states(world, "m1", "m2", "m3") == ["expired", "expired", "done"]
    assert sum("too old" in text for text in platform.texts("one")) == 1


async def test_a_message_edited_while_it_waits_is_answered_as_it_is_then(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("all")) as world:
        await world.accept(said(clock, "m1", "hold"))
        await actor.held("hold")
        await world.accept(said(clock, "m2", "helo"))
        await world.accept(said(clock, "m3", "never mind"))
        await world.accept(change(said(clock, "e1", "hello"), Heard.EDITED, "m2@one"))
        await world.accept(change(said(clock, "d1", ""), Heard.DELETED, "m3@one"))
        actor.release()
        await told(platform, "one", answer_to("hello"))
        assert await states(world, "m1", "m2", "m3") == ["done", "done", "withdrawn"]
    assert [each.words for each in actor.attempts] == ["hold", "hello"]


def change(inbound: Inbound, what: Heard, of: str) -> Inbound:
    fields = {name: getattr(inbound, name) for name in inbound.__struct_fields__}
    return Inbound(**(fields | {"what": what, "of": of}))
