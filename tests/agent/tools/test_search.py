"""Searching past conversations: this key's only, hidden rows never, and an index that may be lost at any time."""

import asyncio
from pathlib import Path

import pytest

from everturn.agent.tools.memory import SearchSettings, excerpt, search_tools
from everturn.home.search_index import SearchIndex
from everturn.store.interface import Op, sql
from tests.agent.tools.benches import Bench

NOTHING = "Nothing was found."


def bench(url: str, folder: Path, **changes: int) -> Bench:
    index = SearchIndex(folder / "search.db")
    settings = SearchSettings(**changes)
    return Bench(url, lambda b: search_tools(settings, b.store, index))


async def search(tools: Bench, text: str, chat: str = "one", user: str = "ann") -> list[str]:
    result = await tools.use("search_conversations", query=text, chat=chat, user=user)
    assert "Error" not in result
    if result == NOTHING:
        return []
    lines = (line.partition(" ")[2].partition(" ")[2] for line in result.splitlines())
    return [line for line in lines if "search_conversations" not in line]  # what asked for earlier searches


async def test_what_was_said_is_found_also_in_earlier_conversations(store_url: str, tmp_path: Path) -> None:
    async with bench(store_url, tmp_path) as tools:
        await tools.talk("the train leaves at noon")
        assert await search(tools, "train") == [
            "they said: the train leaves at noon",
            "you said: you said: the train leaves at noon",
        ]
        await tools.talk("/new")
        await tools.talk("I like plums")
        assert len(await search(tools, "NOON lea")) == 2
        assert len(await search(tools, "plum")) == 2
        assert any(line.endswith("I like plums") for line in await search(tools, "plums nowhere"))
        assert await tools.use("search_conversations", query="zzz") == NOTHING


async def test_nobody_finds_what_was_said_elsewhere(store_url: str, tmp_path: Path) -> None:
    async with bench(store_url, tmp_path) as tools:
        await tools.talk("the password is swordfish", chat="one", user="ann")
        await search(tools, "swordfish", chat="one", user="ann")
        for text in ("swordfish", '" OR session:*', "text:swordfish OR x", "*", "NEAR(swordfish)"):
            assert await search(tools, text, chat="two", user="bob") == []


def hide(text: str) -> Op[None]:
    yield sql("UPDATE message SET hidden=1 WHERE content LIKE $1", f"%{text}%")


async def test_what_was_undone_is_not_found(store_url: str, tmp_path: Path) -> None:
    async with bench(store_url, tmp_path) as tools:
        await tools.talk("a slip of the tongue")
        assert len(await search(tools, "tongue")) == 2
        await tools.store.run(hide, "tongue")
        assert await tools.use("search_conversations", query="tongue") == NOTHING


async def test_a_conversation_that_moved_is_found_where_it_went(store_url: str, tmp_path: Path) -> None:
    """`/resume` in another chat takes the session along; it is no longer found where it was."""

    def move() -> Op[None]:
        yield sql("UPDATE session SET key='agent:main:fake:dm:two' WHERE key='agent:main:fake:dm:one'")

    async with bench(store_url, tmp_path) as tools:
        await tools.talk("ham and eggs", chat="one")
        assert len(await search(tools, "eggs", chat="one")) == 2
        await tools.talk("hello", chat="two")
        await tools.store.run(move)
        assert len(await search(tools, "eggs", chat="two")) == 2
        assert await tools.use("search_conversations", query="eggs", chat="one") == NOTHING


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "other"])
async def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: str) -> None:
    file, url = tmp_path / "search.db", f"sqlite:///{tmp_path / 'everturn.db'}"
    async with bench(url, tmp_path) as tools:
        await tools.talk("a needle in the hay")
        index = SearchIndex(file)
        await index.progress([])
        await index.close()
        spoil(file, damage)
        assert len(await search(tools, "needle")) == 2
        spoil(file, damage)
        assert len(await search(tools, "hay")) == 2


def spoil(file: Path, damage: str) -> None:
    if damage == "missing":
        file.unlink()
    elif damage == "garbage":
        file.write_bytes(b"garbage" * 4_096)
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        file.write_bytes(b"")


async def test_an_index_that_cannot_be_written_is_an_answer_not_an_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    async with bench(url, tmp_path / "no-such-folder") as tools:
        result = await tools.use("search_conversations", query="x")
        assert result == "Error: past conversations cannot be searched now."


def check_files(folder: Path) -> None:
    files = list(folder.glob("search.db*"))
    assert files
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert not any(b"very sentence is" in file.read_bytes() for file in files)


async def test_the_index_is_the_owners_alone_and_holds_no_text(tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path / 'everturn.db'}", tmp_path) as tools:
        await tools.talk("this very sentence is private")
        await search(tools, "private")
    check_files(tmp_path)


async def test_many_search_at_once(store_url: str, tmp_path: Path) -> None:
    async with bench(store_url, tmp_path) as tools:
        chats = [f"c{n}" for n in range(6)]
        await asyncio.gather(*(tools.talk(f"fact {chat}", chat=chat) for chat in chats))
        found = await asyncio.gather(*(search(tools, "fact", chat=chat) for chat in chats))
    assert [{line.rpartition(" ")[2] for line in each} for each in found] == [{chat} for chat in chats]


async def test_what_is_found_is_bounded(tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path / 'everturn.db'}", tmp_path, results=3) as tools:
        for n in range(5):
            await tools.talk(f"word {n}")
        assert len(await search(tools, "word")) == 3


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("short", "short", "short"),
        ("a " * 50 + "needle " + "b " * 50, "needle", "... a a needle b b b b ..."),
        ("x" * 100, "none", "x" * 18 + " ..."),
    ],
)
def test_an_excerpt_shows_the_words(text: str, words: str, shown: str) -> None:
    assert excerpt(text, words, 18) == shown
