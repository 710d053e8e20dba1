"""Answers that grow on the screen: one bubble from the first words to the last, whatever happens on the way."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.decide import bubble_words, command_words, doubt_words
from everturn.decide.delivery import Surety
from everturn.decide.display import Display
from everturn.decide.patience import Patience
from everturn.decide.streaming import Pace
from everturn.decide.timeline import timeline
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.gateway.parts import Settings
from everturn.model import Effect, Inbound, SessionSource, ToolCall
from everturn.platform.api import ApiPlatform
from everturn.platform.interface import Choice, Limits
from everturn.store.interface import Op, sql
from everturn.store.operations.telling import events_after
from everturn.testing import CardPlatform, DeletingPlatform, EditingPlatform, FakePlatform, Fault, ManualClock, World
from tests.gateway.scenes import (
    die,
    life_of,
    restarted,
    said_in,
    session_of,
    told,
    until_read,
    while_time_passes,
)

CURSOR = " |"
EAGER = Settings(burst_s=0.0, drain_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1, cursor=CURSOR)))
ANSWER = "one two three four"
ENDLESS = Patience(inactive_s=0, warn_s=0, working_s=0, stall_s=0)


class Talker:
    """Streams the words of its answer, each when it is told to; with `raises` it fails at the end."""

    def __init__(self, answer: str = ANSWER, *, raises: bool = False) -> None:
        self.answer = answer
        self._raises = raises
        self._go = asyncio.Semaphore(0)

    def go(self, words: int = 1000) -> None:
        """Say so many words more."""
        for _ in range(words):
            self._go.release()

    async def run(self, turn: TurnContext) -> Answer:
        """Word by word."""
        await turn.calling()
        words = self.answer.split(" ")
        for place in range(1, len(words) + 1):
            await self._go.acquire()
            turn.stream(" ".join(words[:place]))
        await self._go.acquire()
        if self._raises:
            raise RuntimeError("the model is not there")
        return Answer(self.answer)


async def seen(platform: FakePlatform, *texts: str) -> None:
    """Wait until exactly this is on the screen."""
    try:
        await platform.until(lambda: platform.texts("one") == list(texts))
    except TimeoutError:
        assert platform.texts("one") == list(texts)


async def grown(platform: FakePlatform, agent: Talker) -> None:
    """Wait until there is more than first words. They are committed after they are on the screen, and before a change of them."""
    agent.go(2)
    await told(platform, "one", "one two")
    agent.go(1)
    await told(platform, "one", "one two three")


async def cut_off(store_url: str, platform: FakePlatform, agent: Talker) -> World:
    """A world that died while its answer grew."""
    world = World(store_url, agent, [platform], settings=EAGER)
    await world.start()
    platform.say("one", "hello")
    await grown(platform, agent)
    await die(world)
    return world


@pytest.mark.parametrize("surety", Surety)
async def test_one_bubble_grows_and_ends_without_its_cursor(store_url: str, surety: Surety) -> None:
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
async def test_a_later_life_goes_on_in_the_same_bubble(
    store_url: str, surety: Surety, kind: type[EditingPlatform]
) -> None:
    platform, agent = kind(surety=surety), Talker()
    async with await cut_off(store_url, platform, agent):
        agent.answer = "an other answer"
        agent.go()
        await seen(platform, "an other answer")


async def test_a_long_answer_goes_on_in_further_parts(store_url: str) -> None:
    platform, agent = EditingPlatform(limits=Limits(text=20)), Talker("one two three four five six seven eight nine")
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(6)
        await seen(platform, "one two three four", f"five six{CURSOR}")
        agent.go()
        await seen(platform, "one two three four", "five six seven eight", "nine")


@pytest.mark.parametrize(
    ("command", "words"),
    [("/stop", bubble_words.ended("/stop")), ("/new", bubble_words.ended("/new")), ("/busy rollback", "")],
)
async def test_an_end_without_an_answer_is_the_bubbles_last_shape(store_url: str, command: str, words: str) -> None:
    platform, agent = EditingPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        agent.go(3)
        await seen(platform, f"one two three{CURSOR}")
        session_id = await session_of(world, platform, "one")
        platform.say("one", command)
        if words:
            await told(platform, "one", words)
            assert platform.texts("one")[0] == f"one two three\n\n{words}"
            last = (await said_in(world, session_id))[-1]
            assert (last.role, last.content, last.outcome) == ("assistant", "one two three", "stopped")
        else:
            await told(platform, "one", "rollback")
            platform.say("one", "again")
            await told(platform, "one", bubble_words.TAKEN_BACK)
            assert platform.texts("one")[0] == bubble_words.TAKEN_BACK
        await world.stop()


async def test_a_failure_is_told_in_the_bubble(store_url: str) -> None:
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
    await world.start()
    platform.say("one", "hello")
    agent.go(2)
    await seen(platform, f"one two{CURSOR}")
    await world.stop("restart")
    assert platform.texts("one")[0] == f"one two\n\n{bubble_words.PAUSED}"
    async with world:
        agent.go()
        await platform.until(lambda: platform.texts("one")[0] == ANSWER)


async def replied(world: World, message: str, state: str) -> bool:
    """Wait until the message's reply is in this state."""
    life = await until_read(
        lambda: life_of(world, message), lambda each: [reply["state"] for reply in each["replies"]] == [state]
    )
    return bool(life)


