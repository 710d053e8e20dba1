"""The backlog after the gateway was disconnected, by policy; and messages that are edited while they are queued."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from everturn.errors import Full
from everturn.inbox.rules import BacklogRule
from everturn.lifecycle.settings import Settings
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.operator.rows.reading import explain
from everturn.people.rules.access import AccessPolicy, Admission
from everturn.platform.interface import Choice, Contact
from everturn.testing import FakePlatform, ManualClock, World
from tests.contracts.store import select
from tests.scenes import Actor, answer_to, die, restarted, told, until_ended, while_time_passes
from tests.turns.test_approvals import Asker
from tests.waiting import poll

HOUR = 3600.0
IN_THE_WAY = (
    "INSERT INTO outbox (id, key, kind, platform, source, text, state, due_at, created_at, ended_at)"
    " VALUES (1, 'k', 'notice', 'fake', '{}', '', 'sent', 1, 1, 1)"
)


def settings(policy: str, age_s: float = 0.0) -> Settings:
    return Settings(burst_s=0.0, busy="queue", backlog={"fake": BacklogRule(policy=policy, age_s=age_s)})


def said(clock: ManualClock, number: str, text: str, ago: float = HOUR) -> Inbound:
    source = SessionSource(platform="fake", chat_id="one", user_id="ann", message_id=number)
    return Inbound(id=f"{number}@one", source=source, text=text, said_at=clock.now() - ago)


async def pile_up(world: World, clock: ManualClock, *texts: str) -> None:
    for number, text in enumerate(texts, 1):
        await world.accept(said(clock, f"m{number}", text))


async def states(world: World, *numbers: str) -> list[str]:
    return [(await world.store.read(explain, number))[0]["state"] for number in numbers]  # type: ignore[misc]


async def test_only_the_newest_is_answered_with_one_notice(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("newest")) as world:
        await pile_up(world, clock, "one", "two", "three")
        await while_time_passes(world, told(platform, "one", answer_to("three")))
        assert await states(world, "m1", "m2", "m3") == ["expired", "expired", "done"]
        await world.accept(said(clock, "m4", "now", ago=0))
        await told(platform, "one", answer_to("now"))
    assert [each.text for each in actor.attempts] == ["three", "now"]
    assert sum("only your newest" in text for text in platform.texts("one")) == 1


class Deaf(FakePlatform):
    """It tells how it is read."""

    contact = Contact()


async def test_messages_of_an_outage_of_this_process_are_a_backlog_as_well(store_url: str) -> None:
    """The network was gone, or the machine slept: to those who wrote it is all the same; each outage causes one notice."""
    platform, actor, clock = Deaf(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("newest")) as world:
        for silence, (left, answered) in enumerate([("one", "two"), ("three", "four")], 1):
            clock.advance(HOUR)
            platform.contact = platform.contact.answered(clock.now())
            await world.accept(said(clock, f"{silence}a", left, ago=HOUR / 2))
            await world.accept(said(clock, f"{silence}b", answered, ago=HOUR / 4))
            await while_time_passes(world, told(platform, "one", answer_to(answered)))
            assert sum("only your newest" in text for text in platform.texts("one")) == silence
        await world.accept(said(clock, "now", "now", ago=0))
        await told(platform, "one", answer_to("now"))
    assert [each.text for each in actor.attempts] == ["two", "four", "now"]


async def test_all_of_a_conversation_begin_one_turn_also_after_a_death(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    world = World(store_url, actor, [platform], clock, settings("digest"))
    await world.start()
    await pile_up(world, clock, "one", "two")
    await die(world)
    async with world:
        await while_time_passes(world, told(platform, "one", "answer"))
    assert [each.text.split() for each in actor.attempts] == [["one", "two"]]


@pytest.mark.parametrize(
    ("command", "ends", "heard"),
    [
        ("/answer", ["done", "done"], ["one", "two"]),
        ("/answer newest", ["withdrawn", "done"], ["two"]),
        ("/skip", ["withdrawn", "withdrawn"], []),
    ],
)
async def test_their_sender_is_asked_first(
    tmp_path_factory: pytest.TempPathFactory, command: str, ends: list[str], heard: list[str]
) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    url = f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}"
    async with World(url, actor, [platform], clock, settings("ask")) as world:
        await pile_up(world, clock, "one", "two")
        question = await while_time_passes(world, told(platform, "one", "/answer newest or /skip"))
        assert question.startswith("2 messages came")
        await world.accept(said(clock, "m3", "live", ago=0))
        await told(platform, "one", answer_to("live"))
        await world.accept(said(clock, "m4", command, ago=0))
        for number, end in zip(("m1", "m2"), ends, strict=True):
            await until_ended(world, number, end)
    assert [each.text for each in actor.attempts] == ["live", *heard]


async def send_album(world: World, clock: ManualClock) -> None:
    for number, text in (("a1", "look"), ("a2", ""), ("a3", "")):
        file = Attachment(kind="image", ref=number, name=f"{number}.jpg")
        await world.accept(structs.replace(said(clock, number, text), attachments=(file,), album="A"))


async def test_an_album_is_one_message_and_not_torn_apart(store_url: str) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, actor, [platform], clock, settings("newest")) as world:
        await pile_up(world, clock, "before")
        await send_album(world, clock)
        await while_time_passes(world, told(platform, "one", "answer: look"))
        assert await states(world, "m1", "a1", "a2", "a3") == ["expired", "done", "done", "done"]


async def test_an_album_is_asked_about_as_one_message(tmp_path: Path) -> None:
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", actor, [platform], clock, settings("ask")) as world:
        await pile_up(world, clock, "before")
        await send_album(world, clock)
        await while_time_passes(world, told(platform, "one", "2 messages came"))
        await world.accept(said(clock, "m2", "/answer newest", ago=0))
        await while_time_passes(world, told(platform, "one", "answer: look"))
        assert await states(world, "m1", "a1", "a2", "a3") == ["withdrawn", "done", "done", "done"]


async def test_a_backlog_behind_an_approval_request_waits_where_messages_wait(store_url: str) -> None:
    """Old messages do not refuse a call that they would not refuse if they were new."""
    platform, agent, clock = FakePlatform(), Asker(), ManualClock()
    async with World(store_url, agent, [platform], clock, settings("newest")) as world:
        await world.accept(said(clock, "m1", "shell", ago=0))
        await told(platform, "one", "May I use shell?")
        clock.advance(HOUR)
        await restarted(world)
        await world.accept(said(clock, "m2", "mail", ago=HOUR / 2))
        await while_time_passes(world, told(platform, "one", "Your message is queued"))
        assert agent.used == []
        assert await states(world, "m1", "m2") == ["claimed", "queued"]


async def test_a_backlog_request_expires(tmp_path_factory: pytest.TempPathFactory) -> None:
    platform, clock = FakePlatform(), ManualClock()
    url = f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}"
    alone = replace(settings("ask", 2 * HOUR), upkeep_every_s=1000 * HOUR)  # nobody else looks meanwhile
    async with World(url, Actor(), [platform], clock, alone) as world:
        await pile_up(world, clock, "one")
        await while_time_passes(world, told(platform, "one", "A message came"))
        assert await world.gateway.backlogs.expire_once() == 0
        clock.advance(2 * HOUR)
        assert await world.gateway.backlogs.expire_once() == 1
        assert await states(world, "m1") == ["expired"]
        await told(platform, "one", "You did not say whether I shall answer the message")


async def test_a_backlog_is_answered_as_a_whole_though_it_is_more_than_may_be_queued(store_url: str) -> None:
    """It comes in one go, and nobody could have asked its author to wait."""
    platform, actor, clock = FakePlatform(), Actor(), ManualClock()
    few = replace(settings("all"), queue_per_session=2, burst_s=0.0)
    async with World(store_url, actor, [platform], clock, few) as world:
        await world.accept(said(clock, "m0", "hold"))
        for number in range(1, 6):
            await world.accept(said(clock, f"m{number}", f"old {number}"))
        with pytest.raises(Full):
            await world.accept(said(clock, "m6", "new", ago=0))
        actor.release()
        await platform.until(lambda: answer_to("old 5") in platform.texts("one"))


async def test_what_is_too_old_expires_with_one_notice(store_url: str) -> None:
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
    assert [each.text for each in actor.attempts] == ["hold", "hello"]


def change(inbound: Inbound, what: Heard, of: str) -> Inbound:
    fields = {name: getattr(inbound, name) for name in inbound.__struct_fields__}
    return Inbound(**(fields | {"what": what, "of": of}))


class Buttoned(FakePlatform):
    """Shows buttons beneath requests. A press arrives as the command, from the person who pressed."""

    def __init__(self) -> None:
        super().__init__()
        self.buttons: dict[str, str] = {}

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """Show them."""
        self.buttons = {each.label: each.command for each in choices}
        return await self.send(to, text, key)


async def press(world: World, platform: Buttoned, label: str, who: str) -> None:
    source = SessionSource(platform="fake", chat_id="one", user_id=who)
    await world.gateway.intake.accept(Inbound(id=f"press-{label}-{who}", source=source, text=platform.buttons[label]))


async def test_the_backlog_request_has_buttons_and_only_people_with_access_can_press_them(tmp_path: Path) -> None:
    platform, actor, clock = Buttoned(), Actor(), ManualClock()
    allowed = replace(settings("ask"), admission=Admission(policies={"fake": AccessPolicy(allow=("ann",))}))
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", actor, [platform], clock, allowed) as world:
        await pile_up(world, clock, "one", "two", "three")
        await while_time_passes(world, told(platform, "one", "3 messages came"))
        assert list(platform.buttons) == ["Answer all", "Only the newest", "Answer none"]
        await press(world, platform, "Answer none", "eve")
        assert await states(world, "m1", "m3") == ["queued", "queued"]
        await press(world, platform, "Only the newest", "ann")
        await told(platform, "one", answer_to("three"))
        assert await states(world, "m1", "m2", "m3") == ["withdrawn", "withdrawn", "done"]
        await press(world, platform, "Answer all", "ann")  # too late
        await told(platform, "one", "No message from while I was disconnected is open.")
    assert [each.text for each in actor.attempts] == ["three"]


async def test_a_backlog_is_settled_though_an_operation_failed_first(store_url: str) -> None:
    """That is no closing store: it is logged, and the conversation is not forgotten until a restart."""
    platform, clock = FakePlatform(), ManualClock()
    async with World(store_url, Actor(), [platform], clock, settings("ask")) as world:
        for planted in (IN_THE_WAY, "CREATE UNIQUE INDEX in_the_way ON outbox (platform)"):
            await world.store.run(select, planted)
        await pile_up(world, clock, "one", "two")
        with capture_logs() as logs:
            await while_time_passes(
                world, poll(lambda: any(each["event"] == "backlog not settled" for each in logs), seen=lambda: logs)
            )
        await world.store.run(select, "DROP INDEX in_the_way")
        await while_time_passes(world, told(platform, "one", "/answer newest or /skip"))
