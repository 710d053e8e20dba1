"""Accepting messages: commit, then acknowledge; once each; in order; within limits that people see."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.errors import Conflict, Full, TooLong, TryLater
from everturn.inbox.rows.inbox import AcceptOutcome, read_cursor
from everturn.lifecycle.settings import Settings
from everturn.model import Attachment, Heard, Inbound, ReadTo, SessionSource
from everturn.operator.rows.reading import explain
from everturn.sessions.rules.keys import INDEXED_BYTES, session_key
from everturn.telemetry.spans import Span
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, SendFault, World
from tests.scenes import (
    Actor,
    answer_to,
    ask,
    happened,
    restarted,
    session_of,
    told,
    trace_of,
    until_ended,
    while_time_passes,
)
from tests.waiting import within


class Watchful(FakePlatform):
    """Looks into the database whenever it is acknowledged."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:
        """Being asked for the next one acknowledges the last."""
        async for message in super().inbound(after):
            yield message
            self.found.append(len(await self.world.store.read(explain, message.id)))


def inbound(number: str, text: str, chat: str = "one") -> Inbound:
    source = SessionSource(platform="fake", chat_id=chat, user_id="ann", message_id=number)
    return Inbound(id=f"{number}@{chat}", source=source, text=text)


async def test_a_message_is_acknowledged_only_after_its_commit(store_url: str) -> None:
    """Promise 1."""
    platform = Watchful()
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        platform.world = world
        for text in ("one", "two", "three", "four"):
            platform.say(text, text)
        await platform.until(lambda: len(platform.screen) == 4)
    assert platform.found[:3] == [1, 1, 1]


async def test_what_a_platform_delivers_twice_is_answered_once(store_url: str) -> None:
    """Promise 2."""
    platform = FakePlatform(repeat=2)
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        first = platform.say("one", "hello")
        await ask_again(platform)
        assert (await trace_of(world, first))["state"] == "done"
    assert platform.texts("one") == ["echo: hello", "echo: last"]


async def ask_again(platform: FakePlatform) -> None:
    platform.say("one", "last")
    await platform.until(lambda: "echo: last" in platform.texts("one"))


async def test_how_far_a_platform_is_read_moves_also_with_a_chat_that_moved(store_url: str) -> None:
    async with World(store_url, ScriptedAgent(), [FakePlatform()]) as world:
        await world.accept(replace(inbound("m1", "", "new"), what=Heard.MOVED, of="old", cursor="s2"))
        assert await world.store.read(read_cursor, "fake", "") == "s2"


async def test_a_message_delivered_again_after_a_restart_is_recognised(store_url: str) -> None:
    """Promise 2: an index guards it, not a cache."""
    async with World(store_url, ScriptedAgent(), [FakePlatform()]) as world:
        accepted = [await world.gateway.intake.accept(inbound("m1", "hello"))]
        await restarted(world)
        accepted.append(await world.gateway.intake.accept(inbound("m1", "hello")))
    assert [each.outcome for each in accepted] == [AcceptOutcome.ACCEPTED, AcceptOutcome.DUPLICATE]


