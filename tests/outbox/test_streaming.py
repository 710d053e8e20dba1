"""Streaming messages: one bubble from the first text to the last, whatever happens in between."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.commands.rules import command_texts
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, Inbound, SessionSource, ToolCall
from everturn.operator.rules.timeline import timeline
from everturn.outbox.rows.replies import events_after
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Surety
from everturn.outbox.rules.streaming import Display, Pace
from everturn.platform.interface import Choice, TextLimits
from everturn.platform.posted import ApiPlatform
from everturn.store.interface import Op, sql
from everturn.testing import (
    CardPlatform,
    DeletingPlatform,
    EditingPlatform,
    FakePlatform,
    ManualClock,
    SendFault,
    World,
)
from everturn.turns.rules.turns import TurnTimeouts
from tests.scenes import die, restarted, said_in, session_of, told, trace_of, until_read, while_time_passes

CURSOR = " |"
EAGER = Settings(
    burst_s=0.0,
    drain_s=0.0,
    in_flight_s=0.0,
    display=Display(everywhere=Pace(interval_s=0, min_chars=1, cursor=CURSOR)),
)
ANSWER = "one two three four"
ENDLESS = TurnTimeouts(inactive_s=0, warn_s=0, working_s=0, stall_s=0)


class Talker:
    """Streams its answer word by word, each when the test says so; with `raises` it fails at the end."""

    def __init__(self, answer: str = ANSWER, *, raises: bool = False) -> None:
        self.answer = answer
        self._raises = raises
        self._go = asyncio.Semaphore(0)

    def go(self, text: int = 1000) -> None:
        """Say so many words more."""
        for _ in range(text):
            self._go.release()

    async def run(self, turn: TurnContext) -> Answer:
        """Word by word."""
        await turn.calling()
        text = self.answer.split(" ")
        for place in range(1, len(text) + 1):
            await self._go.acquire()
            turn.stream(" ".join(text[:place]))
        await self._go.acquire()
        if self._raises:
            raise RuntimeError("the model is not there")
        return Answer(self.answer)


async def seen(platform: FakePlatform, *texts: str) -> None:
    """Wait until the chat shows exactly this."""
    try:
        await platform.until(lambda: platform.texts("one") == list(texts))
    except TimeoutError:
        assert platform.texts("one") == list(texts)


async def interrupted(world: World, platform: FakePlatform, agent: Talker) -> None:
    """Stop a gateway while its answer is seen in part. The id of that part is committed a moment after people see it."""
    await world.start()
    platform.say("one", "hello")
    agent.go(2)
    await seen(platform, f"one two{CURSOR}")
    await until_read(lambda: trace_of(world, "m1"), lambda trace: trace["replies"][0]["parts"] != "[]")
    await world.stop("restart")


async def grown(platform: FakePlatform, agent: Talker) -> None:
    """Wait until there is more than the first text. It is committed after it is sent, and before an edit of it."""
    agent.go(2)
    await told(platform, "one", "one two")
    agent.go(1)
    await told(platform, "one", "one two three")


async def cut_off(store_url: str, platform: FakePlatform, agent: Talker) -> World:
    """A world that died while its answer streamed."""
    world = World(store_url, agent, [platform], settings=EAGER)
    await world.start()
    platform.say("one", "hello")
    await grown(platform, agent)
    await die(world)
    return world


@pytest.mark.parametrize("surety", Surety)
async def test_one_bubble_streams_and_ends_without_its_cursor(store_url: str, surety: Surety) -> None:
    platform, agent = EditingPlatform(surety=surety), Talker()
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go(1)
        await seen(platform, f"one two three{CURSOR}")
        agent.go()
        await seen(platform, ANSWER)


async def test_a_card_is_closed(store_url: str) -> None:
    """What must be closed is closed, once, by a step of its own."""
    platform, agent = CardPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR} [...]")
        agent.go()
        await seen(platform, ANSWER)


@pytest.mark.parametrize("kind", [EditingPlatform, CardPlatform])
@pytest.mark.parametrize("surety", Surety)
async def test_a_later_process_goes_on_in_the_same_bubble(
    store_url: str, surety: Surety, kind: type[EditingPlatform]
) -> None:
    platform, agent = kind(surety=surety), Talker()
    async with await cut_off(store_url, platform, agent):
        agent.answer = "an other answer"
        agent.go()
        await seen(platform, "an other answer")


async def test_a_long_answer_goes_on_in_further_parts(store_url: str) -> None:
    platform, agent = (
        EditingPlatform(limits=TextLimits(text=20)),
        Talker("one two three four five six seven eight nine"),
    )
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(6)
        await seen(platform, "one two three four", f"five six{CURSOR}")
        agent.go()
        await seen(platform, "one two three four", "five six seven eight", "nine")


@pytest.mark.parametrize(
    ("command", "text"),
    [("/stop", outbox_texts.ended("/stop")), ("/new", outbox_texts.ended("/new")), ("/busy rollback", "")],
)
async def test_an_end_without_an_answer_is_the_bubbles_last_shape(store_url: str, command: str, text: str) -> None:
    platform, agent = EditingPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        agent.go(3)
        await seen(platform, f"one two three{CURSOR}")
        session_id = await session_of(world, platform, "one")
        platform.say("one", command)
        if text:
            await told(platform, "one", text)
            assert platform.texts("one")[0] == f"one two three\n\n{text}"
            last = (await said_in(world, session_id))[-1]
            assert (last.role, last.content, last.outcome) == ("assistant", "one two three", "stopped")
        else:
            await told(platform, "one", "rollback")
            platform.say("one", "again")
            await told(platform, "one", outbox_texts.TAKEN_BACK)
            assert platform.texts("one")[0] == outbox_texts.TAKEN_BACK
        await world.stop()


async def test_a_failure_is_shown_in_the_bubble(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker(raises=True)
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(4)
        await seen(platform, f"{ANSWER}{CURSOR}")
        agent.go()
        text = await told(platform, "one", "the model is not there")
        assert text.startswith(f"{ANSWER}\n\n")
    assert len(platform.texts("one")) == 1


async def test_an_interruption_is_seen_until_it_goes_on(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker()
    world = World(store_url, agent, [platform], ManualClock(), EAGER)
    await interrupted(world, platform, agent)
    assert platform.texts("one")[0] == f"one two\n\n{outbox_texts.PAUSED}"
    async with world:
        agent.go()
        await platform.until(lambda: platform.texts("one")[0] == ANSWER)


async def replied(world: World, message: str, state: str) -> bool:
    """Wait until the message's reply is in this state."""
    trace = await until_read(
        lambda: trace_of(world, message), lambda each: [reply["state"] for reply in each["replies"]] == [state]
    )
    return bool(trace)


