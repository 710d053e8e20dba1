"""Files in a conversation: stored whole or not at all, limited, and never served as something that could run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.home.files import Media
from everturn.home.rules import clean_file_name, served_as, sniffed
from everturn.web.wire.server import PATIENCE_S
from tests.waiting import WAIT_S, poll, within
from tests.web.composition import SHARED, TOKEN, Web, running
from tests.web.test_connection import bodies, keep_waiting

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 30


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\a.txt", "a.txt"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("<script>.html", "_script_.html"),
        (".htaccess", "htaccess"),
        ("", "file"),
        ("...", "file"),
        ("x" * 300 + ".pdf", "x" * 116 + ".pdf"),
        ("über größe.txt", "über größe.txt"),
        ("a;b|c$(d).sh", "a_b_c_(d).sh"),
    ],
)
def test_a_name_is_only_a_name(name: str, clean: str) -> None:
    assert clean_file_name(name) == clean
    assert clean_file_name(clean) == clean


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF0000WEBPx", "image/webp"),
        (b"<svg xmlns", "application/octet-stream"),
        (b"<html>", "application/octet-stream"),
        (b"%PDF", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_a_type_is_what_the_bytes_say(head: bytes, kind: str) -> None:
    assert served_as(sniffed(head)) == kind


@SHARED
async def test_an_image_comes_back_as_an_image(shared: Web) -> None:
    async with shared.browser() as client:
        kept = (await client.post("/files?name=../cat.html", content=PNG)).json()
        got = await client.get(kept["url"])
    assert (kept["name"], kept["type"], kept["size"]) == ("cat.html", "image/png", len(PNG))
    assert (got.content, got.headers["content-type"]) == (PNG, "image/png")
    assert got.headers["content-disposition"].startswith("inline")
    assert got.headers["x-content-type-options"] == "nosniff"


@SHARED
async def test_what_is_no_image_is_saved_not_shown(shared: Web) -> None:
    async with shared.browser() as client:
        kept = (await client.post("/files?name=x.png", content=b"<script>alert(1)</script>")).json()
        got = await client.get(kept["url"])
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"].startswith("attachment")


@SHARED
async def test_only_the_owner_has_files(shared: Web) -> None:
    async with shared.browser() as client:
        kept = (await client.post("/files?name=x.txt", content=b"words")).json()
    async with shared.stranger() as client:
        assert (await client.get(kept["url"])).status_code == 401
        assert (await client.post("/files?name=x", content=b"x")).status_code == 401


async def test_files_are_bounded_each_and_together(web: Web, tmp_path: Path) -> None:
    async with web.browser() as client:
        assert (await client.post("/files?name=a", content=b"x" * 1001)).status_code == 413
        assert (await client.post("/files?name=a", content=b"")).status_code == 400
        codes = [(await client.post("/files?name=a", content=b"x" * 900)).status_code for _ in range(4)]
    assert codes == [201, 201, 201, 507]
    assert len(names(tmp_path / "files")) == 3


@SHARED
@pytest.mark.parametrize(
    "path", ["/files/x/y", "/files/AAAAAAAAAAAAAAAAAAAAAA/x", "/files/..%2f..%2fapi_token/x", "/files/*/x"]
)
async def test_there_is_no_way_to_another_file(shared: Web, path: str) -> None:
    async with shared.browser() as client:
        assert (await client.get(path)).status_code == 404


async def test_what_a_death_left_half_written_is_swept(tmp_path: Path) -> None:
    async def text() -> AsyncIterator[bytes]:
        yield b"words"

    (tmp_path / "AAAAAAAAAAAAAAAAAAAAAA.draft").write_bytes(b"half")
    kept = await Media(tmp_path).keep("a.txt", text())
    assert names(tmp_path) == [f"{kept.upload.id}.a.txt"]


async def test_a_large_file_may_take_its_time_and_half_a_request_may_not(tmp_path: Path) -> None:
    async with running(tmp_path, file_bytes=3_000_000) as web:
        place = web.serving.host, web.serving.port
        head = f"POST /files?name=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {{}}\r\n\r\n"
        reader, writer = await asyncio.open_connection(*place)
        writer.write(head.format(2_000_001).encode() + b"x" * 2_000_000)
        await writer.drain()
        idle, idler = await asyncio.open_connection(*place)
        idler.write(head.format(5).encode())
        await poll(lambda: bodies(web) == [0, 2_000_000], seen=lambda: bodies(web))
        keep_waiting(web, PATIENCE_S)
        async with within(WAIT_S, lambda: bodies(web)):
            assert b" 408 " in await idle.readline()
            writer.write(b"x")
            assert b" 201 " in await reader.readline()
        for each in (writer, idler):
            each.close()
            await each.wait_closed()
