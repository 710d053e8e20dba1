"""Memories: kept per person and per chat, across conversations, and never another's."""

import asyncio

from everturn.agent.tools.memory import MemorySettings, memory_tools
from tests.agent.tools.benches import Bench
from tests.scenes import Rooms

SETTINGS = MemorySettings(memories=3, name_chars=10, text_chars=50)


def bench(url: str) -> Bench:
    return Bench(url, lambda b: memory_tools(SETTINGS, b.store, b.world.clock))


async def test_a_person_is_remembered_in_every_chat_of_theirs(store_url: str) -> None:
    async with bench(store_url) as tools:
        await tools.use("remember", whose="person", name="tea", text="green", chat="one")
        assert await tools.use("recall", whose="person", chat="two") == "tea: green"
        assert await tools.use("recall", whose="chat", chat="two") == "Nothing is remembered about that."


async def test_two_people_at_once_each_find_their_own(store_url: str) -> None:
    """The place of a tool is that of its turn, whoever else is talking."""
    people = [(f"chat-{n}", f"user-{n}") for n in range(8)]
    async with bench(store_url) as tools:
        calls = (
            tools.use_all(
                ("remember", {"whose": "person", "name": "me", "text": user}),
                ("recall", {"whose": "person"}),
                chat=chat,
                user=user,
            )
            for chat, user in people
        )
        results = await asyncio.gather(*calls)
    assert [recalled for _, recalled in results] == [f"me: {user}" for _, user in people]


async def test_whose_memory_it_is_cannot_be_chosen(store_url: str) -> None:
    async with bench(store_url) as tools:
        await tools.use("remember", whose="person", name="secret", text="blue", chat="one", user="ann")
        for given in ({"whose": "person", "user": "ann"}, {"whose": '["person","main","fake","","ann"]'}):
            (result,) = await tools.use_all(("recall", given), chat="two", user="bob")
            assert result.startswith("Error: the arguments do not match the schema")
        assert "blue" not in await tools.use("recall", whose="person", chat="two", user="bob")


async def test_where_several_people_speak_only_the_chat_has_a_memory(store_url: str) -> None:
    async with bench(store_url) as tools:
        about = {"chat": "team", "user": "ann", "chat_type": "group", "thread_id": "t1"}
        call = ("remember", {"whose": "person", "name": "tea", "text": "green"})
        (result,) = await tools.use_all(call, **about)
        assert "several people speak" in result
        (result,) = await tools.use_all(("remember", {"whose": "chat", "name": "tea", "text": "green"}), **about)
        assert result == "Remembered 'tea'."
        (result,) = await tools.use_all(("recall", {"whose": "chat"}), **(about | {"user": "bob"}))
        assert result == "tea: green"


async def test_the_memory_of_a_room_of_two_is_not_read_by_who_comes_in_later(store_url: str) -> None:
    async with Bench(store_url, lambda b: memory_tools(SETTINGS, b.store, b.world.clock), platform=Rooms()) as tools:
        await tools.use("remember", whose="chat", name="secret", text="blue", chat="room", user="ann")
        assert await tools.use("recall", whose="chat", chat="room", user="ann") == "secret: blue"
        assert await tools.use("recall", whose="chat", chat="room", user="bob") == "Nothing is remembered about that."


async def test_the_same_name_again_replaces_and_forget_forgets(store_url: str) -> None:
    async with bench(store_url) as tools:
        for text in ("green", "black"):
            await tools.use("remember", whose="chat", name=" my  tea ", text=text)
        assert await tools.use("recall", whose="chat", query="TEA black") == "my tea: black"
        for _ in range(2):
            assert await tools.use("forget", whose="chat", name="my tea") == "Nothing named 'my tea' is remembered now."
        assert await tools.use("recall", whose="chat") == "Nothing is remembered about that."


async def test_memories_are_bounded_and_the_model_is_told(store_url: str) -> None:
    async with bench(store_url) as tools:
        for n in range(3):
            await tools.use("remember", whose="chat", name=f"n{n}", text="x")
        assert "3 memories already" in await tools.use("remember", whose="chat", name="n3", text="x")
        assert await tools.use("remember", whose="chat", name="n2", text="y") == "Remembered 'n2'."
        assert "50 characters at most" in await tools.use("remember", whose="chat", name="n2", text="x" * 51)
        assert "1 to 10 characters" in await tools.use("remember", whose="chat", name="x" * 11, text="x")