class Asker(Talker):
    """Says something, requests approval, then answers."""

    async def run(self, turn: TurnContext) -> Answer:
        """Two bubbles with an approval request between them."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        else:
            turn.stream("Let me look")  # the rest of it was not streamed
            await turn.step("Let me look into it.", [ToolCall("c1", "write", ask="May I?")], self._act)
        turn.stream("It is done")
        await self._go.acquire()
        return Answer("It is done now.")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "written"


class Worker(Talker):
    """Says something before each of its tools, as a model does, then answers."""

    async def run(self, turn: TurnContext) -> Answer:
        """It waits in its second tool, and before its answer."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        for number in range(1 + sum(row.role == "tool" for row in await turn.own()), 3):
            turn.stream(f"Look {number}")
            await turn.step(f"Look {number}.", [ToolCall(f"c{number}", "read", effect=Effect.PURE)], self._act)
        turn.stream(self.answer)
        await self._go.acquire()
        return Answer(self.answer)

    async def _act(self, call: ToolCall, _key: str) -> str:
        if call.id == "c2":
            await self._go.acquire()
        return "done"


@pytest.mark.parametrize("dies", [False, True])
async def test_what_was_said_before_a_tool_stays_above_what_follows(store_url: str, dies: bool) -> None:  # noqa: FBT001
    """Also in the next process: it stands in the committed steps. The transcript has each of them once."""
    platform, agent = EditingPlatform(), Worker("That is all.")
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        await seen(platform, f"Look 1.\n\nLook 2.{CURSOR}")
        if dies:
            await restarted(world)
        agent.go(1)
        await seen(platform, f"Look 1.\n\nLook 2.\n\nThat is all.{CURSOR}")
        agent.go(1)
        await seen(platform, "Look 1.\n\nLook 2.\n\nThat is all.")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [row.content for row in rows if row.role == "assistant"] == ["Look 1.", "Look 2.", "That is all."]


