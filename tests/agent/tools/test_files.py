"""Files in one folder: what may be done there, and that nothing leads out of it."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.agent.folder import Folder, parts_of
from everturn.agent.toolbox import ToolError
from everturn.agent.tools.files import FilesSettings, files_tools
from tests.agent.tools.benches import Bench


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the tools; beside it, what they must not reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("the secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def bench(folder: Path, **changes: object) -> Bench:
    settings = FilesSettings(folder=folder, **changes)  # type: ignore[arg-type]
    return Bench(folder.parent, lambda _: files_tools(settings))


async def test_a_file_is_written_read_edited_found_and_listed(folder: Path) -> None:
    async with bench(folder) as files:
        assert await files.use("write_file", path="a/b.txt", content="one\ntwo\n") == "Wrote a/b.txt (8 bytes)."
        assert await files.use("edit_file", path="a/b.txt", old="two", new="Three") == "Edited a/b.txt."
        assert await files.use("read_file", path="a/b.txt") == "one\nThree\n"
        assert await files.use("read_file", path="./a//b.txt", first_line=2) == "[lines 2 to 2 of 2]\nThree\n"
        assert await files.use("search_files", text="three") == "a/b.txt:2: Three"
        assert await files.use("search_files", text="three", names="*.md") == "Nothing was found."
        assert await files.use("list_files") == "a/"
        assert await files.use("list_files", path="a") == "b.txt (10 bytes)"
    assert [path.name for path in (folder / "a").iterdir()] == ["b.txt"]


async def test_an_existing_file_is_replaced_with_its_mode(folder: Path) -> None:
    (folder / "run.sh").write_text("old")
    (folder / "run.sh").chmod(0o700)
    async with bench(folder) as files:
        assert (await files.use("write_file", path="run.sh", content="new")).startswith("Replaced")
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o700


async def test_a_folder_that_may_only_be_read_offers_no_more(folder: Path) -> None:
    names = [tool.name for tool in files_tools(FilesSettings(folder=folder, write=False))]
    assert names == ["list_files", "read_file", "search_files"]


ESCAPES = [
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "/etc/passwd",
    "~/x",
    "link",
    "door/secret.txt",
    "\\x",
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_nothing_outside_is_read_or_written(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "outside" / "secret.txt")
    (folder / "door").symlink_to(folder.parent / "outside")
    async with bench(folder) as files:
        for name, given_ in (
            ("read_file", {}),
            ("write_file", {"content": "gone"}),
            ("edit_file", {"old": "the secret", "new": "gone"}),
            ("list_files", {}),
        ):
            assert (await files.use(name, path=path, **given_)).startswith("Error: "), name
        assert await files.use("search_files", text="secret") == "Nothing was found."
    assert (folder.parent / "outside" / "secret.txt").read_text() == "the secret"
    assert [each.name for each in (folder.parent / "outside").iterdir()] == ["secret.txt"]


@pytest.mark.parametrize("name", ["fifo", "device"])
async def test_what_is_no_plain_file_is_refused_at_once(folder: Path, name: str) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    async with bench(folder) as files:
        assert (await files.use("read_file", path=name)).startswith("Error: ")
        assert (await files.use("read_file", path="")).startswith("Error: ")


class SwappedFolder(Folder):
    """Between looking at a path and opening it, somebody puts a link in its place."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root

    def swap(self) -> None:
        """The folder `a` becomes a link to the outside."""
        (self.root / "a").rename(self.root / "a-before")
        (self.root / "a").symlink_to(self.root.parent / "outside")


def test_a_link_put_in_the_way_meanwhile_is_not_followed(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "secret.txt").write_text("ours")
    opened = SwappedFolder(folder)
    walk = opened.walk("")
    assert next(walk)[0] == "a/secret.txt"
    opened.swap()
    with pytest.raises(ToolError, match="link"):
        opened.read("a/secret.txt", 100)
    with pytest.raises(ToolError, match="link"):
        opened.write("a/secret.txt", b"gone", "key")
    assert list(walk) == []


NAMES = st.sampled_from(["..", ".", "", "a", "door", "link", "secret.txt", "outside", "...", "..\\", "a\x00b"])


@given(st.lists(NAMES, max_size=8).map("/".join) | st.text(max_size=40))
def test_no_path_has_a_component_that_leads_up(path: str) -> None:
    try:
        parts = parts_of(path)
    except ToolError:
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\x00" in part for part in parts)


@given(st.lists(NAMES, max_size=6).map("/".join))
def test_whatever_the_path_the_secret_is_not_read(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.getbasetemp() / "paths"
    (base / "outside").mkdir(parents=True, exist_ok=True)
    (base / "outside" / "secret.txt").write_text("the secret")
    (base / "inside" / "a").mkdir(parents=True, exist_ok=True)
    for link, target in (("door", "../outside"), ("link", "../outside/secret.txt"), ("a/door", "../../outside")):
        if not (base / "inside" / link).is_symlink():
            (base / "inside" / link).symlink_to(target)
    with pytest.raises(ToolError):
        Folder(base / "inside").read(path, 100)


async def test_sizes_are_bounded_and_the_model_is_told(folder: Path) -> None:
    (folder / "big.txt").write_text("x" * 101)
    (folder / "picture.png").write_bytes(b"\x89PNG\x00\x01")
    for n in range(5):
        (folder / f"f{n}").write_text("word")
    async with bench(folder, file_bytes=100, entries=3, matches=2) as files:
        assert "larger than 100 bytes" in await files.use("read_file", path="big.txt")
        assert "100 bytes at most" in await files.use("write_file", path="x", content="x" * 101)
        assert "not a text file" in await files.use("read_file", path="picture.png")
        assert (await files.use("list_files")).endswith("... and 4 more")
        assert (await files.use("search_files", text="word")).count("\n") == 2


@pytest.mark.parametrize(("content", "times"), [("none", 0), ("x x", 2)])
async def test_an_edit_needs_its_text_exactly_once(folder: Path, content: str, times: int) -> None:
    (folder / "a.txt").write_text(content)
    async with bench(folder) as files:
        assert f"{times} times" in await files.use("edit_file", path="a.txt", old="x", new="y")
    assert (folder / "a.txt").read_text() == content


def test_what_an_earlier_process_left_of_a_write_is_replaced(folder: Path) -> None:
    """The process died between writing the draft and putting it in place: the repetition leaves one file."""
    files = Folder(folder)
    files.write("a.txt", b"first", "turn:call")
    draft = ".everturn-" + hashlib.sha256(b"turn:call").hexdigest()[:16]
    (folder / draft).write_bytes(b"half")
    files.write("a.txt", b"first", "turn:call")
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


async def test_what_was_dropped_into_a_conversation_is_read_by_its_address_and_not_changed(folder: Path) -> None:
    uploads, number = folder.parent / "uploads", "a" * 22
    uploads.mkdir()
    (uploads / f"{number}.my notes.txt").write_text("whales")
    async with bench(folder, uploads=uploads) as files:
        assert await files.use("read_file", path=f"/files/{number}/my%20notes.txt") == "whales"
        for path in (f"/files/{number}/..%2F..%2Foutside%2Fsecret.txt", f"/files/{number}/other.txt"):
            said = await files.use("read_file", path=path)
            assert "no such file" in said or "relative" in said
        assert "relative" in await files.use("write_file", path=f"/files/{number}/my%20notes.txt", content="x")
    assert (uploads / f"{number}.my notes.txt").read_text() == "whales"
