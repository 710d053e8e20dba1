"""Who may speak, on every path: on arrival, in the queue, in a running turn, at a button, when a turn resumes."""

import asyncio
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.errors import TryLater
from everturn.inbox.rows.inbox import AcceptOutcome
from everturn.lifecycle.gateway import Gateway
from everturn.lifecycle.settings import Settings
from everturn.model import Heard, Inbound, SessionSource
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.streaming import Display, Pace
from everturn.people.rows.access import PUT, revoke
from everturn.people.rows.pairing import Approval, approve_code
from everturn.people.rules import people_texts
from everturn.people.rules.access import OPEN, AccessPolicy, Admission
from everturn.people.rules.rights import ChatRights, Rights
from everturn.sessions.rows.entries import list_entries
from everturn.store.interface import Op, sql
from everturn.store.open import open_store
from everturn.testing import EditingPlatform, FakePlatform, ManualClock, SendFault, World
from tests.scenes import (
    Actor,
    answer_to,
    ask,
    die,
    happened,
    session_of,
    told,
    trace_of,
    until_ended,
    until_read,
    while_time_passes,
)

CLOSED = Settings(
    burst_s=0.0, busy="queue", admission=Admission(policies={"fake": AccessPolicy(allow=("ann",), unknown="pair")})
)

EVERYBODY = Admission(policies={"fake": OPEN})
SHOWN = Settings(burst_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1, cursor=" |")))
TOPIC = {"chat_type": "group", "thread_id": "topic"}


def said_by(user: str, text: str, chat: str = "one", **about: str) -> Inbound:
    source = SessionSource(platform="fake", chat_id=chat, user_id=user, **about)
    return Inbound(id=f"{user}/{text}", source=source, text=text)


async def test_a_platform_without_a_policy_admits_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Promise 11: what `app` forgets to open is closed."""
    store = await open_store(f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}")
    platform = FakePlatform()
    gateway = Gateway(store, Actor(), {"fake": platform}, SystemClock(), Settings())
    await gateway.start()
    assert (await gateway.intake.accept(said_by("ann", "hello"))).outcome is AcceptOutcome.DENIED
    assert await store.read(list_entries, "", 10) == []
    await gateway.stop(None)
    await store.close()


async def test_a_stranger_gets_a_code_is_approved_by_it_and_answered(store_url: str) -> None:
    platform, actor = FakePlatform(), Actor()
    async with World(store_url, actor, [platform], settings=CLOSED) as world:
        platform.say("b", "let me in", user_id="bob")
        platform.say("b", "please", user_id="bob")
        platform.say("g", "in a group", user_id="bob", chat_type="group")
        code = (await told(platform, "b", "everturn pair approve")).split("approve ")[1][:8]
        await ask(platform, "one", "hello")
        assert (len(platform.texts("b")), platform.texts("g"), platform.acknowledged) == (1, [], 4)
        assert world.gateway.intake.strangers.denied == {"fake": 3}
        paired = await world.gateway.people.approve_code(code, None, owner=False)
        assert paired.person == "fake:bob"
        await told(platform, "b", "You are approved")
        platform.say("b", "thanks", user_id="bob")
        await told(platform, "b", answer_to("thanks"))
    assert [each.text for each in actor.attempts] == ["hello", "thanks"]


async def test_too_long_a_text_of_a_stranger_is_not_kept_and_not_answered(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform], settings=replace(CLOSED, message_chars=10)) as world:
        platform.say("b", "x" * 11, user_id="bob")
        await ask(platform, "one", "hello")
        assert await world.store.read(list_entries, "", 10) != []
    assert platform.texts("b") == []


@pytest.mark.parametrize("what", [Heard.EDITED, Heard.DELETED])
async def test_a_flood_of_strangers_changes_is_one_line_a_minute(store_url: str, what: Heard) -> None:
    """Promise 12: of messages that are here, and of those that never were."""
    clock = ManualClock()
    async with World(store_url, Actor(), [FakePlatform()], clock, CLOSED) as world:
        with capture_logs() as logs:
            for number in range(50):
                change = replace_struct(
                    said_by("bob", f"now {number}", chat_type="group"), what=what, of=f"old {number}"
                )
                assert (await world.gateway.intake.accept(change)).outcome is AcceptOutcome.DENIED
        assert world.gateway.intake.strangers.denied == {"fake": 50}
    assert [each["event"] for each in logs] == ["messages denied"]


async def test_revoking_stops_the_running_turn_and_ends_what_waits(store_url: str) -> None:
    platform, actor = FakePlatform(), Actor()
    async with World(store_url, actor, [platform], settings=CLOSED) as world:
        running = platform.say("one", "hold")
        await actor.held("hold")
        waiting = platform.say("one", "next")
        await trace_of(world, waiting)
        ended = await world.gateway.people.revoke("fake", "ann")
        assert [each.turn is not None for each in ended] == [True]
        traces = [await until_ended(world, each, "dead") for each in (running, waiting)]
        assert [each["why"] for each in traces] == ["revoked", "revoked"]
        await actor.until(lambda: not actor.holding)
        platform.say("one", "still there?")
        await platform.until(lambda: platform.acknowledged == 3)
    assert platform.texts("one") == []
    assert [each.text for each in actor.attempts] == ["hold"]


def revoked_unseen(person: str, at: float) -> Op[None]:
    """A revocation as it is when a transaction that begins a turn commits after it: it has not seen that turn."""
    yield sql(PUT, "fake", person, person, "revoked", 0, None, at)


async def test_a_turn_that_a_revocation_could_not_see_is_ended_soon(store_url: str) -> None:
    """Promise 11: on PostgreSQL a message may be accepted in the very moment of its author's revocation."""
    platform, actor = FakePlatform(), Actor()
    async with World(store_url, actor, [platform], ManualClock(), CLOSED) as world:
        message = platform.say("one", "tool hold")
        await actor.held("tool hold")
        await world.store.run(revoked_unseen, "ann", world.clock.now())
        trace = await while_time_passes(world, until_ended(world, message, "dead"))
        await actor.until(lambda: not actor.holding)
    assert trace["why"] == "revoked"
    assert platform.texts("one") == []


