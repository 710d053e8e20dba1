"""The home's folder of files: whole or not at all, bounded, once for the same bytes, let go in time."""

import asyncio
import hashlib
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.errors import NoRoom, TooLarge
from everturn.home.files import Media, SavedFile
from everturn.home.rules import Upload, content_id, is_from_content, sniffed

DAY_S = 86_400.0


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_the_same_bytes_are_kept_once_however_many_fetch_them_at_once(tmp_path: Path) -> None:
    media = Media(tmp_path)
    kept = await asyncio.gather(*(media.keep("a.txt", pieces(b"wor", b"ds"), by_content=True) for _ in range(5)))
    assert {each.upload for each in kept} == {kept[0].upload}
    assert names(tmp_path) == [kept[0].upload.stored]
    assert (kept[0].type, kept[0].size) == ("text/plain", 5)
    small = Media(tmp_path, most_together=11)
    for _ in range(3):
        await small.keep("a.txt", pieces(b"words"), by_content=True)  # their room is taken once
    assert media.find(kept[0].upload) == kept[0]


async def test_what_is_too_large_leaves_nothing_behind(tmp_path: Path) -> None:
    media = Media(tmp_path, most=4, most_together=6)
    with pytest.raises(TooLarge):
        await media.keep("a", pieces(b"abc", b"de"))
    await media.keep("a", pieces(b"abcd"))
    with pytest.raises(NoRoom):
        await media.keep("a", pieces(b"abc"))
    assert len(names(tmp_path)) == 1


async def test_files_that_are_written_at_once_have_no_more_room_together(tmp_path: Path) -> None:
    media = Media(tmp_path, most_together=1500)
    done = await asyncio.gather(
        *(media.keep("a", pieces(bytes(450), bytes(450))) for _ in range(20)), return_exceptions=True
    )
    kept = [each for each in done if isinstance(each, SavedFile)]
    assert sorted(each.upload.stored for each in kept) == names(tmp_path)
    assert sum(each.size for each in kept) <= 1500
    assert all(isinstance(each, SavedFile | NoRoom) for each in done)
    await media.keep("b", pieces(bytes(600)))  # what found no room holds none


async def test_a_disk_that_takes_only_a_part_keeps_nothing(tmp_path: Path) -> None:
    """A file has its name, made from all of its bytes, only when they are all there."""
    limits, most = resource.getrlimit(resource.RLIMIT_FSIZE), 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            await Media(tmp_path).keep("a", pieces(bytes(most - 1000), bytes(2000)), by_content=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []


async def test_who_is_cancelled_leaves_no_draft_and_no_room_taken(tmp_path: Path) -> None:
    media, waits = Media(tmp_path, most_together=1000), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(900)
        waits.set()
        await asyncio.Event().wait()

    keeping = asyncio.create_task(media.keep("a", endless()))
    await waits.wait()
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert names(tmp_path) == []
    await media.keep("b", pieces(bytes(1000)))


async def test_what_came_with_messages_is_let_go_and_what_was_dropped_into_the_page_stays(tmp_path: Path) -> None:
    media = Media(tmp_path, most_together=25)
    old, needed, fresh = [await media.keep("a", pieces(each), by_content=True) for each in (b"one", b"two", b"three")]
    page = await media.keep("a", pieces(b"page"))
    own = tmp_path / "my-summary-of-the-farm.txt"  # the agent's: its name looks like an id
    own.write_text("hay")
    for path in (own, *(media.path_of(each.upload) for each in (old, needed, page))):
        os.utime(path, (1, 1))
    assert media.expire(DAY_S, {needed.upload.id}) == 1
    assert names(tmp_path) == sorted([own.name, *(each.upload.stored for each in (needed, fresh, page))])
    assert media.touch(needed.upload)
    assert not media.touch(old.upload)
    await media.keep("b", pieces(b"12345678"))  # what went makes room


async def test_what_is_needed_again_while_it_is_looked_at_is_not_let_go(tmp_path: Path) -> None:
    """It is a pipe here, so that its reading ends when we say so."""
    media, data = Media(tmp_path), b"words"
    upload = Upload(content_id(hashlib.sha256(data).digest()), "a.txt")
    os.mkfifo(media.path_of(upload))
    os.utime(media.path_of(upload), (1, 1))
    letting_go = asyncio.create_task(asyncio.to_thread(media.expire, DAY_S, frozenset()))
    with await asyncio.to_thread(media.path_of(upload).open, "wb") as file:  # it is being read now
        assert media.touch(upload)
        file.write(data)
    assert await letting_go == 0
    assert names(tmp_path) == [upload.stored]


async def test_an_id_says_whether_it_was_drawn_or_made(tmp_path: Path) -> None:
    media = Media(tmp_path)
    drawn = [await media.keep("a", pieces(b"x")) for _ in range(50)]
    assert not any(is_from_content(each.upload.id) for each in drawn)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"%PDF-1.7", "application/pdf"),
        (b"OggS\x00", "audio/ogg"),
        (b"\x00\x00\x00\x18ftypmp42", "video/mp4"),
        (b"\x00\x00\x00\x18ftypM4A ", "audio/mp4"),
        (b"RIFF0000WAVE", "audio/wav"),
        (b"RIFF0000WEBP", "image/webp"),
        (b"\x7fELF\x02", "application/x-executable"),
        (b"<svg onload=x>", "text/plain"),
        ("größe".encode()[:3], "text/plain"),
        (b"\x00\x01", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_a_type_is_what_the_bytes_say(head: bytes, kind: str) -> None:
    assert sniffed(head) == kind
