"""Whole gateways that talk on the local Telegram: what people see there, whatever Telegram asks of us."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import ToolCall
from everturn.outbox.rules.outbox_texts import LEFT
from everturn.outbox.rules.streaming import Display, Pace
from everturn.people.rows.access import revoke
from everturn.people.rules.access import AccessPolicy, Admission
from everturn.store.open import open_store
from everturn.testing import ScriptedAgent, World
from everturn.testing.telegram import Person, Telegram, group, upgrade
from everturn.turns.rules.turn_texts import no_longer_open
from tests.contracts.telegram import TelegramDriver
from tests.crash.streaming import UNHURRIED, FastClock

A_SECOND_LASTS = 1 / 2000
EAGER = Settings(
    burst_s=0.0, drain_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1)), patience=UNHURRIED
)


class Teller:
    """Streams the first text, waits until it is released, and answers."""

    def __init__(self, first: str, answer: str) -> None:
        self._first = first
        self._answer = answer
        self.go_on = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """The first text, then all of it."""
        await turn.calling()
        turn.stream(self._first)
        await self.go_on.wait()
        return Answer(self._answer)


@asynccontextmanager
async def talking(folder: Path, agent: Agent, settings: Settings = EAGER, **own: Any) -> AsyncIterator[TelegramDriver]:
    """A gateway on the local Telegram, for which seconds are short."""
    url, clock = f"sqlite:///{folder / 'everturn.db'}", FastClock(time.time(), 1 / A_SECOND_LASTS)
    async with TelegramDriver() as driver, World(url, agent, [driver.connected(**own)], clock, settings):
        yield driver


async def test_a_long_series_of_flood_waits_on_the_last_edit_is_waited_out(tmp_path: Path) -> None:
    """Far more than a send may fail: each wait was ordered. The first bubble is edited in the end, and stays alone."""
    agent = Teller("one two", "one two three")
    async with talking(tmp_path, agent) as driver:
        driver.says("hello")
        await driver.until(lambda: driver.texts() == ["one two ▌"])
        driver.telegram.fail("flood", "editMessageText", times=20, retry_after=30)
        agent.go_on.set()
        await driver.until(lambda: driver.texts() == ["one two three"])
        assert len(driver.telegram.called_with("sendMessage")) == 1
        assert [call.fault for call in driver.telegram.calls if call.method == "editMessageText"].count("flood") == 20


async def test_words_that_became_silence_are_deleted(tmp_path: Path) -> None:
    agent = Teller("Let me see", "(silent)")
    async with talking(tmp_path, agent) as driver:
        driver.says("hello")
        await driver.until(lambda: driver.texts() == ["Let me see ▌"])
        agent.go_on.set()
        await driver.until(lambda: not driver.texts())
        assert len(driver.telegram.called_with("deleteMessage")) == 1


async def test_an_answer_in_a_group_names_its_message_unless_that_was_deleted(tmp_path: Path) -> None:
    async with talking(tmp_path, ScriptedAgent()) as driver:
        team, ann = group(driver.telegram, "Team"), driver.person("Ann")
        first = ann.says("first", chat=team)
        await driver.until(lambda: driver.telegram.texts(team) == ["echo: first"])
        assert driver.telegram.screen(team)[-1]["reply_to_message"]["message_id"] == first
        ann.deletes(ann.says("second", chat=team), chat=team)
        await driver.until(lambda: len(driver.telegram.texts(team)) == 2)
        assert "reply_to_message" not in driver.telegram.screen(team)[-1]
        driver.says("alone")
        await driver.until(lambda: driver.texts() == ["echo: alone"])
        assert not driver.telegram.called_with("sendMessage")[-1].get("reply_parameters")


async def test_an_edit_made_while_nobody_was_there_counts(tmp_path: Path) -> None:
    """Message and edit arrive together then. The next process gets them again: that changes nothing."""
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    async with TelegramDriver() as driver:
        ann = driver.person("Ann")
        ann.edits(ann.says("hello"), "hello edited")
        for said in ("one", "two"):
            async with World(url, ScriptedAgent(), [driver.connected()]):
                ann.says(said)
                await driver.until(lambda said=said: f"echo: {said}" in driver.texts("Ann"))  # type: ignore[misc]
            driver.deliver_again()
        assert driver.texts("Ann") == ["echo: hello edited", "echo: one", "echo: two"]


async def test_a_message_is_marked_while_it_is_worked_on(tmp_path: Path) -> None:
    """Telegram allows some emoji only: with another one the turn goes on as well."""
    agent = Teller("one two", "one two three")
    chats = {"telegram:1001": {"reaction": "👀"}, "telegram:1002": {"reaction": "🛠"}}
    display = replace(EAGER.display, by_chat=chats)
    async with talking(tmp_path, agent, replace(EAGER, display=display)) as driver:
        messages = [driver.person(name).says("hello") for name in ("Ann", "Bob")]
        rooms = driver.telegram.state.rooms
        await driver.until(lambda: rooms[1001].messages[messages[0]].get("reactions") == ["👀"])
        await driver.until(
            lambda: all(driver.texts(name) for name in ("Ann", "Bob"))
        )  # both answers have begun to show
        agent.go_on.set()
        await driver.until(lambda: rooms[1001].messages[messages[0]]["reactions"] == [])
        await driver.until(lambda: driver.texts("Bob") == ["one two three"])


async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(tmp_path: Path) -> None:
    """Also for a turn that runs meanwhile, for the list of chats that names the old number, and after a restart."""
    agent, url = Counter(), f"sqlite:///{tmp_path / 'everturn.db'}"
    async with TelegramDriver() as driver:
        team, ann, telegram = group(driver.telegram, "Team", "group"), driver.person("Ann"), driver.telegram
        admission = Admission(policies={"telegram": AccessPolicy(chats=(str(team),))})
        for chat, text in ((team, "1"), (team, "hold"), (None, "3"), (None, "4")):
            async with World(url, agent, [driver.connected()], settings=replace(EAGER, admission=admission)):
                ann.says(text, chat=chat or telegram.state.rooms[team].moved_to)
                if text == "hold":
                    await agent.holds.wait()
                    upgrade(telegram, team)
                    await telegram.until(lambda: len(telegram.state.confirmed) == 4)
                    agent.go_on.set()
                await answered(telegram, team, f"{text} in a session of {agent.turns + 1}")
    assert shown(telegram, team)[-1] == "4 in a session of 4"


class Counter:
    """Says how many turns its session had; waits at "hold"."""

    def __init__(self) -> None:
        self.turns = 0
        self.holds, self.go_on = asyncio.Event(), asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Count."""
        if turn.text == "hold":
            self.holds.set()
            await self.go_on.wait()
        self.turns += 1
        said = sum(row.role == "user" for row in await turn.history())
        return Answer(f"{turn.text} in a session of {said}")