async def test_an_answer_that_says_nothing_takes_back_what_was_said_before_it(store_url: str) -> None:
    platform, agent = DeletingPlatform(), Worker("(silent)")
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        await seen(platform, f"Look 1.\n\nLook 2.{CURSOR}")
        agent.go()
        await replied(world, "m1", "sent")
    assert platform.texts("one") == []


class FrozenPlatform(EditingPlatform):
    """What was sent cannot be edited after all: somebody deleted it."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Never."""
        raise Refused(f"there is no {message_id} in {to.chat_id}: {text}")


class ButtonPlatform(EditingPlatform):
    """A platform with buttons and a typing indicator."""

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[Choice] = []
        self.typed = 0

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """A request with its buttons."""
        self.buttons = list(choices)
        return await self.send(to, text, key)

    async def typing(self, to: SessionSource) -> None:
        """Seen by nobody here; it fails, which matters to nobody."""
        self.typed += 1
        raise Refused(f"no typing in {to.chat_id}")


async def test_an_approval_request_stands_beneath_all_that_was_said_before_it(store_url: str) -> None:
    """The first bubble keeps what it said, the answer gets another one beneath the request; buttons are commands."""
    platform, agent = ButtonPlatform(), Asker()
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        await told(platform, "one", "May I use write?")
        assert platform.texts("one")[0] == "Let me look into it."
        assert [each.label for each in platform.buttons][::3] == ["Allow once", "Do not allow"]
        platform.say("one", platform.buttons[0].command)
        await told(platform, "one", f"It is done{CURSOR}")
        agent.go()
        await told(platform, "one", "It is done now.")
    said, question, *rest = platform.texts("one")
    assert (said, question[:5], len(rest), rest[-1]) == ("Let me look into it.", "May I", 2, "It is done now.")
    assert platform.typed


def damage_bubbles() -> Op[None]:
    """As no program of ours writes it."""
    yield sql("UPDATE outbox SET bubble='{' WHERE bubble IS NOT NULL")


async def test_a_command_that_cannot_be_applied_stops_nobody(store_url: str) -> None:
    """It is a dead letter, its sender gets a notice, and those after it are applied, in this process and in the next."""
    platform, agent = EditingPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        await grown(platform, agent)  # nobody writes its row any more
        await world.store.run(damage_bubbles)
        stop = platform.say("one", "/stop")
        await told(platform, "one", command_texts.failed("stop"))
        platform.say("two", "/version")
        await platform.until(lambda: bool(platform.texts("two")))
        trace = await trace_of(world, stop)
        await restarted(world)
        platform.say("three", "/version")
        await platform.until(lambda: bool(platform.texts("three")))
    assert (trace["state"], trace["why"]) == ("dead", "failed")