class Asker(Talker):
    """Says something, asks for a yes, then answers."""

    async def run(self, turn: TurnContext) -> Answer:
        """Two bubbles with a question between them."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        else:
            turn.stream("Let me look")  # the rest of it was not shown while it grew
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
    """Also in the next life: it stands in the committed steps. The transcript has each of them once."""
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
    """What was sent can not be changed after all: somebody deleted it."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Never."""
        raise Refused(f"there is no {message_id} in {to.chat_id}: {text}")


class ButtonPlatform(EditingPlatform):
    """A platform with buttons, which shows that we are at work."""

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[Choice] = []
        self.typed = 0

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """A question with its buttons."""
        self.buttons = list(choices)
        return await self.send(to, text, key)

    async def typing(self, to: SessionSource) -> None:
        """Seen by nobody here; it fails, which matters to nobody."""
        self.typed += 1
        raise Refused(f"no typing in {to.chat_id}")


async def test_a_question_stands_beneath_all_that_was_said_before_it(store_url: str) -> None:
    """The first bubble keeps what it said, the answer gets another one beneath the question; buttons are commands."""
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


async def test_a_command_that_can_not_be_applied_stops_nobody(store_url: str) -> None:
    """It is a dead letter, who gave it is told, and those after it are applied, in this life and in the next."""
    platform, agent = EditingPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        platform.say("one", "hello")
        await grown(platform, agent)  # nobody writes its row any more
        await world.store.run(damage_bubbles)
        stop = platform.say("one", "/stop")
        await told(platform, "one", command_words.failed("stop"))
        platform.say("two", "/version")
        await platform.until(lambda: bool(platform.texts("two")))
        life = await life_of(world, stop)
        await restarted(world)
        platform.say("three", "/version")
        await platform.until(lambda: bool(platform.texts("three")))
    assert (life["state"], life["why"]) == ("dead", "failed")