async def answered(telegram: Telegram, chat: int, text: str) -> None:
    """Wait for the answer, wherever the group is."""
    await telegram.until(lambda: text in shown(telegram, chat))


def shown(telegram: Telegram, chat: int) -> list[str]:
    """What was said in a group before and after it moved."""
    return telegram.texts(chat) + telegram.texts(telegram.state.rooms[chat].moved_to or 0)


class Asker:
    """Requests an approval, then answers."""

    async def run(self, turn: TurnContext) -> Answer:
        """One call that needs an approval."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        else:
            await turn.step("", [ToolCall("c1", "write", ask="May I?")], self._act)
        return Answer("It is done.")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "written"


async def pressed(driver: TelegramDriver, who: Person, question: int, chat: int) -> None:
    """Press the first button, and wait until it does not spin any more."""
    query = who.presses(question, "Allow once", chat)
    await driver.until(lambda: driver.telegram.state.presses[query])


async def test_a_button_works_after_a_restart_once_and_for_nobody_else(tmp_path: Path) -> None:
    """Every press is answered at once. A stranger's changes nothing, that of an old button says so."""
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    admission = Admission(policies={"telegram": AccessPolicy(allow=("1001",))})
    async with TelegramDriver() as driver:
        ann, bob, team = driver.person("Ann"), driver.person("Bob"), group(driver.telegram, "Team")
        settings = replace(EAGER, admission=admission)
        async with World(url, Asker(), [driver.connected()], settings=settings):
            ann.says("do it", chat=team)
            await driver.until(lambda: driver.telegram.texts(team))
        question = driver.telegram.screen(team)[-1]["message_id"]
        async with World(url, Asker(), [driver.connected()], settings=settings):
            await pressed(driver, bob, question, team)
            await pressed(driver, ann, question, team)
            await answered(driver.telegram, team, "It is done.")
            await pressed(driver, ann, question, team)
            await answered(driver.telegram, team, no_longer_open())
        assert len(driver.telegram.texts(team)) == 4