async def test_a_streaming_message_waits_for_what_is_pending_before_it(store_url: str) -> None:
    """A streaming message keeps the order of the chat, as an answer in one piece does."""
    platform, agent = EditingPlatform(faults=[SendFault(TryLater("slow down", 30.0))]), Talker()
    async with World(store_url, agent, [platform], ManualClock(), replace(EAGER, patience=ENDLESS)) as world:
        platform.say("one", "/status")
        await platform.until(lambda: platform.calls == 1)
        platform.say("one", "hello")
        agent.go(2)
        await while_time_passes(world, told(platform, "one", f"one two{CURSOR}"))
        agent.go()
        await while_time_passes(world, told(platform, "one", ANSWER))
    assert platform.texts("one")[1:] == [ANSWER]


async def test_a_flood_wait_on_the_last_change_is_waited_for(store_url: str) -> None:
    """Never a second bubble while the first one is alive."""
    flood = SendFault(TryLater("slow down", 30.0))
    platform, agent, clock = (
        EditingPlatform(surety=Surety.NEITHER, faults=[None, flood, flood]),
        Talker(),
        ManualClock(),
    )
    async with World(store_url, agent, [platform], clock, EAGER) as world:
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        await while_time_passes(world, seen(platform, ANSWER))
        assert clock.now() >= ManualClock().now() + 30