async def test_first_words_wait_for_what_is_owed_before_them(store_url: str) -> None:
    """What grows keeps the order of the chat, as an answer in one piece does."""
    platform, agent = EditingPlatform(faults=[Fault(TryLater("slow down", 30.0))]), Talker()
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
    flood = Fault(TryLater("slow down", 30.0))
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
    """Somebody deleted what was sent first, and what replaces it can not be sent at once."""

    busy = True

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Not of the first."""
        if message_id == self.screen[0].id:
            raise Refused("it is gone")
        await super().edit(to, message_id, text)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """In an hour."""
        if self.busy and text.startswith(bubble_words.REPLACES):
            self.busy = False
            raise TryLater("slow down", 3600.0)
        return await super().send(to, text, key)


async def test_a_bubble_whose_part_is_gone_grows_in_a_new_one(store_url: str) -> None:
    """A life found that it can not be changed any more, and could not send another one."""
    platform, agent = GonePlatform(), Talker()
    world = World(store_url, agent, [platform], ManualClock(), EAGER)
    await world.start()
    platform.say("one", "hello")
    agent.go(2)
    await seen(platform, f"one two{CURSOR}")
    await world.stop("restart")
    assert not platform.busy
    async with world:
        agent.go(2)
        await told(platform, "one", f"{bubble_words.REPLACES}\n\none two{CURSOR}")
        agent.go()
        await told(platform, "one", f"{bubble_words.REPLACES}\n\n{ANSWER}")


async def test_a_bubble_that_is_on_the_screen_is_finished_however_late(store_url: str) -> None:
    flood, clock, agent = Fault(TryLater("slow down", 30.0)), ManualClock(), Talker()
    platform = EditingPlatform(faults=[None, flood], limits=Limits(valid_s=60))
    async with World(store_url, agent, [platform], clock, EAGER) as world:
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        await replied(world, "m1", "owed")
        await die(world)
        clock.advance(3 * 86_400)
        await world.start()
        await seen(platform, ANSWER)
        await replied(world, "m1", "sent")


async def test_a_bubble_that_can_not_be_changed_any_more_is_replaced(store_url: str) -> None:
    platform, agent = FrozenPlatform(), Talker()
    async with World(store_url, agent, [platform], settings=EAGER):
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        await seen(platform, f"one two{CURSOR}", f"{bubble_words.REPLACES}\n\n{ANSWER}")


@pytest.mark.parametrize(("policy", "state"), [("ask", "doubtful"), ("drop", "dead")])
async def test_first_words_in_doubt_follow_the_policy(store_url: str, policy: str, state: str) -> None:
    lost = Fault(OutcomeUnknown("no answer"), accepted=True)
    platform, agent = EditingPlatform(surety=Surety.NEITHER, faults=[lost]), Talker()
    async with World(store_url, agent, [platform], settings=replace(EAGER, on_doubt=policy)) as world:
        message = platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        agent.go()
        assert await replied(world, message, state)
        if policy == "ask":
            question = await told(platform, "one", "/resend")
            platform.say("one", question[question.index("/resend") :])
            await told(platform, "one", f"{bubble_words.REPLACES}\n\n{ANSWER}")
            assert await replied(world, message, "sent")
            platform.say("one", "/resend")
            await told(platform, "one", doubt_words.NOTHING)
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
        life = await life_of(world, message)
    assert (platform.texts("one"), platform.calls) == ([], 0)
    assert [words for _, words in timeline(life) if "nothing to say" in words]


async def test_that_it_says_nothing_is_sent_where_that_is_wanted(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker("(silent)")
    loud = replace(EAGER.display, by_platform={"fake": {"silence": "drop"}}, by_chat={"fake:one": {"silence": "send"}})
    async with World(store_url, agent, [platform], settings=replace(EAGER, display=loud)):
        platform.say("one", "hello")
        agent.go()
        await seen(platform, "(silent)")


class LosingPlatform(DeletingPlatform):
    """Takes things away, but the first time its answer is lost."""

    deletions = 0

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """It is done."""
        await super().delete(to, message_id)
        self.deletions += 1
        if self.deletions == 1:
            raise OutcomeUnknown("no answer")


async def test_parts_that_a_shorter_answer_does_not_need_are_taken_away(store_url: str) -> None:
    """A lost answer to a deletion is asked again: what is gone stays gone."""
    platform = LosingPlatform(limits=Limits(text=20))
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
    """Silence is for chats: who watches events, at the page or in a terminal, sees what the agent said."""
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
    platform, agent = EditingPlatform(limits=Limits(text=20)), Talker("one two three four five six seven eight")
    async with World(store_url, agent, [platform], settings=EAGER):
        message = platform.say("one", "hello", chat_type="group")
        platform.say("two", "hello", user_id="bob")
        agent.go()
        await platform.until(lambda: len(platform.texts("one")) == len(platform.texts("two")) == 2)
    assert [each.answers for each in platform.screen if each.chat == "one"] == [message, None]
    assert [each.answers for each in platform.screen if each.chat == "two"] == [None, None]
