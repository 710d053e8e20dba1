"""Calls that need an approval: the turn releases its slot, awaits approval through restarts and days, and goes on with the answer."""

import asyncio
import json
import re

import pytest
from msgspec.structs import replace

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import OutcomeUnknown
from everturn.lifecycle.settings import Settings
from everturn.model import ACTIVE, Effect, Event, Inbound, SessionSource, ToolCall
from everturn.outbox.rows.replies import events_after
from everturn.outbox.rules.delivery import MAY_REPEAT, Surety
from everturn.platform.posted import ApiPlatform
from everturn.testing import FakePlatform, ManualClock, SendFault, World
from tests.scenes import (
    entry_of,
    happened,
    restarted,
    said_in,
    session_of,
    told,
    until_ended,
    until_read,
    while_time_passes,
)

DAY = 86_400.0


class Asker:
    """Calls one tool per word of the message, each with an approval; swallows every error it can."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.notes: list[str | None] = []
        self.before: asyncio.Event | None = None  # what it waits for before its first response
        self.thinks = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """One response with all calls, then the answer."""
        self.notes.append(turn.note)
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._use)
        if self.before is not None:
            self.thinks.set()
            await self.before.wait()
        if not any(row.calls for row in await turn.own()):
            calls = [
                ToolCall(f"call {word[:9]}", word[:9], effect=Effect.ONCE, ask=f"Use {word}?")
                for word in turn.text.split()
            ]
            try:
                await turn.step("", calls, self._use)
            except Exception:  # noqa: BLE001  an agent that is not careful
                return Answer("I swallowed it")
        results = [row.content for row in await turn.own() if row.role == "tool"]
        return Answer(f"done: {'; '.join(results)}")

    async def _use(self, call: ToolCall, _key: str) -> str:
        self.used.append(call.name)
        return f"{call.name} used"


async def test_an_approval_after_two_restarts_and_three_days_from_another_device(store_url: str) -> None:
    """No request is repeated, no turn is blamed, no note is given, the call runs once, and queued messages come next."""
    platform, agent, clock = FakePlatform(), Asker(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(busy="queue")) as world:
        message = platform.say("one", "shell")
        request = await told(platform, "one", "May I use shell?")
        platform.say("one", "mail")
        await told(platform, "one", "Your message is queued: the approval request for shell")
        for _ in range(2):
            clock.advance(1.5 * DAY)
            await restarted(world)
        entry = await entry_of(world, platform, "one")
        platform.say("two", f"/approve {re.findall('[0-9]{9,}', request)[0]}")  # the same person, elsewhere
        await told(platform, "two", "Approved: shell")
        await told(platform, "one", "done: shell used")
        await told(platform, "one", "May I use mail?")
        trace = await until_ended(world, message, "done")
    assert (entry.state, entry.unclean_ends, entry.holder) == (ACTIVE, 0, None)
    assert (agent.used, agent.notes) == (["shell"], [None, None, None])
    assert [each["why"] for each in trace["turn"]["attempts"]] == ["waits for an approval", "answered"]
    assert sum("May I use" in text or "message is queued" in text for text in platform.texts("one")) == 3


async def test_a_message_from_before_the_approval_request_does_not_undo_its_answer(store_url: str) -> None:
    """The message steers, but the call that was then approved runs; it joins afterwards, and the agent reads it."""
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        agent.before = asyncio.Event()
        platform.say("one", "shell")
        await happened(agent.thinks)
        platform.say("one", "hurry")
        await platform.until(lambda: platform.acknowledged == 2)
        agent.before.set()
        await told(platform, "one", "May I use shell?")
        platform.say("one", "/approve")
        await told(platform, "one", "done: shell used")
    assert agent.used[0] == "shell"


async def test_a_waiting_turn_holds_no_slot_and_a_stop_finds_nothing_to_cut_off(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform], settings=Settings(running_turns=1)) as world:
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        platform.say("two", "shell")
        await told(platform, "two", "May I use shell?")
        await world.gateway.turns.quiet()
        assert world.gateway.turns.running() == []
        assert await world.stop()
    assert agent.used == []


async def test_approval_requests_come_one_after_the_other(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        platform.say("one", "shell mail")
        await told(platform, "one", "May I use shell?")
        assert not any("mail?" in text for text in platform.texts("one"))
        platform.say("one", "/approve")
        await told(platform, "one", "May I use mail?")
        platform.say("one", "/deny")
        text = await told(platform, "one", "done:")
    assert text == "done: shell used; The user did not allow this call. It was not run."
    assert agent.used == ["shell"]


async def test_an_approval_for_the_session_is_not_requested_again(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        platform.say("one", "/approve session")
        await told(platform, "one", "done: shell used")
        platform.say("one", "shell")
        await platform.until(lambda: platform.texts("one").count("done: shell used") == 2)
    assert agent.used == ["shell", "shell"]


async def test_an_approval_request_that_nobody_answers_expires_visibly(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Asker(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(approval_expires_s=DAY)):
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        clock.advance(DAY)
        await told(platform, "one", "The approval request for shell expired")
        await told(platform, "one", "done: Nobody answered the approval request")
        platform.say("one", "/approve")
        await told(platform, "one", "No approval request is open here.")
    assert agent.used == []


async def test_another_message_closes_the_approval_request_and_joins_the_turn(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        platform.say("one", "rather not")
        await told(platform, "one", "done: The user sent another message")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [row.role for row in rows] == ["user", "assistant", "tool", "user", "assistant"]
    assert agent.used == []


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_a_command_closes_the_approval_request(store_url: str, command: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        platform.say("one", "shell")
        await told(platform, "one", "May I use shell?")
        platform.say("one", command)
        await told(platform, "one", "Stopped" if command == "/stop" else "fresh conversation")
        platform.say("one", "/approve")
        await told(platform, "one", "No approval request is open here.")
        platform.say("one", "mail")
        await told(platform, "one", "May I use mail?")
    assert agent.used == []


@pytest.mark.parametrize("policy", ["ask", "drop", "mark"])
async def test_an_approval_request_of_unknown_delivery_is_sent_again_whatever_the_policy_says(
    store_url: str, policy: str
) -> None:
    """Its turn awaits approval: with a dropped request it would wait for a week, and nobody would know for what."""
    lost = SendFault(OutcomeUnknown("no answer"))
    platform, agent = FakePlatform(surety=Surety.NEITHER, faults=[lost]), Asker()
    async with World(
        store_url, agent, [platform], ManualClock(), Settings(on_unknown_delivery=policy, burst_s=0.0)
    ) as world:
        platform.say("one", "shell")
        request = await while_time_passes(world, told(platform, "one", "May I use shell?"))
        assert MAY_REPEAT in request
        platform.say("one", "/approve")
        await told(platform, "one", "done: shell used")


async def test_a_call_that_is_too_long_to_be_shown_is_refused_and_nothing_of_it_is_hidden(store_url: str) -> None:
    platform, agent = FakePlatform(), Asker()
    async with World(store_url, agent, [platform]):
        platform.say("one", "long" + "x" * 2_000)
        await told(platform, "one", "Error: the call is too long for an approval request")
        platform.say("one", "short" + "x" * 1_900)
        assert "x" * 1_900 in await told(platform, "one", "May I use shortxxxx?")
        platform.say("one", "/deny")
        await told(platform, "one", "did not allow this call")
    assert agent.used == []


async def test_what_cannot_be_seen_is_escaped_in_every_approval_request_of_an_agent(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Asker(), [platform]):
        platform.say("one", "rm\u202e\u3164-rf")
        assert r"Use rm\u202e\u3164-rf?" in await told(platform, "one", "May I use rm")


async def test_a_turn_of_the_homes_token_is_approved_by_its_holder_alone(store_url: str) -> None:
    """Neither a person of another chat nor a program with a key answers for the owner, not even in the same chat."""
    api, chat, agent = ApiPlatform(), FakePlatform(), Asker()
    token = SessionSource(platform="api", chat_id="one")
    async with World(store_url, agent, [api, chat]) as world:
        key = await world.accept(Inbound(id="1", source=token, text="shell"))
        number = json.loads((await heard(world, key, "approval", "May I use shell?")).data)["id"]
        chat.say("two", f"/approve {number} always", user_id="bob")
        await told(chat, "two", "Only the person whose task it is")
        await world.accept(Inbound(id="2", source=replace(token, user_id="key:ci"), text="/approve always"))
        await heard(world, key, "reply", "Only the person whose task it is")
        assert agent.used == []
        await world.accept(Inbound(id="3", source=token, text="/approve"))
        await heard(world, key, "reply", "done: shell used")


async def heard(world: World, key: str, kind: str, part: str) -> Event:
    """The first event of this kind with this text."""

    def fits(event: Event) -> bool:
        return event.kind == kind and part in event.data

    events: list[Event] = await until_read(
        lambda: world.store.read(events_after, key, 0, 100), lambda all_: any(map(fits, all_))
    )
    return next(filter(fits, events))


class Repeater:
    """Makes these calls, one step each; `forgets` those of earlier attempts."""

    def __init__(self, *calls: ToolCall, forgets: bool = False) -> None:
        self.calls, self.forgets = calls, forgets
        self.used: list[str] = []
        self.holds = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Go on after the last committed step, if it looks."""
        done = 0
        if turn.attempt > 1 and not self.forgets:
            await turn.settle(self._use)
            done = sum(bool(row.calls) for row in await turn.own())
        for call in self.calls[done:]:
            await turn.step("", [call], self._use)
        if self.forgets and turn.attempt == 1:
            self.holds.set()
            await asyncio.Event().wait()
        return Answer("done")

    async def _use(self, call: ToolCall, _key: str) -> str:
        self.used.append(call.arguments)
        return "used"


@pytest.mark.parametrize("ask", ["Run it?", None])
async def test_an_id_of_a_call_that_was_approved_is_not_taken_for_another_one(store_url: str, ask: str | None) -> None:
    first = ToolCall("call_0", "run", "harmless", ask="Run it?")
    platform, agent = FakePlatform(), Repeater(first, ToolCall("call_0", "run", "harmful", ask=ask))
    async with World(store_url, agent, [platform]):
        platform.say("one", "go")
        await told(platform, "one", "May I use run?")
        platform.say("one", "/approve")
        text = await told(platform, "one", "the call id 'call_0' was used for another call of this turn")
    assert "give each call of a turn an id of its own" in text
    assert agent.used == ["harmless"]


async def test_a_step_that_an_agent_repeats_after_a_crash_goes_on(store_url: str) -> None:
    platform, agent = FakePlatform(), Repeater(ToolCall("1", "run", "a"), ToolCall("2", "run", "b"), forgets=True)
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "go")
        await happened(agent.holds)
        await restarted(world)
        await told(platform, "one", "done")
    assert agent.used == ["a", "b", "a", "b"]
