"""Files that came with messages, in the database: with the message, settled with the fence, once."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.inbox.rows.attachments import (
    Arrived,
    Described,
    MissingFiles,
    descriptions,
    needed_files,
    settle_attachments,
)
from everturn.inbox.rows.inbox import accept, knows_album
from everturn.inbox.rows.steering import revise
from everturn.inbox.rules import ALBUM_S
from everturn.model import Attachment, Heard, SettledFiles, StoredFile
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.turn_values import Later, StartedTurn
from tests.contracts.store import BY_OUTBOX, QUEUE, StoreProcess, key_of, living, origin

PHOTO = Attachment(kind="image", ref="r1", name="cat.jpg")
FILE = StoredFile(id="i" * 21 + "m", name="cat.jpg", type="image/jpeg", size=3)
SETTLED = SettledFiles(text="look\n\n[image]", files=(FILE,))


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as made:
        yield made


async def begun_with(process: StoreProcess, *photos: Attachment) -> StartedTurn:
    arrival = replace(process.arrival("look", ext="m1"), attachments=photos)
    accepted = await process.store.run(accept, arrival, QUEUE, process.start())
    assert accepted.begun is not None
    return accepted.begun


async def test_a_text_names_its_files_once_they_are_settled_and_a_resume_knows(process: StoreProcess) -> None:
    begun = await begun_with(process, PHOTO)
    (carried,) = begun.carried
    arrived = [Arrived(carried.inbox, carried.seq, SETTLED)]
    missing = MissingFiles(process.ids.next(), origin(), "I did not get it.")
    about = [Described("fake", "u1", "a cat waves")]
    await process.twice(settle_attachments, begun, arrived, about, missing, process.now, BY_OUTBOX)
    assert await process.look("SELECT content FROM message") == [("look\n\n[image]",)]
    assert await process.look("SELECT text, kind, state FROM outbox") == [("I did not get it.", "notice", "pending")]
    assert await process.store.read(descriptions, "fake", ["u1", "u2"]) == {"u1": "a cat waves"}
    assert await process.store.read(needed_files) == {FILE.id}
    with pytest.raises(FenceLost):
        await process.store.run(settle_attachments, replace(begun, fence=9), arrived, [], None, process.now, BY_OUTBOX)


async def test_a_turn_that_was_cut_off_is_begun_with_what_is_known_of_its_files(process: StoreProcess) -> None:
    begun = await begun_with(process, PHOTO)
    (carried,) = begun.carried
    await process.die()
    again = await process.began()
    assert (again.carried, again.texts) == ((carried,), ("look",))
    arrived = [Arrived(carried.inbox, carried.seq, SETTLED)]
    await process.store.run(settle_attachments, again, arrived, [], None, process.now, BY_OUTBOX)
    await process.die()
    third = await process.began()
    assert (third.carried[0].settled, third.texts) == (SETTLED, (SETTLED.text,))


async def test_an_edit_of_a_waiting_message_replaces_its_files(process: StoreProcess) -> None:
    other = Attachment(kind="document", ref="r2", name="b.pdf")
    await process.store.run(accept, replace(process.arrival("look", ext="m1"), attachments=(PHOTO,)), QUEUE, None)
    edit = replace(process.arrival("look!", ext="e1"), attachments=(other,))
    await process.twice(revise, edit, Heard.EDITED, "m1")
    begun = await process.began()
    assert [each.attachments for each in begun.carried] == [(other,)]


async def test_the_messages_of_an_album_begin_one_turn_once_it_is_whole(process: StoreProcess) -> None:
    for number in range(3):
        arrival = replace(process.arrival(f"p{number}", ext=f"m{number}"), attachments=(PHOTO,), album="a")
        await process.store.run(accept, arrival, QUEUE, None)
    await process.store.run(accept, process.arrival("behind it", ext="m9"), QUEUE, None)
    later = await process.store.run(begin_next, key_of(), process.start())
    assert later == Later(key_of(), process.now + ALBUM_S)
    process.clock.advance(ALBUM_S)
    begun = await process.store.run(begin_next, key_of(), process.start())
    assert isinstance(begun, StartedTurn)
    assert begun.texts == ("p0", "p1", "p2")
    assert [each.seq for each in begun.carried] == [1, 2, 3]


async def test_the_parts_of_an_album_are_together_whoever_spoke_between_them(process: StoreProcess) -> None:
    for number, album in enumerate(("a", None, "a", "b")):
        arrival = replace(process.arrival(f"p{number}", ext=f"m{number}"), album=album)
        await process.store.run(accept, arrival, QUEUE, None)
    process.clock.advance(ALBUM_S)
    begun = await process.store.run(begin_next, key_of(), process.start())
    assert isinstance(begun, StartedTurn)
    assert begun.texts == ("p0", "p2")


async def test_an_album_is_known_by_any_part_that_was_stored_under_its_key(process: StoreProcess) -> None:
    assert not await process.store.read(knows_album, key_of(), "a")
    await process.store.run(accept, replace(process.arrival("p0", ext="m0"), album="a"), QUEUE, None)
    known = [
        await process.store.read(knows_album, *each) for each in ((key_of(), "a"), (key_of(), "b"), ("other", "a"))
    ]
    assert known == [True, False, False]
