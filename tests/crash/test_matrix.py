"""Matrix with real gateways, a real homeserver and kill -9 of both: the conversation goes on, nothing is lost, nothing doubled."""

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from everturn import points
from everturn.store.open import open_store
from everturn.store.operations.inbox import move_cursor
from everturn.testing_matrix import MatrixProxy
from everturn.testing_model import ModelServer, ScriptedModel
from tests.crash.gateways import Gateway
from tests.crash.homeservers import invited, matrix_gateway
from tests.crash.matrix_lives import DIED, DONE, MatrixLife, live
from tests.crash.paced import GROWING, PACE_S, asking, growing_words, out_loud
from tests.crash.processes import at_every_hit, run_process
from tests.synapse import Person, SynapseServer

KILLS = 2
TORTURE_KILLS = max(10, int(os.environ.get("KILLS", "150")) // 15)
PEOPLE = 4
FINISH_S = 180.0  # longer than the longest wait before a last try
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "path": "send"},
    {"kind": "flood", "path": "sync"},
    {"kind": "server", "path": "send", "accepted": True},
    {"kind": "server", "path": "send"},
    {"kind": "server", "path": "sync"},
    {"kind": "reset", "path": "send", "accepted": True},
    {"kind": "reset", "path": "send"},
    {"kind": "reset", "path": "sync"},
    {"kind": "slow", "path": "send", "seconds": 0.3},
    {"kind": "again"},
    {"kind": "repeat"},
    {"kind": "limited"},
    {"kind": "limited"},
    {"kind": "server", "path": "messages"},
    {"kind": "flood", "path": "messages"},
    {"kind": "slow", "path": "messages", "seconds": 1.5},  # longer than the next poll waits for it
    {"kind": "slow", "path": "state", "seconds": 1.5},
    {"kind": "server", "path": "state"},
    {"kind": "error", "path": "state", "code": 404, "errcode": ""},
    {"kind": "server", "path": "event"},
    {"kind": "error", "path": "event", "code": 403, "errcode": ""},
)
REVOKED: tuple[dict[str, Any], ...] = ({"kind": "error", "path": "send"}, {"kind": "error", "path": "sync"})  # and back
ON_ARRIVAL: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "path": "join", "retry_after_ms": 100},
    {"kind": "server", "path": "join"},
    {"kind": "reset", "path": "join", "accepted": True},
)


@dataclass
class Talk:
    """Ann, the account that she talks to, and the model behind it."""

    ann: Person
    room: str
    bot: Person
    gateway: Gateway
    model: ScriptedModel

    async def asks(self, words: str) -> None:
        """Ask, and wait for the answer."""
        self.ann.says(self.room, words)
        await self.answered(words)

    async def answered(self, words: str) -> None:
        """Wait for the answer."""
        seen = self.ann.seen
        await self.ann.until(lambda: f"answer to {words}" in seen.screen(self.room).texts(self.bot.user_id))

    async def session_id(self) -> str:
        """The session of her room."""
        return str((await self.gateway.session(quote(self.room, safe="")))["session_id"])


@asynccontextmanager
async def talking(folder: Path, synapse: SynapseServer) -> AsyncIterator[Talk]:
    bot, ann = synapse.stranger("bot"), synapse.stranger("ann")
    async with ModelServer() as model, matrix_gateway(folder, synapse.url, bot, **asking(model)) as gateway:
        await gateway.up()
        yield Talk(ann, await invited(ann, bot), bot, gateway, model.model)


@pytest.mark.timeout(900)
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
        talk.model.fail("stall", words="three")
        talk.ann.says(talk.room, "tell me three")
        await talk.model.until(lambda: any("three" in each.asked.words for each in talk.model.seen))
        await talk.gateway.killed()  # in a turn
        await talk.gateway.up()
        await talk.answered("tell me three")
        await talk.asks("tell me four")
        assert await talk.session_id() == first
    request = talk.model.seen[-1].body
    assert all(f"answer to tell me {word}" in request for word in ("one", "two", "three"))
    assert all(request.count(f'"tell me {word}"') == 1 for word in ("one", "two", "three", "four"))


