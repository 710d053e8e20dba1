"""Matrix with real gateways, a real homeserver and kill -9: the conversation goes on, nothing is lost, nothing doubled."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest

from everturn.inbox.rows.inbox import move_cursor
from everturn.store.open import open_store
from everturn.testing.model import ModelServer, ScriptedModel
from tests.crash import recorded
from tests.crash.gateways import Gateway
from tests.crash.homeservers import invited, matrix_gateway
from tests.crash.matrix_processes import DIED, DONE, MatrixCrashProcess, run_to_exit
from tests.crash.paced import asking
from tests.crash.processes import run_process
from tests.synapse import Person, SynapseServer

SAID = ("words", "file", "edit", "invitation")
AT_THE_BORDER = ("inbox.", "cursor.", "media.", "preview.", "send.")  # the other points are those of any platform
VISITS = recorded.visits({what: f"matrix {what}" for what in SAID}, AT_THE_BORDER)


@dataclass
class Talk:
    """Ann, the account that she talks to, and the model behind it."""

    ann: Person
    room: str
    bot: Person
    gateway: Gateway
    model: ScriptedModel

    async def asks(self, text: str) -> None:
        """Ask, and wait for the answer."""
        self.ann.says(self.room, text)
        await self.answered(text)

    async def answered(self, text: str) -> None:
        """Wait for the answer."""
        seen = self.ann.seen
        await self.ann.until(lambda: f"answer to {text}" in seen.screen(self.room).texts(self.bot.user_id))

    async def session_id(self) -> str:
        """Her session in her room."""
        chat = f"{quote(self.room, safe='')}:@{quote(self.ann.user_id, safe='')}"
        return str((await self.gateway.session(chat))["session_id"])


@asynccontextmanager
async def talking(folder: Path, synapse: SynapseServer) -> AsyncIterator[Talk]:
    bot, ann = synapse.stranger("bot"), synapse.stranger("ann")
    async with ModelServer() as model, matrix_gateway(folder, synapse.url, bot, **asking(model)) as gateway:
        await gateway.up()
        yield Talk(ann, await invited(ann, bot), bot, gateway, model.model)


@pytest.mark.prove
async def test_matrix_goes_on_with_its_session_and_whole_history_after_kill_nine_idle_and_in_a_turn(
    tmp_path: Path, synapse: SynapseServer
) -> None:
    """The proof of the platform: same session id, and the model's request holds all that was said before."""
    async with talking(tmp_path, synapse) as talk:
        await talk.asks("tell me one")
        first = await talk.session_id()
        await talk.gateway.killed()  # idle
        await talk.gateway.up()
        await talk.asks("tell me two")
        talk.model.fail("stall", text="three")
        talk.ann.says(talk.room, "tell me three")
        await talk.model.until(lambda: any("three" in each.asked.text for each in talk.model.seen))
        await talk.gateway.killed()  # in a turn
        await talk.gateway.up()
        await talk.answered("tell me three")
        await talk.asks("tell me four")
        assert await talk.session_id() == first
    request = talk.model.seen[-1].body
    assert all(f"answer to tell me {word}" in request for word in ("one", "two", "three"))
    assert all(request.count(f'"tell me {word}"') == 1 for word in ("one", "two", "three", "four"))


class Deaths:
    """Processes in homes of their own, one after the other, all with one account. `what` is said to each: `words` (a text), a
    `file`, a text with an `edit` of it, or a text with the `invitation` to the room.
    """

    def __init__(self, synapse: SynapseServer, folder: Path, what: str = "words") -> None:
        self._what = what
        self._synapse = synapse
        self._folder = folder
        self._bot = synapse.stranger("bot")
        self._ann = synapse.stranger("ann")

    def at(self, point: str, hit: int) -> None:
        """Die at this hit. The next process answers, once."""
        process = self._prepared(f"{point}-{hit}", point, hit)
        assert run_process(run_to_exit, process) == DIED, (point, hit)
        assert run_process(run_to_exit, replace(process, point="")) == DONE, (point, hit)
        texts = self._ann.screen(process.room).texts(self._bot.user_id)
        assert len(texts) == 1, (point, hit, texts)
        assert texts[0].startswith(process.answer), (point, hit, texts)
        assert self._what != "words" or texts == [process.answer], (point, hit, texts)

    def at_the_first_place(self) -> None:
        """Die when a new home has stored from where it reads: what is said then is read by the next process."""
        process = self._prepared("first", "cursor.moved", 1, new_home=True)
        assert run_process(run_to_exit, process) == DIED
        self._ann.says(process.room, "first")
        assert run_process(run_to_exit, replace(process, point="")) == DONE
        assert self._ann.screen(process.room).texts(self._bot.user_id) == [process.answer]

    def visited(self) -> dict[str, int]:
        """How often a process without a death passes each point."""
        file = self._folder / "visited"
        process = self._prepared("all", "", 0)
        assert run_process(run_to_exit, replace(process, visited=str(file))) == DONE
        hits: dict[str, int] = json.loads(file.read_bytes())
        return hits

    def _prepared(self, name: str, point: str, hit: int, *, new_home: bool = False) -> MatrixCrashProcess:
        """A home that has read up to now, and something said since; in a new one, neither."""
        url, room, bot = f"sqlite:///{self._folder / f'{name}.db'}", self._ann.direct(self._bot.user_id), self._bot
        if self._what != "invitation":
            bot.joins(room)
        if not new_home:
            asyncio.run(read_up_to(url, bot.user_id, bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]))
            self._say(room, name)
        watcher = (self._ann.user_id, self._ann.token)
        answer = "echo: [document" if self._what == "file" else f"echo: {name}"
        return MatrixCrashProcess(url, self._synapse.url, bot.user_id, bot.token, watcher, room, answer, point, hit)

    def _say(self, room: str, name: str) -> None:
        if self._what == "file":
            self._ann.sends_file(room, b"words", f"{name}.txt", "text/plain")
            return
        number = self._ann.says(room, name)
        if self._what == "edit":
            self._ann.edits(room, number, f"{name} or so")


async def read_up_to(url: str, account: str, place: str) -> None:
    """Store the cursor, as an earlier process left it."""
    store = await open_store(url)
    await store.run(move_cursor, "matrix", account, place, time.time())
    await store.close()


@pytest.mark.prove
@pytest.mark.parametrize("what", SAID)
def test_matrix_passes_the_points_that_were_recorded(tmp_path: Path, synapse: SynapseServer, what: str) -> None:
    recorded.check(f"matrix {what}", Deaths(synapse, tmp_path, what).visited())


@pytest.mark.prove
@pytest.mark.parametrize(("what", "point"), VISITS)
def test_a_death_at_a_point_of_the_border_to_matrix_loses_and_doubles_nothing(
    tmp_path: Path, synapse: SynapseServer, what: str, point: str
) -> None:
    """What the homeserver has and is not stored is repeated under the same key. An edit that comes after its message began a turn
    changes nothing: it is answered once, as either.
    """
    deaths = Deaths(synapse, tmp_path, what)
    for hit in range(1, recorded.hits_of(f"matrix {what}")[point] + 1):
        deaths.at(point, hit)


@pytest.mark.prove
def test_a_death_when_a_new_home_has_stored_from_where_it_reads_loses_nothing(
    tmp_path: Path, synapse: SynapseServer
) -> None:
    Deaths(synapse, tmp_path).at_the_first_place()


def test_a_death_between_a_send_to_matrix_and_its_commit_doubles_nothing(
    tmp_path: Path, synapse: SynapseServer
) -> None:
    Deaths(synapse, tmp_path).at("send.after", 1)