class MessageWriter:
    """Requests an approval at "act", never ends at "hold", and echoes any other text."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.acted: list[str] = []
        self.holds = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Do what the text says."""
        self.begun.append(turn.text)
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        elif turn.text == "act":
            await turn.step("", [ToolCall("c1", "write", ask="May I?")], self._act)
        if turn.text == "hold":
            self.holds.set()
            await asyncio.Event().wait()
        return Answer(f"echo: {turn.text}")

    async def _act(self, call: ToolCall, _key: str) -> str:
        self.acted.append(call.id)
        return "written"


@pytest.mark.parametrize("while_stopped", ["", "while the gateway is stopped"])
async def test_a_revoked_persons_button_resume_queue_and_task_are_refused_at_once(
    tmp_path: Path, while_stopped: str
) -> None:
    """A task that awaits their approval, one that runs or was interrupted, and what is queued behind it. Others are answered."""
    url, agent = f"sqlite:///{tmp_path / 'everturn.db'}", MessageWriter()
    everybody = Admission(policies={"telegram": AccessPolicy(allow=("1001", "1002"))})
    settings = replace(EAGER, admission=everybody, busy="queue")
    async with TelegramDriver() as driver:
        ann, bob, team = driver.person("Ann"), driver.person("Bob"), group(driver.telegram, "Team")
        async with World(url, agent, [driver.connected()], settings=settings) as world:
            await asked_for_all(driver, agent, ann, team)
            if not while_stopped:
                ended = await world.gateway.people.revoke("telegram", "1001")
                assert sum(each.turn is not None for each in ended) == 2
                await refused(driver, agent, ann, bob)
        if while_stopped:
            store = await open_store(url)
            await store.run(revoke, "telegram", "1001", time.time())
            await store.close()
            async with World(url, agent, [driver.connected()], settings=settings):
                await refused(driver, agent, ann, bob)
    assert (agent.begun, agent.acted) == (["act", "hold", "bob is here"], [])


async def asked_for_all(driver: TelegramDriver, agent: MessageWriter, who: Person, team: int) -> None:
    """A task that awaits an approval, one that runs, and messages behind it."""
    who.says("act")
    await driver.until(lambda: driver.texts("Ann"))
    for text in ("hold", "wait"):
        who.says(text, chat=team)
    await agent.holds.wait()
    await driver.until(lambda: len(driver.telegram.state.confirmed) == 3)


async def refused(driver: TelegramDriver, agent: MessageWriter, revoked: Person, other: Person) -> None:
    """The press and the messages of somebody who was revoked do nothing; somebody else is answered behind them."""
    question = driver.telegram.screen(1001)[-1]["message_id"]
    await pressed(driver, revoked, question, 1001)
    revoked.says("am I still here?")
    other.says("bob is here")
    await driver.until(lambda: driver.texts("Bob") == ["echo: bob is here"])
    assert (len(driver.texts("Ann")), agent.acted) == (1, [])


@pytest.mark.parametrize(("label", "said"), [("Send it again", "one two three"), ("It arrived", LEFT)])
async def test_where_the_owner_wants_it_the_chat_is_asked_whether_an_answer_arrived(
    tmp_path: Path, label: str, said: str
) -> None:
    """Its first text was sent, and the response was lost. The delivery request has buttons, and is sent once."""
    agent = Teller("one two", "one two three")
    agent.go_on.set()
    async with talking(tmp_path, agent, replace(EAGER, on_unknown_delivery="ask")) as driver:
        driver.telegram.fail("reset", "sendMessage", accepted=True)
        driver.telegram.fail("server", "sendMessage")  # the request is sent again, too
        ann = driver.person("Ann")
        ann.says("hello")
        await driver.until(lambda: len(driver.texts("Ann")) == 2)
        question = driver.telegram.screen(ann.id)[-1]["message_id"]
        query = ann.presses(question, label)
        await driver.until(lambda: any(said in text for text in driver.texts("Ann")[2:]))
        await driver.until(lambda: driver.telegram.state.presses[query])
        assert sum("/resend" in text for text in driver.texts("Ann")) == 1
