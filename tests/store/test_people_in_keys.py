"""A home from before people were part of the keys of direct chats on Matrix goes on where it was, and shows nobody's conversation
to anybody else. Its rows were left by the code of schema 14, in the middle of its work.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.commands.rows.sessions import earlier_sessions
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.sessions.rows.entries import find_entry, source_of
from everturn.sessions.rules.keys import Isolation, session_key
from everturn.store.interface import Rows, Store
from everturn.store.open import open_store
from everturn.testing import ManualClock, ScriptedAgent, World
from tests.contracts.store import broken, select
from tests.scenes import Rooms
from tests.store.old_homes import make_old_home

KEYED = ("entry", "session", "inbox", "turn", "outbox", "approval", "restart", "action")
ROOMS = Isolation(changing_directs=frozenset({"matrix"}))
TWO = "!two:hs.example"
ALONE = (
    ("!one:hs.example", "@ann:hs.example", None),
    ("!one:hs.example", "@ann:hs.example", "$t"),
    ("!cat:hs.example", "@c..Ä:hs.example", None),
    ("!ask:hs.example", "@ann:hs.example", None),
)


@pytest.fixture
async def old_home(fresh_store_url: str, tmp_path: Path) -> str:
    await make_old_home(fresh_store_url, "schema_0014_matrix", tmp_path / "then")
    return fresh_store_url


@pytest.fixture
async def home(old_home: str) -> AsyncIterator[Store]:
    store = await open_store(old_home)
    yield store
    await store.close()


def of(chat: str, person: str | None, thread: str | None = None) -> str:
    """The key of a person in a direct chat; without one, the key as it was."""
    room = SessionSource(platform="matrix", account="@bot:hs.example", chat_id=chat, thread_id=thread, user_id=person)
    return session_key(room, ROOMS)


async def look(store: Store, text: str, *args: object) -> Rows:
    return await store.read(select, text, *args)


async def texts(store: Store, session_id: str | None) -> list[str]:
    return [
        row[0] for row in await look(store, "SELECT content FROM message WHERE session_id=$1 ORDER BY seq", session_id)
    ]


async def test_a_key_moves_to_the_only_person_who_wrote_there(home: Store) -> None:
    for chat, person, thread in ALONE:
        old, new = of(chat, None, thread), of(chat, person, thread)
        for table in KEYED:
            assert await look(home, f"SELECT 1 FROM {table} WHERE key=$1", old) == []
        assert len(await look(home, "SELECT 1 FROM entry WHERE key=$1", new)) == 1
        for table in ("session", "inbox", "turn", "outbox"):
            assert await look(home, f"SELECT 1 FROM {table} WHERE key=$1", new) != []


async def test_what_was_chosen_asked_and_remembered_moves_with_the_key(home: Store) -> None:
    key = of("!one:hs.example", "@ann:hs.example")
    assert await look(home, "SELECT session_id, busy, waiting FROM entry WHERE key=$1", key) == [("s2", "queue", 1)]
    assert [each.session_id for each in await home.read(earlier_sessions, key, "s2")] == ["s1"]
    assert await look(home, "SELECT key, target FROM action") == [(key, key)]
    assert await look(home, "SELECT key FROM restart") == [(key,)]
    assert await look(home, "SELECT state FROM approval WHERE key=$1", key) == [("approved",)]
    scope = '["chat","main","matrix","@bot:hs.example",null,"!one:hs.example","@ann:hs.example"]'
    assert await look(home, "SELECT scope, text FROM memory") == [(scope, "plum")]


async def test_where_several_wrote_nobody_inherits_and_each_finds_their_own_sessions(home: Store) -> None:
    ann, bob = of(TWO, "@ann:hs.example"), of(TWO, "@bob:hs.example")
    assert [(await home.read(find_entry, key)).session_id for key in (ann, bob)] == [None, None]  # type: ignore[union-attr]
    listed = {key: [each.first_text for each in await home.read(earlier_sessions, key, None)] for key in (ann, bob)}
    assert listed == {ann: ["more of ann", "secret of ann"], bob: ["bob alone", "more of ann"]}
    alone = (await home.read(earlier_sessions, bob, None))[0]
    assert await texts(home, alone.session_id) == ["bob alone", "re: bob alone"]  # not what his open turn says
    assert await look(home, "SELECT key, body FROM inbox WHERE state='queued' AND key<>$1 ORDER BY id", of("!one:hs.example", "@ann:hs.example")) == [
        (bob, "queued of bob"), (ann, "queued of ann too"),
    ]  # fmt: skip


async def test_where_somebody_forgotten_may_have_written_nobody_inherits(home: Store) -> None:
    dan = of("!old:hs.example", "@dan:hs.example")
    assert await home.read(find_entry, dan) is None
    assert [each.first_text for each in await home.read(earlier_sessions, dan, None)] == ["forgotten"]


async def test_nothing_else_moves_and_the_rows_agree_with_each_other(home: Store) -> None:
    assert await home.read(broken) == {}
    for key in (
        row[0] for row in await look(home, "SELECT key FROM entry WHERE key LIKE '%:group:%' OR key LIKE '%telegram%'")
    ):
        sources = [source_of(row[0]) for row in await look(home, "SELECT source FROM inbox WHERE key=$1", key)]
        assert [session_key(each, ROOMS) for each in sources if each] == [key]


async def test_an_upgraded_home_goes_on_where_it_was(old_home: str) -> None:
    """Its interrupted turn, its queued messages and its pending replies, under the new keys."""
    platform, clock = Rooms("matrix"), ManualClock(1_800_000_000.0 + 60)
    async with World(old_home, ScriptedAgent(), [platform], clock, Settings(burst_s=0.0)) as world:
        one = "!one:hs.example"
        await platform.until(lambda: "echo: queued of ann" in platform.texts(one))
        in_thread = "re: in a thread"  # a session of its own: nothing promises its place among the others' replies
        assert next(each for each in platform.texts(one) if each != in_thread) == "re: first of ann"
        assert [each for each in platform.texts(one) if each.startswith("echo")] == [
            "echo: work on",
            "echo: queued of ann",
        ]
        await platform.until(lambda: {"echo: queued of bob", "echo: queued of ann too"} <= set(platform.texts(TWO)))
        bob = await world.store.read(find_entry, of(TWO, "@bob:hs.example"))
        assert await texts(world.store, bob.session_id if bob else None) == ["queued of bob", "echo: queued of bob"]
        platform.say(one, "and on", user_id="@ann:hs.example", account="@bot:hs.example")
        await platform.until(lambda: "echo: and on" in platform.texts(one))
        ann = await world.store.read(find_entry, of(one, "@ann:hs.example"))
        assert ann is not None
        assert ann.session_id == "s2"
        assert await world.store.read(broken) == {}
