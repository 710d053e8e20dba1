"""A gateway on Matrix, with a real Synapse: what people see in the end, whatever happened on the way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.app.platforms import chat_platforms, close_all
from everturn.clock import SystemClock
from everturn.inbox.rows.inbox import read_cursor
from everturn.lifecycle.settings import Settings
from everturn.outbox.rules.streaming import Display, Pace
from everturn.people.rows.access import approve_person, revoke
from everturn.people.rules import people_texts
from everturn.people.rules.access import CODE_CHARS, AccessPolicy, Admission
from everturn.platform.matrix import MatrixPlatform
from everturn.settings import Config, MatrixConfig, PlatformsConfig
from everturn.store.open import open_store
from everturn.testing import ScriptedAgent, World
from tests.contracts.matrix import MatrixDriver
from tests.synapse import SynapseServer


@pytest.fixture
async def driver(synapse: SynapseServer) -> AsyncIterator[MatrixDriver]:
    async with MatrixDriver(None, synapse) as driver:
        yield driver


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'everturn.db'}"


async def reads(driver: MatrixDriver) -> None:
    """Wait until a place is committed, and read on from."""
    await driver.proxy.until(lambda: any(each.query.get("since") for each in driver.proxy.calls))


class Held:
    """Answers when it is released, and then always."""

    def __init__(self) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        self.began.set()
        await self.go_on.wait()
        return Answer(f"echo: {turn.text}")


class Grows:
    """Streams a word more each time it is released, then ends."""

    def __init__(self, *text: str) -> None:
        self._text = text
        self.go_on = asyncio.Semaphore(0)

    async def run(self, turn: TurnContext) -> Answer:
        for place in range(1, len(self._text) + 1):
            turn.stream(" ".join(self._text[:place]))
            await self.go_on.acquire()
        return Answer(" ".join(self._text))


async def test_an_answer_grows_in_one_message_and_people_see_that_they_are_heard(
    driver: MatrixDriver, tmp_path: Path
) -> None:
    ann, room, us = driver.person("ann"), driver.room("ann"), driver.bot.user_id
    agent = Grows("one two three", "**four**")
    settings = Settings(burst_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1, cursor=" |")))
    async with World(database(tmp_path), agent, [driver.connected()], settings=settings) as world:
        await reads(driver)
        asked = ann.says(room, "count")
        await ann.until(lambda: driver.texts("ann") == ["one two three |"])
        await ann.until(lambda: ann.screen(room).read.get(us) == asked)
        await ann.until(lambda: us in ann.screen(room).typing)
        agent.go_on.release()
        await ann.until(lambda: driver.texts("ann") == ["one two three **four** |"])
        agent.go_on.release()
        await ann.until(lambda: driver.texts("ann") == ["one two three **four**"])
        await world.gateway.outbox.quiet()
    (shown,) = ann.screen(room).by(us)
    assert shown.content["formatted_body"] == "one two three <strong>four</strong>"


@pytest.mark.prove
async def test_who_comes_into_a_chat_of_two_does_not_continue_the_conversation_of_who_left(
    driver: MatrixDriver, tmp_path: Path
) -> None:
    """Promise 8: the room is a chat of two again, and its session is still the one of the person who left."""
    ann, bob, room = driver.person("ann"), driver.person("bob"), driver.room("ann")
    agent = ScriptedAgent(answer=lambda turn: f"{turn.text}: {turn.earlier} messages before")
    async with World(database(tmp_path), agent, [driver.connected()]) as world:
        await reads(driver)
        for words, before in (("my secret", 0), ("and more", 2)):
            ann.says(room, words)
            await ann.until(lambda told=f"{words}: {before} messages before": told in driver.texts("ann"))  # type: ignore[misc]
        ann.invites(room, bob.user_id)
        bob.joins(room)
        ann.leaves(room)
        bob.says(room, "go on")
        await bob.until(
            lambda: [each.text for each in bob.screen(room).by(driver.bot.user_id)][-1:] == ["go on: 0 messages before"]
        )
        await world.gateway.outbox.quiet()


@pytest.mark.prove
async def test_who_may_invite_is_what_the_settings_and_the_rows_say(driver: MatrixDriver, tmp_path: Path) -> None:
    """Promise 11, as the gateway is composed."""
    people, bot = [driver.person(name) for name in ("ann", "bob", "eve", "zoe")], driver.bot
    ann, bob, eve, _ = people
    own = MatrixConfig(
        enabled=True, homeserver=driver.proxy.url, user=bot.user_id, token=bot.token, allow=(ann.user_id, eve.user_id)
    )
    rooms = [each.direct(bot.user_id) for each in people]
    store = await open_store(database(tmp_path))
    await store.run(approve_person, "matrix", [bob.user_id], None, 0.0, owner=False)
    await store.run(revoke, "matrix", eve.user_id, 0.0)
    made = chat_platforms(Config(platforms=PlatformsConfig(matrix=own)), tmp_path, SystemClock(), store)
    assert isinstance(made[0], MatrixPlatform)
    await anext(made[0].inbound(None))
    for who, room in zip(people, rooms, strict=True):
        await who.until(lambda who=who, room=room: who.seen.membership(room, bot.user_id) in {"join", "leave"})  # type: ignore[misc]
    await close_all(made)
    await store.close()
    assert set(bot.asks("GET", "/joined_rooms")["joined_rooms"]) == set(rooms[:2])


@pytest.mark.prove
async def test_a_stranger_in_a_chat_of_two_gets_a_code_once_and_is_let_in_by_it(
    driver: MatrixDriver, tmp_path: Path
) -> None:
    """Promise 11, in a chat that the account is in already: an invitation to another one would be declined."""
    eve, room = driver.person("eve"), driver.room("eve")
    settings = Settings(burst_s=0.0, admission=Admission(policies={"matrix": AccessPolicy(unknown="pair")}))
    async with World(database(tmp_path), ScriptedAgent(), [driver.connected()], settings=settings) as world:
        await reads(driver)
        last = [eve.says(room, text) for text in ("hello", "anybody there?")][-1]
        await driver.proxy.until(lambda: last in driver.proxy.delivered.taken)
        await eve.until(lambda: driver.texts("eve"))
        await world.gateway.outbox.quiet()
        (asked,) = driver.texts("eve")
        code = asked.split("everturn pair approve ")[1][:CODE_CHARS]
        paired = await world.gateway.people.approve_code(code, "matrix", owner=False)
        eve.says(room, "hello again")
        await eve.until(lambda: "echo: hello again" in driver.texts("eve"))
        await world.gateway.outbox.quiet()
    assert paired.person == f"matrix:{eve.user_id}"
    assert driver.texts("eve") == [asked, people_texts.approved(), "echo: hello again"]


@pytest.mark.prove
async def test_what_waits_is_answered_as_it_was_edited_and_what_was_deleted_is_not(
    driver: MatrixDriver, tmp_path: Path
) -> None:
    ann, room, agent = driver.person("ann"), driver.room("ann"), Held()
    async with World(database(tmp_path), agent, [driver.connected()]) as world:
        await reads(driver)
        ann.says(room, "first")
        await agent.began.wait()
        changed, gone = ann.says(room, "secnod"), ann.says(room, "third")
        ann.edits(room, changed, "second")
        ann.redacts(room, gone)
        last = ann.says(room, "last")
        await driver.proxy.until(lambda: last in driver.proxy.delivered.taken)
        agent.go_on.set()
        await ann.until(lambda: "last" in " ".join(driver.texts("ann")))
        await world.gateway.outbox.quiet()
    said = " ".join(driver.texts("ann"))
    assert [said.count(word) for word in ("first", "second", "last", "secnod", "third")] == [1, 1, 1, 0, 0]


@pytest.mark.prove
async def test_in_a_room_what_waits_is_answered_as_it_was_edited_and_what_others_edit_is_not_for_us(
    driver: MatrixDriver, tmp_path: Path
) -> None:
    ann, bob, team, agent = driver.person("ann"), driver.person("bob"), driver.group("T", "ann", "bob"), Held()
    ours = driver.bot.says(team, "I am here")
    async with World(database(tmp_path), agent, [driver.connected(listening=False)]) as world:
        await reads(driver)
        ann.says(team, "first", reply_to=ours)
        await agent.began.wait()
        changed, among_people = ann.says(team, "secnod", reply_to=ours), bob.says(team, "lnuch?")
        bob.edits(team, changed, "not his to change")
        ann.edits(team, changed, "second")
        last = bob.edits(team, among_people, "lunch?")
        await driver.proxy.until(lambda: last in driver.proxy.delivered.taken)
        agent.go_on.set()
        await ann.until(lambda: "second" in " ".join(ann.screen(team).texts(driver.bot.user_id)))
        await world.gateway.outbox.quiet()
    said = " ".join(ann.screen(team).texts(driver.bot.user_id))
    assert [said.count(word) for word in ("first", "second", "secnod", "not his", "lunch")] == [1, 1, 0, 0, 0]


@pytest.mark.prove
async def test_a_homeserver_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    own_synapse: SynapseServer, tmp_path: Path
) -> None:
    """Promises 1, 2 and 6: killed while an answer is about to be sent, and while people write."""
    driver, agent = MatrixDriver(None, own_synapse), Held()
    ann, room = driver.person("ann"), driver.room("ann")
    async with driver, World(database(tmp_path), agent, [driver.connected()]) as world:
        await reads(driver)
        ann.says(room, "before")
        await agent.began.wait()
        driver.server.kill()
        agent.go_on.set()
        await driver.proxy.until(lambda: any("/send/" in each.path for each in driver.proxy.calls))
        driver.server.start()
        ann.says(room, "after")
        await ann.until(lambda: "echo: after" in driver.texts("ann"))
        await world.gateway.outbox.quiet()
    assert driver.texts("ann") == ["echo: before", "echo: after"]


@pytest.mark.prove
async def test_a_reply_whose_answer_was_lost_appears_once(driver: MatrixDriver, tmp_path: Path) -> None:
    """Promise 6: it is looked for, and found by its key, although the server knows nothing of the transaction any more."""
    ann, room = driver.person("ann"), driver.room("ann")
    async with World(database(tmp_path), ScriptedAgent(), [driver.connected()]) as world:
        await reads(driver)
        driver.fail("unknown_but_done")
        ann.says(room, "hello")
        await driver.proxy.until(lambda: any("/messages" in each.path for each in driver.proxy.calls))
        ann.says(room, "more")
        await ann.until(lambda: "echo: more" in driver.texts("ann"))
        await world.gateway.outbox.quiet()
        cursor = await world.store.read(read_cursor, "matrix", driver.bot.user_id)
    assert driver.texts("ann") == ["echo: hello", "echo: more"]
    assert sum("/send/" in each.path for each in driver.proxy.calls) == 2
    assert cursor
