"""Answers that grow on the screen: one bubble from the first words to the last, whatever happens on the way."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.decide import bubble_words
from everturn.decide.delivery import Surety
from everturn.decide.display import Display
from everturn.decide.streaming import Pace
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.gateway.parts import Settings
from everturn.model import SessionSource, ToolCall
from everturn.platform.interface import Choice, Limits
from everturn.testing import CardPlatform, EditingPlatform, FakePlatform, Fault, ManualClock, World
from tests.gateway.scenes import die, life_of, told, until_read, while_time_passes

CURSOR = " |"
EAGER = Settings(burst_s=0.0, drain_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1, cursor=CURSOR)))
ANSWER = "one two three four"


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
        await platform.until(lambda: platform.texts("one") == list(texts), 5)
    except TimeoutError:
        assert platform.texts("one") == list(texts)


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
    """Claim D1.25: what must be closed is closed, once, by a step of its own."""
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
    world = World(store_url, agent, [platform], settings=EAGER)
    await world.start()
    platform.say("one", "hello")
    agent.go(2)
    await platform.until(lambda: any("one two" in text for text in platform.texts("one")))
    await die(world)
    async with world:
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
        platform.say("one", command)
        if words:
            await told(platform, "one", words)
            assert platform.texts("one")[0] == f"one two three\n\n{words}"
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
    world = World(store_url, agent, [platform], settings=EAGER)
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
            turn.stream("Let me look")
            turn.stream("Let me look into it.")
            await turn.step("Let me look into it.", [ToolCall("c1", "write", ask="May I?")], self._act)
        turn.stream("It is done")
        await self._go.acquire()
        return Answer("It is done now.")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "written"


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
        agent.go()
        assert await replied(world, message, state)
        assert len(platform.texts("one")) == 1


async def test_where_streaming_is_off_the_answer_is_sent_whole(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker()
    off = Display(everywhere=Pace(interval_s=0, min_chars=1), by_chat={"fake:one": {"enabled": False}})
    async with World(store_url, agent, [platform], settings=replace(EAGER, display=off)):
        platform.say("one", "hello")
        agent.go()
        await seen(platform, ANSWER)
    assert platform.calls == 1


async def test_an_answer_that_says_nothing_is_not_sent(store_url: str) -> None:
    platform, agent = EditingPlatform(), Talker("(silent)")
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        message = platform.say("one", "hello")
        agent.go()
        assert await replied(world, message, "sent")
    assert platform.texts("one") == []