@dataclass
class Story:
    """People who write, a homeserver that dies, a way to it that misbehaves, and a gateway that dies."""

    synapse: SynapseServer
    proxy: MatrixProxy
    gateway: Gateway
    bot: Person
    people: list[tuple[Person, str]]
    random: Random
    kinds: tuple[dict[str, Any], ...] = FAULTS
    asked: list[tuple[Person, str, str]] = field(default_factory=list)
    kills: int = 0
    homeserver_kills: int = 0
    faults: int = 0

    def write(self) -> None:
        """Somebody says something that nobody said before; its answer takes a while to grow."""
        who, room = self.random.choice(self.people)
        words = growing_words(len(self.asked))
        self.asked.append((who, room, words))
        who.says(room, words)

    def misbehave(self) -> None:
        self.proxy.fail(**self.random.choice(self.kinds))
        self.faults += 1

    async def die(self, kills: int) -> None:
        """Every third time the homeserver dies, too, while it is written to."""
        for kill in range(kills):
            await self.gateway.ready()
            for _ in range(4):
                self.write()
                self.misbehave()
                await self.gateway.lives_for(self.gateway.start_s * self.random.uniform(0.0, 0.2))
            if kill % 3 == 1:
                await asyncio.to_thread(self.synapse.restart)
                self.homeserver_kills += 1
            await self.gateway.killed()
            self.kills += 1
            self.write()
            await self.gateway.start()
        await self.gateway.ready()

    def bubbles(self, who: Person, room: str) -> list[str]:
        return who.seen.screen(room).texts(self.bot.user_id)

    async def answered(self) -> None:
        """Wait until everybody is, whole and without a cursor, with nothing more going wrong."""
        self.proxy.faults.clear()
        for who, room, words in self.asked:
            try:
                await who.until(
                    lambda who=who, room=room, words=words: f"answer to {words}" in self.bubbles(who, room),  # type: ignore[misc]
                    FINISH_S,
                )
            except TimeoutError:
                raise AssertionError(f"no answer to {words}\n{self.gateway.output}") from None

    def found(self) -> tuple[int, int, int]:
        """How many were lost, doubled, and how many bubbles say something else than an answer."""
        for who, room in self.people:
            who.screen(room)
        texts = [text for each in self.people for text in self.bubbles(*each)]
        counts = Counter(texts)
        answers = [f"answer to {words}" for _, _, words in self.asked]
        lost = sum(not counts[each] for each in answers)
        doubled = sum(max(0, counts[each] - 1) for each in answers)
        return lost, doubled, len(texts) - sum(counts[each] for each in answers)

    def grew(self) -> int:
        """How many changes of their answers people saw."""
        shown = [each for who, room in self.people for each in who.seen.screen(room).by(self.bot.user_id)]
        return sum(each.edits for each in shown)

    def totals(self, engine: str, seed: int) -> str:
        lost, doubled, others = self.found()
        return (
            f"matrix on {engine}, seed {seed}: {self.kills} kills, {self.homeserver_kills} of the homeserver, {self.faults}"
            f" faults, {len(self.asked)} messages, {self.grew()} changes of growing answers: {lost} lost, {doubled} doubled,"
            f" {others} bubbles left over"
        )


async def kill_under_faults(
    folder: Path, url: str, kills: int, synapse: SynapseServer, kinds: tuple[dict[str, Any], ...]
) -> tuple[str, tuple[int, ...]]:
    seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
    bot = synapse.stranger("bot")
    people = [synapse.stranger(f"p{number}") for number in range(PEOPLE)]
    async with MatrixProxy(synapse.url) as proxy, ModelServer(ScriptedModel(pace_s=PACE_S)) as model:
        own = {"EVERTURN_STORE_URL": url, **GROWING, **asking(model)}
        gateway = matrix_gateway(folder, proxy.url, bot, **own)
        async with gateway:
            await gateway.up()
            for fault in ON_ARRIVAL:
                proxy.fail(**fault)
            rooms = [(each, await invited(each, bot)) for each in people]
            story = Story(synapse, proxy, gateway, bot, rooms, Random(seed), kinds)
            await story.die(kills)
            await story.answered()
            assert await gateway.stopped() == 0, gateway.output
    return story.totals(url.partition(":")[0], seed), story.found()