async def test_the_same_id_with_another_text_is_a_conflict(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        await world.accept(inbound("m1", "hello"))
        with pytest.raises(Conflict, match="m1"):
            await world.accept(inbound("m1", "good bye"))
        await platform.until(lambda: bool(platform.screen))
    assert platform.texts("one") == ["echo: hello"]


async def test_a_message_that_is_too_long_is_a_dead_letter_with_a_notice(store_url: str) -> None:
    """Promise 12, on a platform that cannot be refused."""
    platform = FakePlatform(repeat=2)
    async with World(store_url, ScriptedAgent(), [platform], settings=Settings(message_chars=10)) as world:
        long = platform.say("one", "x" * 11)
        await told(platform, "one", "the limit is 10 characters")
        await ask_again(platform)
        assert {name: (await trace_of(world, long))[name] for name in ("state", "why")} == {
            "state": "dead",
            "why": "too_long",
        }
    assert len(platform.texts("one")) == 2


async def test_a_request_that_is_too_long_is_refused_and_leaves_nothing(store_url: str) -> None:
    async with World(store_url, ScriptedAgent(), [FakePlatform()], settings=Settings(message_chars=10)) as world:
        with pytest.raises(TooLong, match="10 characters"):
            await world.accept(inbound("m1", "x" * 11))
        assert await world.store.read(explain, "m1") == []


async def test_the_sender_gets_a_notice_when_the_queue_is_full(store_url: str) -> None:
    """Promise 12: the message is a dead letter, those before it are answered."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(queue_per_session=2, burst_s=0.0)) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        ids = [platform.say("one", f"message {number}") for number in range(3)]
        await told(platform, "one", "2 messages are already queued")
        agent.release()
        await platform.until(lambda: answer_to("message 1") in platform.texts("one"))
        last = await trace_of(world, ids[2])
    assert (last["state"], last["why"]) == ("dead", "queue_full")
    assert platform.texts("one")[1:] == [answer_to(text) for text in ("hold", "message 0", "message 1")]


async def test_a_flood_of_messages_that_find_no_room_is_answered_with_one_notice(store_url: str) -> None:
    """As long as the notice is on its way: a platform that counts our messages must not be flooded back."""
    clock, platform, agent = ManualClock(), FakePlatform(faults=[SendFault(TryLater("flood", 60.0))]), Actor()
    few = Settings(queue_per_session=1, burst_s=0.0)
    async with World(store_url, agent, [platform], clock, few) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        ids = [platform.say("one", f"message {number}") for number in range(10)]
        await platform.until(lambda: platform.acknowledged == 11)  # later there would be room again
        assert (await until_ended(world, ids[9], "dead"))["why"] == "queue_full"
        agent.release()
        await while_time_passes(world, told(platform, "one", answer_to("message 0")))
    assert sum("already queued" in text for text in platform.texts("one")) == 1


async def test_a_request_to_a_full_queue_is_refused_with_a_time_to_come_back(store_url: str) -> None:
    agent = Actor()
    async with World(store_url, agent, [FakePlatform()], settings=Settings(queue_per_session=1)) as world:
        await world.accept(inbound("m1", "hold"))
        await world.accept(inbound("m2", "waits"))
        with pytest.raises(Full) as refused:
            await world.accept(inbound("m3", "one too many"))
        assert (await world.gateway.intake.accept(inbound("m2", "waits"))).outcome is AcceptOutcome.DUPLICATE
        agent.release()
    assert refused.value.retry_after_s > 0


async def test_a_command_is_taken_even_when_the_queue_is_full(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(queue_per_session=1)):
        for text in ("hold", "waits", "/stop"):
            platform.say("one", text)
        await told(platform, "one", "Stopped")
        await platform.until(lambda: answer_to("waits") in platform.texts("one"))


async def test_a_busy_lane_waits_and_keeps_its_order(store_url: str) -> None:
    """Promise 3."""
    platform, agent = FakePlatform(), Actor()
    texts = ["hold", *(f"message {number}" for number in range(6))]
    async with World(store_url, agent, [platform]):
        for text in texts:
            platform.say("one", text)
        await agent.held("hold")
        agent.release()
        await platform.until(lambda: len(platform.texts("one")) == len(texts))
    assert platform.texts("one") == [answer_to(text) for text in texts]
    assert agent.overlaps == []


async def test_many_requests_at_once_are_each_answered_once(store_url: str) -> None:
    """Promise 2, when duplicates and new messages of one lane are on their way at the same moment."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        for number in range(40):
            new, old = inbound(f"m{number}", f"message {number}"), inbound(f"m{number - 1}", f"message {number - 1}")
            await asyncio.gather(*(world.accept(each) for each in ([old] * (number > 0) + [new, new])))
            await platform.until(lambda: answer_to(new.text) in platform.texts("one"))  # noqa: B023  waited for here
    assert platform.texts("one") == [answer_to(f"message {number}") for number in range(40)]
    assert agent.overlaps == []


async def test_two_people_writing_at_once_in_a_group_share_no_session(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        for user in ("ann", "bob"):
            platform.say("group", f"I am {user}", user_id=user, chat_type="group", thread_id="")
        await platform.until(lambda: len(platform.texts("group")) == 2)
    assert len({each.session_id for each in agent.attempts}) == 2
    assert [each.earlier for each in agent.attempts] == [0, 0]


async def test_messages_of_a_thread_are_answered_there(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform]):
        for thread in ("t1", "t2"):
            platform.say("group", thread, chat_type="group", thread_id=thread)
        await platform.until(lambda: len(platform.screen) == 2)
    assert sorted(platform.texts("group")) == ["echo: t1", "echo: t2"]


async def test_concurrent_first_messages_create_one_session_and_none_is_lost(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await asyncio.gather(*(world.accept(inbound(f"m{number}", f"{number}")) for number in range(5)))
        await platform.until(lambda: len(platform.texts("one")) == 5)
        assert {each.session_id for each in agent.attempts} == {await session_of(world, platform, "one")}


async def test_what_a_database_cannot_store_is_no_reason_to_fail(store_url: str) -> None:
    """A zero character in texts or names: PostgreSQL stores none. It would be delivered again at every start."""
    platform = FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform]) as world:
        platform.say("one", "a\x00b", user_name="An\x00n", chat_name="Te\x00am")
        await platform.until(lambda: bool(platform.screen))
        await world.accept(inbound("m\x00", "c"))
        await platform.until(lambda: len(platform.screen) == 2)
    assert platform.texts("one") == ["echo: a\ufffdb", "echo: c"]


@pytest.mark.parametrize("odd", ["a\x00b", "a\ud800b"])
async def test_nor_are_the_names_of_files_and_of_changed_messages(store_url: str, odd: str) -> None:
    """A stranger in a room chooses them: what cannot be stored would be delivered again and again."""
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        file = Attachment(kind="document", ref=odd, name=odd, mime=odd)
        await world.accept(replace(inbound("m1", ""), attachments=(file,), album=odd))
        await world.accept(replace(inbound("m2", "other words"), what=Heard.EDITED, of=odd))
        await world.accept(replace(inbound("m3", ""), what=Heard.DELETED, of=odd))
        await ask(platform, "two", "go on")