async def test_a_person_approved_again_is_not_ended_by_their_revocation(store_url: str) -> None:
    platform, actor = FakePlatform(), Actor()
    async with World(store_url, actor, [platform], ManualClock(), CLOSED) as world:
        await world.gateway.people.revoke("fake", "ann")
        await world.gateway.people.allow("fake", "ann", owner=False)
        platform.say("one", "hold")
        await actor.held("hold")
        await world.gateway.people.revoke_again()
        actor.release()
        await told(platform, "one", answer_to("hold"))


async def test_who_was_removed_from_the_settings_is_not_resumed(store_url: str) -> None:
    """What a death cut off, and what waits behind it, ends when its author may no longer speak."""
    platform, actor = FakePlatform(), Actor()
    world = World(store_url, actor, [platform], settings=CLOSED)
    await world.start()
    running = platform.say("one", "tool hold")
    await actor.held("tool hold")
    waiting = platform.say("one", "next")
    await trace_of(world, waiting)
    await die(world)
    actor.release()
    nobody = replace(CLOSED, admission=Admission(policies={"fake": AccessPolicy()}))
    async with World(store_url, actor, [platform], settings=nobody) as after:
        traces = [await until_ended(after, each, "dead") for each in (running, waiting)]
        assert [each["why"] for each in traces] == ["revoked", "revoked"]
    assert platform.texts("one") == []
    assert len(actor.attempts) == 1


class Sharing:
    """Says something, hears what is written meanwhile, and never ends."""

    def __init__(self) -> None:
        self.works, self.go, self.heard = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """A turn that others join."""
        await turn.calling()
        turn.stream("I am at it")
        self.works.set()
        await self.go.wait()
        if await turn.joined():
            self.heard.set()
        await asyncio.Event().wait()
        return Answer("never")


async def shared(platform: FakePlatform, agent: Sharing) -> None:
    """A turn of ann's that bob joined."""
    platform.say("g", "clean up", user_id="ann", **TOPIC)
    await happened(agent.works)
    if isinstance(platform, EditingPlatform):
        await told(platform, "g", "I am at it")
    platform.say("g", "and the rest", user_id="bob", **TOPIC)
    await platform.until(lambda: platform.acknowledged == 2)
    agent.go.set()
    await happened(agent.heard)


@pytest.mark.parametrize("kind", [FakePlatform, EditingPlatform])
@pytest.mark.parametrize("how", ["revoked", "removed from the settings"])
async def test_others_in_a_turn_get_a_notice_why_it_was_stopped(
    store_url: str, kind: type[FakePlatform], how: str
) -> None:
    platform, agent = kind(), Sharing()
    world = World(store_url, agent, [platform], settings=replace(SHOWN, admission=EVERYBODY))
    await world.start()
    await shared(platform, agent)
    if how == "revoked":
        await world.gateway.people.revoke("fake", "bob")
    else:
        await die(world)
        world = World(store_url, agent, [platform], settings=replace(SHOWN, admission=CLOSED.admission))
        await world.start()
    await told(platform, "g", people_texts.stopped_with_other())
    assert len(platform.texts("g")) == 1
    await world.stop()


