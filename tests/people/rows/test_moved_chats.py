"""Chats with another number: said twice or in a chain, the first number is found."""

from everturn.people.rows.directory import first_number, move_chat
from everturn.store.open import open_store


async def test_the_first_number_of_a_chat_is_found_however_often_it_moved(store_url: str) -> None:
    store = await open_store(store_url)
    for now, was in (("-2", "-1"), ("-2", "-1"), ("-3", "-2"), ("-1", "-3")):
        await store.run(move_chat, "telegram", "7", now, was, 1.0)
    found = [await store.read(first_number, "telegram", "7", chat) for chat in ("-1", "-2", "-3")]
    assert found == [None, "-1", "-1"]
    assert await store.read(first_number, "telegram", "8", "-2") is None
    await store.close()
