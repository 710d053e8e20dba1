"""Files that came with messages, in the database: with the message, settled with the fence, once."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide.busy import ALBUM_S
from everturn.errors import FenceLost
from everturn.model import Attachment, Heard, Settled, StoredFile
from everturn.store.operations.attachments import (
    Arrived,
    Described,
    Missing,
    descriptions,
    needed_files,
    settle_attachments,
)
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.inbox import accept, knows_album
from everturn.store.operations.revising import revise
from everturn.store.operations.turn_values import Begun, Later
from tests.contracts.store import BY_OUTBOX, QUEUE, Life, key_of, living, origin

PHOTO = Attachment(kind="image", ref="r1", name="cat.jpg")
FILE = StoredFile(id="i" * 21 + "m", name="cat.jpg", type="image/jpeg", size=3)
SETTLED = Settled(text="look\n\n[image]", files=(FILE,))


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as made:
        yield made


async def begun_with(life: Life, *photos: Attachment) -> Begun:
    arrival = replace(life.arrival("look", ext="m1"), attachments=photos)
    accepted = await life.store.run(accept, arrival, QUEUE, life.start())
    assert accepted.begun is not None
    return accepted.begun


async def test_words_name_their_files_once_they_are_settled_and_a_resume_knows(life: Life) -> None:
    begun = await begun_with(life, PHOTO)
    (carried,) = begun.carried
    arrived = [Arrived(carried.inbox, carried.seq, SETTLED)]
    missing = Missing(life.ids.next(), origin(), "I did not get it.")
    about = [Described("fake", "u1", "a cat waves")]
    await life.twice(settle_attachments, begun, arrived, about, missing, life.now, BY_OUTBOX)
    assert await life.look("SELECT content FROM message") == [("look\n\n[image]",)]
    assert await life.look("SELECT text, kind, state FROM outbox") == [("I did not get it.", "notice", "owed")]
    assert await life.store.read(descriptions, "fake", ["u1", "u2"]) == {"u1": "a cat waves"}
    assert await life.store.read(needed_files) == {FILE.id}
    with pytest.raises(FenceLost):
        await life.store.run(settle_attachments, replace(begun, fence=9), arrived, [], None, life.now, BY_OUTBOX)


async def test_a_turn_that_was_cut_off_is_begun_with_what_is_known_of_its_files(life: Life) -> None:
    begun = await begun_with(life, PHOTO)
    (carried,) = begun.carried
    await life.die()
    again = await life.began()
    assert (again.carried, again.words) == ((carried,), ("look",))
    arrived = [Arrived(carried.inbox, carried.seq, SETTLED)]
    await life.store.run(settle_attachments, again, arrived, [], None, life.now, BY_OUTBOX)
    await life.die()
    third = await life.began()
    assert (third.carried[0].settled, third.words) == (SETTLED, (SETTLED.text,))


async def test_an_edit_of_a_waiting_message_replaces_its_files(life: Life) -> None:
    other = Attachment(kind="document", ref="r2", name="b.pdf")
    await life.store.run(accept, replace(life.arrival("look", ext="m1"), attachments=(PHOTO,)), QUEUE, None)
    edit = replace(life.arrival("look!", ext="e1"), attachments=(other,))
    await life.twice(revise, edit, Heard.EDITED, "m1")
    begun = await life.began()
    assert [each.attachments for each in begun.carried] == [(other,)]


async def test_the_messages_of_an_album_begin_one_turn_once_it_is_whole(life: Life) -> None:
    for number in range(3):
        arrival = replace(life.arrival(f"p{number}", ext=f"m{number}"), attachments=(PHOTO,), album="a")
        await life.store.run(accept, arrival, QUEUE, None)
    await life.store.run(accept, life.arrival("behind it", ext="m9"), QUEUE, None)
    later = await life.store.run(begin_next, key_of(), life.start())
    assert later == Later(key_of(), life.now + ALBUM_S)
    life.clock.advance(ALBUM_S)
    begun = await life.store.run(begin_next, key_of(), life.start())
    assert isinstance(begun, Begun)
    assert begun.words == ("p0", "p1", "p2")
    assert [each.seq for each in begun.carried] == [1, 2, 3]


async def test_the_parts_of_an_album_are_together_whoever_spoke_between_them(life: Life) -> None:
    for number, album in enumerate(("a", None, "a", "b")):
        arrival = replace(life.arrival(f"p{number}", ext=f"m{number}"), album=album)
        await life.store.run(accept, arrival, QUEUE, None)
    life.clock.advance(ALBUM_S)
    begun = await life.store.run(begin_next, key_of(), life.start())
    assert isinstance(begun, Begun)
    assert begun.words == ("p0", "p2")


async def test_an_album_is_known_by_any_part_that_was_stored_under_its_key(life: Life) -> None:
    assert not await life.store.read(knows_album, key_of(), "a")
    await life.store.run(accept, replace(life.arrival("p0", ext="m0"), album="a"), QUEUE, None)
    known = [await life.store.read(knows_album, *each) for each in ((key_of(), "a"), (key_of(), "b"), ("other", "a"))]
    assert known == [True, False, False]
