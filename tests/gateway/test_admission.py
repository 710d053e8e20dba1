"""Who may speak, on every path: at the door, in the queue, in a running turn, at a button, when a turn resumes."""

from dataclasses import replace

import pytest

from everturn.clock import SystemClock
from everturn.decide.admission import OPEN, Admission, Policy
from everturn.decide.rights import Rights
from everturn.gateway.lifecycle import Gateway
from everturn.gateway.parts import Settings
from everturn.model import Inbound, SessionSource
from everturn.store.open import open_store
from everturn.store.operations.admission import revoke
from everturn.store.operations.entries import list_entries
from everturn.store.operations.inbox import Outcome
from everturn.store.operations.pairing import Approval, approve_code
from everturn.testing import FakePlatform, World
from tests.gateway.scenes import Actor, answer_to, ask, die, life_of, session_of, told, until_ended

CLOSED = Settings(
    burst_s=0.0, busy="queue", admission=Admission(policies={"fake": Policy(allow=("ann",), unknown="pair")})
)


def said_by(user: str, text: str, chat: str = "one", **about: str) -> Inbound:
    source = SessionSource(platform="fake", chat_id=chat, user_id=user, **about)
    return Inbound(id=f"{user}/{text}", source=source, text=text)


async def test_a_platform_without_a_policy_admits_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Promise 11: what app.py forgets to open is closed."""
    store = await open_store(f"sqlite:///{tmp_path_factory.mktemp('home') / 'everturn.db'}")
    platform = FakePlatform()
    gateway = Gateway(store, Actor(), {"fake": platform}, SystemClock(), Settings())
    await gateway.start()
    assert (await gateway.intake.accept(said_by("ann", "hello"))).outcome is Outcome.DENIED
    assert await store.read(list_entries, "", 10) == []
    await gateway.stop(None)
    await store.close()


async def test_a_stranger_is_given_a_code_let_in_by_it_and_answered(store_url: str) -> None:
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
        await told(platform, "b", "You are let in")
        platform.say("b", "thanks", user_id="bob")
        await told(platform, "b", answer_to("thanks"))
    assert [each.words for each in actor.attempts] == ["hello", "thanks"]


async def test_too_long_words_of_a_stranger_are_not_kept_and_not_answered(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform], settings=replace(CLOSED, message_chars=10)) as world:
        platform.say("b", "x" * 11, user_id="bob")
        await ask(platform, "one", "hello")
        assert await world.store.read(list_entries, "", 10) != []
    assert platform.texts("b") == []


async def test_revoking_stops_the_running_turn_and_ends_what_waits(store_url: str) -> None:
    platform, actor = FakePlatform(), Actor()
    async with World(store_url, actor, [platform], settings=CLOSED) as world:
        running = platform.say("one", "hold")
        await actor.held("hold")
        waiting = platform.say("one", "next")
        await life_of(world, waiting)
        ended = await world.gateway.people.revoke("fake", "ann")
        assert [each.turn is not None for each in ended] == [True]
        lives = [await until_ended(world, each, "dead") for each in (running, waiting)]
        assert [each["why"] for each in lives] == ["revoked", "revoked"]
        await actor.until(lambda: not actor.holding)
        platform.say("one", "still there?")
        await platform.until(lambda: platform.acknowledged == 3)
    assert platform.texts("one") == []
    assert [each.words for each in actor.attempts] == ["hold"]


async def test_who_was_removed_from_the_settings_is_not_resumed(store_url: str) -> None:
    """What a death cut off, and what waits behind it, ends when its author may no longer speak."""
    platform, actor = FakePlatform(), Actor()
    world = World(store_url, actor, [platform], settings=CLOSED)
    await world.start()
    running = platform.say("one", "tool hold")
    await actor.held("tool hold")
    waiting = platform.say("one", "next")
    await life_of(world, waiting)
    await die(world)
    actor.release()
    nobody = replace(CLOSED, admission=Admission(policies={"fake": Policy()}))
    async with World(store_url, actor, [platform], settings=nobody) as after:
        lives = [await until_ended(after, each, "dead") for each in (running, waiting)]
        assert [each["why"] for each in lives] == ["revoked", "revoked"]
    assert platform.texts("one") == []
    assert len(actor.attempts) == 1


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


async def test_a_death_right_after_the_rows_leaves_nobody_in_or_out_by_half(store_url: str) -> None:
    """Letting in and turning out are committed, nobody was told and nothing ended here: the next life knows."""
    platform, actor = FakePlatform(), Actor()
    world = World(store_url, actor, [platform], settings=CLOSED)
    await world.start()
    platform.say("b", "hello", user_id="bob")
    code = (await told(platform, "b", "everturn pair approve")).split("approve ")[1][:8]
    running = platform.say("one", "hold")
    await actor.held("hold")
    now, notice = world.clock.now(), world.gateway.parts.ids.next()
    await world.store.run(revoke, "fake", "ann", now)
    await world.store.run(approve_code, code, None, Approval(at=now, notice=notice))
    await die(world)
    async with world:
        await told(platform, "b", "You are let in")
        assert (await life_of(world, running))["state"] == "dead"
    assert (len(actor.attempts), platform.texts("one")) == (1, [])