class GonePlatform(EditingPlatform):
    """Somebody deleted what was sent first, and what replaces it cannot be sent at once."""

    busy = True

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Not of the first."""
        if message_id == self.screen[0].id:
            raise Refused("it is gone")
        await super().edit(to, message_id, text)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """In an hour."""
        if self.busy and text.startswith(outbox_texts.REPLACES):
            self.busy = False
            raise TryLater("slow down", 3600.0)
        return await super().send(to, text, key)


async def test_a_bubble_whose_part_is_gone_streams_in_a_new_one(store_url: str) -> None:
    """A process found that it cannot be edited any more, and could not send another one."""
    platform, agent = GonePlatform(), Talker()
    world = World(store_url, agent, [platform], ManualClock(), EAGER)
    await interrupted(world, platform, agent)
    assert not platform.busy
    async with world:
        agent.go(2)
        await told(platform, "one", f"{outbox_texts.REPLACES}\n\none two{CURSOR}")
        agent.go()
        await told(platform, "one", f"{outbox_texts.REPLACES}\n\n{ANSWER}")


async def test_a_bubble_that_was_shown_is_finished_however_late(store_url: str) -> None:
    flood, clock, agent = SendFault(TryLater("slow down", 30.0)), ManualClock(), Talker()
    platform = EditingPlatform(faults=[None, flood], limits=TextLimits(valid_s=60))
    async with World(store_url, agent, [platform], clock, EAGER) as world:
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        await replied(world, "m1", "pending")
        await die(world)
        clock.advance(3 * 86_400)
        await world.start()
        await seen(platform, ANSWER)
        await replied(world, "m1", "sent")


async def test_a_bubble_that_cannot_be_edited_any_more_is_replaced(store_url: str) -> None:
    platform, agent = FrozenPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        await seen(platform, f"one two{CURSOR}", f"{outbox_texts.REPLACES}\n\n{ANSWER}")


@pytest.mark.parametrize(("policy", "state"), [("ask", "unknown"), ("drop", "dead")])
async def test_a_first_part_with_unknown_delivery_follows_the_policy(store_url: str, policy: str, state: str) -> None:
    lost = SendFault(OutcomeUnknown("no answer"), accepted=True)
    platform, agent = EditingPlatform(surety=Surety.NEITHER, faults=[lost]), Talker()
    async with World(store_url, agent, [platform], settings=replace(EAGER, on_unknown_delivery=policy)) as world:
        message = platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        assert await replied(world, message, state)
        if policy == "ask":
            question = await told(platform, "one", "/resend")
            platform.say("one", question[question.index("/resend") :])
            await told(platform, "one", f"{outbox_texts.REPLACES}\n\n{ANSWER}")
            assert await replied(world, message, "sent")
            platform.say("one", "/resend")
            await told(platform, "one", outbox_texts.NOTHING)
        else:
            assert len(platform.texts("one")) == 1


async def test_where_streaming_is_off_the_answer_is_sent_whole(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker()
    off = Display(everywhere=Pace(interval_s=0, min_chars=1), by_chat={"fake:one": {"enabled": False}})
    async with World(store_url, agent, [platform], settings=replace(EAGER, display=off)):
        platform.say("one", "hello")
        agent.go()
        await seen(platform, ANSWER)
    assert platform.calls == 1


@pytest.mark.parametrize("kind", [FakePlatform, EditingPlatform])
async def test_an_answer_that_says_nothing_is_not_sent_and_the_operator_sees_that(
    store_url: str, kind: type[FakePlatform]
) -> None:
    platform, agent = kind(), Talker("(silent)")
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        message = platform.say("one", "hello")
        agent.go()
        assert await replied(world, message, "sent")
        trace = await trace_of(world, message)
    assert (platform.texts("one"), platform.calls) == ([], 0)
    assert [text for _, text in timeline(trace) if "nothing to say" in text]


async def test_that_it_says_nothing_is_sent_where_that_is_wanted(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker("(silent)")
    loud = replace(EAGER.display, by_platform={"fake": {"silence": "drop"}}, by_chat={"fake:one": {"silence": "send"}})
    async with World(store_url, agent, [platform], settings=replace(EAGER, display=loud)):
        platform.say("one", "hello")
        agent.go()
        await seen(platform, "(silent)")


class LosingPlatform(DeletingPlatform):
    """Deletes messages, but the first time its response is lost."""

    deletions = 0

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """It is done."""
        await super().delete(to, message_id)
        self.deletions += 1
        if self.deletions == 1:
            raise OutcomeUnknown("no answer")


async def test_parts_that_a_shorter_answer_does_not_need_are_removed(store_url: str) -> None:
    """A lost answer to a deletion is asked again: what is gone stays gone."""
    platform = LosingPlatform(limits=TextLimits(text=20))
    agent = Shortened("one two three four five six seven eight", "short")
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        message = platform.say("one", "hello")
        await platform.until(lambda: len(platform.texts("one")) == 2)
        agent.go()
        await while_time_passes(world, replied(world, message, "sent"))
    assert (platform.texts("one"), platform.deletions) == (["short"], 2)


class Shortened(Talker):
    """Says much, and answers with little."""

    def __init__(self, said: str, answer: str) -> None:
        super().__init__(answer)
        self._said = said

    async def run(self, turn: TurnContext) -> Answer:
        """All at once."""
        await turn.calling()
        turn.stream(self._said)
        await self._go.acquire()
        return Answer(self.answer)


async def test_a_page_hears_that_there_is_nothing_to_say(store_url: str) -> None:
    """Silence is for chats: a watcher of events, at the page or in a terminal, sees what the agent said."""
    platform, agent = ApiPlatform(), Talker("(silent)")
    source = SessionSource(platform="api", chat_id="one")
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        agent.go()
        key = await world.accept(Inbound(id="1", source=source, text="hello"))
        await until_read(
            lambda: world.store.read(events_after, key, 0, 100),
            lambda events: any("(silent)" in each.data for each in events),
        )


async def test_in_a_group_the_first_part_of_an_answer_names_what_it_answers(store_url: str) -> None:
    platform, agent = EditingPlatform(limits=TextLimits(text=20)), Talker("one two three four five six seven eight")
    async with World(store_url, agent, [platform], settings=EAGER):
        message = platform.say("one", "hello", chat_type="group")
        platform.say("two", "hello", user_id="bob")
        agent.go()
        await platform.until(lambda: len(platform.texts("one")) == len(platform.texts("two")) == 2)
    assert [each.answers for each in platform.screen if each.chat == "one"] == [message, None]
    assert [each.answers for each in platform.screen if each.chat == "two"] == [None, None]