LONG = "".join(hashlib.sha256(str(each).encode()).hexdigest() for each in range(50))  # which no compression shortens


def with_long_ids() -> list[Inbound]:
    """Messages of which one id each is too long."""
    said, sticker = replace(inbound("m1", "hello"), cursor="7"), Attachment(kind="sticker", ref="r", unique=LONG)
    return [
        replace(said, id=LONG),
        replace(said, album=LONG),
        replace(said, what=Heard.DELETED, of=LONG),
        replace(said, attachments=(sticker,)),
        *(replace(said, source=replace(said.source, **{name: LONG})) for name in ("chat_id", "thread_id", "user_id")),
    ]


async def test_nor_are_ids_that_no_index_takes(store_url: str) -> None:
    """Promise 9: a caller that can be refused is; elsewhere the message is skipped, and what follows it is accepted."""
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        for place, odd in enumerate(with_long_ids()):
            with pytest.raises(TooLong, match="ids"):
                await world.accept(odd)
            await world.gateway.intake.take(replace(odd, cursor=str(place)))
            assert await world.store.read(read_cursor, "fake", "") == str(place)
        await ask(platform, "one", "go on")
        assert platform.texts("one") == [answer_to("go on")]


async def test_the_longest_ids_that_are_taken_are_kept_and_answered(store_url: str) -> None:
    platform, said = FakePlatform(), inbound("m1", "hello")
    thread = LONG[: INDEXED_BYTES - len(session_key(said.source)) - 1]
    longest = replace(said, id=LONG[: INDEXED_BYTES - 4], source=replace(said.source, thread_id=thread))
    async with World(store_url, Actor(), [platform]) as world:
        assert len(await world.accept(longest)) == INDEXED_BYTES
        await platform.until(lambda: platform.texts("one") == [answer_to("hello")])


class Clumsy(FakePlatform):
    """An adapter that breaks its word when it is read, a few times."""

    def __init__(self, times: int) -> None:
        super().__init__(name="clumsy")
        self._left = times
        self.failed = asyncio.Event()

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:
        """A fault of its own, then what was said."""
        if self._left:
            self._left -= 1
            self.failed.set()
            raise KeyError("result")
        async for message in super().inbound(after):
            yield message


async def test_an_adapter_that_raises_is_reported_and_read_again_and_the_others_go_on(store_url: str) -> None:
    platform, other = Clumsy(4), FakePlatform()
    async with World(store_url, ScriptedAgent(), [platform, other], ManualClock()) as world:
        contacts = world.gateway.contacts
        platform.say("one", "hello")
        await happened(platform.failed)
        assert [each["trouble"] for each in contacts.listed()] == ["the adapter failed: KeyError", None]
        other.say("two", "hello")
        await told(other, "two", "echo: hello")
        await while_time_passes(world, told(platform, "one", "echo: hello"))
        assert [each["trouble"] for each in contacts.listed()] == [None, None]


class Placing(FakePlatform):
    """Says where it stands before anything was said."""

    def __init__(self) -> None:
        super().__init__(name="placing")
        self.went_on = asyncio.Event()

    async def inbound(self, after: str | None = None) -> AsyncGenerator[Inbound | ReadTo, None]:  # type: ignore[override]
        """A place, then what was said."""
        yield ReadTo("1")
        self.went_on.set()
        async for message in super().inbound(after):
            yield message


async def test_a_platform_is_said_to_be_read_only_when_something_was_read_of_it(store_url: str) -> None:
    """Promise 13: that it is asked proves nothing, and neither does that it took a reply."""
    platforms = [silent := FakePlatform("silent"), speaking := FakePlatform("speaking"), placing := Placing()]
    async with World(store_url, ScriptedAgent(), platforms) as world:
        contacts = world.gateway.contacts
        speaking.say("one", "hello")
        await told(speaking, "one", "echo: hello")
        await happened(placing.went_on)
        await world.accept(Inbound(id="1", source=SessionSource(platform="silent", account="other"), text="hello"))
        await silent.until(lambda: bool(silent.screen))
        found = {each["name"]: (each["state"], each["since"] is None) for each in contacts.listed()}
    assert found == {"silent": ("connecting", False), "speaking": ("reading", True), "placing": ("reading", True)}


async def test_text_that_only_looks_like_a_command_is_a_message(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]):
        await ask(platform, "one", "/usr/bin is full")


class BrokenTracer:
    """A tracer that breaks its word: it fails."""

    def record(self, span: Span) -> None:
        """Fail."""
        raise RuntimeError(span.name)

    async def close(self) -> None:
        """Nothing is left."""


async def test_a_caller_gets_its_commit_whatever_fails_after_it(store_url: str) -> None:
    """Promise 1: what follows the commit is not the caller's trouble, and the platform gets its acknowledgement."""
    async with World(store_url, ScriptedAgent(), [FakePlatform()], tracer=BrokenTracer()) as world, within():
        accepted = await world.gateway.intake.accept(inbound("m1", "/status"))
    assert accepted.outcome is AcceptOutcome.ACCEPTED