@pytest.mark.timeout(900)
async def test_a_few_kills_with_a_homeserver_that_dies_lose_and_double_nothing(
    tmp_path: Path, synapse: SynapseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    totals, found = await kill_under_faults(tmp_path, f"sqlite:///{tmp_path / 'everturn.db'}", KILLS, synapse, FAULTS)
    out_loud(capsys)(totals)
    assert found == (0, 0, 0), totals


@pytest.mark.torture
@pytest.mark.timeout(3600)
async def test_many_kills_with_a_homeserver_that_dies_lose_and_double_nothing(
    tmp_path: Path, store_url: str, synapse: SynapseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    totals, found = await kill_under_faults(tmp_path, store_url, TORTURE_KILLS, synapse, (*FAULTS, *REVOKED))
    out_loud(capsys)(totals)
    assert found == (0, 0, 0), totals


class Deaths:
    """Lives in homes of their own, one after the other, all with one account. `what` is said to each: `words`, a `file`, words
    with an `edit` of them, or words with the `invitation` to the room.
    """

    def __init__(self, synapse: SynapseServer, folder: Path, what: str = "words") -> None:
        self._what = what
        self._synapse = synapse
        self._folder = folder
        self._bot = synapse.stranger("bot")
        self._ann = synapse.stranger("ann")

    def at_every_hit(self, point: str) -> int:
        """Die at each hit of a point; how many deaths there were."""
        return at_every_hit(lambda hit: self.at(point, hit) or None)

    def at(self, point: str, hit: int) -> bool:
        """Die at this hit; whether there was one. The next life answers, once."""
        life = self._prepared(f"{point}-{hit}", point, hit)
        code = run_process(live, life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert run_process(live, replace(life, point="")) == DONE, (point, hit)
        texts = self._ann.screen(life.room).texts(self._bot.user_id)
        assert len(texts) == 1, (point, hit, texts)
        assert texts[0].startswith(life.answer), (point, hit, texts)
        assert self._what != "words" or texts == [life.answer], (point, hit, texts)
        return code == DIED

    def at_the_first_place(self) -> None:
        """Die when a new home has stored from where it reads: what is said then is heard by the next life."""
        life = self._prepared("first", "cursor.moved", 1, new_home=True)
        assert run_process(live, life) == DIED
        self._ann.says(life.room, "first")
        assert run_process(live, replace(life, point="")) == DONE
        assert self._ann.screen(life.room).texts(self._bot.user_id) == [life.answer]

    def visited(self) -> list[str]:
        """The points that a life without a death passes."""
        file = self._folder / "visited"
        life = self._prepared("all", "", 0)
        assert run_process(live, replace(life, visited=str(file))) == DONE
        return sorted(msgspec.json.decode(file.read_bytes()))

    def _prepared(self, name: str, point: str, hit: int, *, new_home: bool = False) -> MatrixLife:
        """A home that has read up to now, and something said since; in a new one, neither."""
        url, room, bot = f"sqlite:///{self._folder / f'{name}.db'}", self._ann.direct(self._bot.user_id), self._bot
        if self._what != "invitation":
            bot.joins(room)
        if not new_home:
            asyncio.run(read_up_to(url, bot.user_id, bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]))
            self._say(room, name)
        watcher = (self._ann.user_id, self._ann.token)
        answer = "echo: [document" if self._what == "file" else f"echo: {name}"
        return MatrixLife(url, self._synapse.url, bot.user_id, bot.token, watcher, room, answer, point, hit)

    def _say(self, room: str, name: str) -> None:
        if self._what == "file":
            self._ann.sends_file(room, b"words", f"{name}.txt", "text/plain")
            return
        number = self._ann.says(room, name)
        if self._what == "edit":
            self._ann.edits(room, number, f"{name} or so")


async def read_up_to(url: str, account: str, place: str) -> None:
    """As an earlier life left it."""
    store = await open_store(url)
    await store.run(move_cursor, "matrix", account, place, time.time())
    await store.close()


@pytest.mark.timeout(900)
def test_a_death_at_the_border_to_matrix_loses_and_doubles_nothing(tmp_path: Path, synapse: SynapseServer) -> None:
    """The homeserver has the answer, and that is not stored: the next life repeats it under the same key."""
    assert Deaths(synapse, tmp_path).at("send.after", 1)


@pytest.mark.torture
def test_a_death_at_any_point_with_matrix_loses_and_doubles_nothing(
    tmp_path: Path, synapse: SynapseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    deaths = Deaths(synapse, tmp_path)
    counts = {point: deaths.at_every_hit(point) for point in deaths.visited()}
    deaths.at_the_first_place()
    counts["cursor.moved"] = 1
    out_loud(capsys)(f"matrix: {sum(counts.values())} deaths at {len(counts)} points, 0 lost, 0 doubled")
    assert {"inbox.committed", "send.before", "send.after", "turn.finished"} <= counts.keys() <= points.ALL


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("what", "points_of_it"),
    [("file", {"media.fetched", "media.settled"}), ("edit", {"inbox.committed"}), ("invitation", {"inbox.committed"})],
)
def test_a_death_with_a_file_an_edit_or_an_invitation_loses_and_doubles_nothing(
    tmp_path: Path, synapse: SynapseServer, capsys: pytest.CaptureFixture[str], what: str, points_of_it: set[str]
) -> None:
    """An edit that comes after its message began a turn changes nothing: it is answered once, as either."""
    deaths = Deaths(synapse, tmp_path, what)
    visited = [each for each in deaths.visited() if each.startswith(("inbox", "media", "turn", "send"))]
    counts = {point: deaths.at_every_hit(point) for point in visited}
    out_loud(capsys)(f"matrix, {what}: {sum(counts.values())} deaths at {len(counts)} points, 0 lost, 0 doubled")
    assert points_of_it <= counts.keys()