class Finishing:
    """Shows its first text, and the rest when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """The whole answer is more than was shown."""
        await turn.calling()
        turn.stream("The plan")
        await self.go.wait()
        return Answer("The plan is secret")


async def ask_as(platform: FakePlatform, user: str) -> None:
    """Somebody else is answered as ever."""
    platform.say("two", "and now?", user_id=user)
    await told(platform, "two", "secret")


@pytest.mark.parametrize(("kind", "left"), [(FakePlatform, []), (EditingPlatform, [outbox_texts.ended("revoked")])])
async def test_an_answer_that_waits_in_flood_control_is_not_for_the_revoked(
    store_url: str, kind: type[FakePlatform], left: list[str]
) -> None:
    """What is on the screen is finished without the answer, and no cursor is left."""
    flood = SendFault(TryLater("slow down", 300.0))
    platform, agent = kind(faults=[flood] if kind is FakePlatform else [None, flood]), Finishing()
    settings = replace(SHOWN, admission=EVERYBODY)
    async with World(store_url, agent, [platform], ManualClock(), settings) as world:
        message = platform.say("one", "what is the plan?", user_id="ann")
        if kind is EditingPlatform:
            await told(platform, "one", "The plan |")
        agent.go.set()
        await until_read(
            lambda: trace_of(world, message), lambda trace: any(each["error"] for each in trace["replies"])
        )
        await world.gateway.people.revoke("fake", "ann")
        await while_time_passes(world, world.clock.sleep(400), step_s=20)
        await platform.until(lambda: platform.texts("one") == left)
        await ask_as(platform, "bob")
    assert platform.texts("one") == left


async def test_a_command_of_somebody_revoked_does_nothing(store_url: str) -> None:
    """Buttons are commands, too."""
    platform, actor = FakePlatform(), Actor()
    async with World(
        store_url, actor, [platform], settings=replace(CLOSED, admission=Admission(policies={"fake": OPEN}))
    ) as world:
        await ask(platform, "one", "hello")
        before = await session_of(world, platform, "one")
        await world.gateway.people.revoke("fake", "bob")
        platform.say("one", "/new", user_id="bob")
        await ask(platform, "one", "again")
        assert await session_of(world, platform, "one") == before


async def test_an_owner_by_pairing_may_use_the_owners_commands(store_url: str) -> None:
    platform = FakePlatform()
    settings = replace(CLOSED, rights=Rights(owners=("fake:ann",)))
    async with World(store_url, Actor(), [platform], settings=settings) as world:
        platform.say("b", "hello", user_id="bob")
        code = (await told(platform, "b", "everturn pair approve")).split("approve ")[1][:8]
        await world.gateway.people.approve_code(code, "fake", owner=True)
        platform.say("b", "/whoami", user_id="bob")
        assert "owner" in await told(platform, "b", "Here you are")


async def test_an_owner_by_pairing_may_say_what_their_messages_do(store_url: str) -> None:
    """/queue and /steer with a text are messages, if their author may use them: the rows count as the settings do."""
    platform, actor = FakePlatform(), Actor()
    gated = Rights(scopes={"fake:dm": ChatRights(admins=("ann",))})
    async with World(store_url, actor, [platform], settings=replace(CLOSED, rights=gated)) as world:
        for user, owner in (("bob", True), ("eve", False)):
            await world.gateway.people.allow("fake", user, owner=owner)
            platform.say(user, "/queue the words", user_id=user)
        await told(platform, "bob", answer_to("the words"))
        await told(platform, "eve", "Only the admins of this chat may use /queue")
    assert [each.text for each in actor.attempts] == ["the words"]


async def test_a_death_right_after_the_rows_leaves_nobody_in_or_out_by_half(store_url: str) -> None:
    """Approving and revoking are committed, nobody got a notice and nothing ended here: the next process does it."""
    platform, actor = FakePlatform(), Actor()
    world = World(store_url, actor, [platform], settings=CLOSED)
    await world.start()
    platform.say("b", "hello", user_id="bob")
    code = (await told(platform, "b", "everturn pair approve")).split("approve ")[1][:8]
    running = platform.say("one", "hold")
    await actor.held("hold")
    now, notice = world.clock.now(), world.gateway.instance.ids.next()
    await world.store.run(revoke, "fake", "ann", now)
    await world.store.run(approve_code, code, None, Approval(at=now, notice=notice))
    await die(world)
    async with world:
        await told(platform, "b", "You are approved")
        assert (await trace_of(world, running))["state"] == "dead"
    assert (len(actor.attempts), platform.texts("one")) == (1, [])
