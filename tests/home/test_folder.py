"""The home: its files and modes, the API token, and the lock, held by real processes that are really killed."""

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from everturn.errors import ConfigError, HomeLocked
from everturn.home.folder import Holder, Home, HomeLock, holder

HOLD = """
import sys
from pathlib import Path
from everturn.home.folder import Home, HomeLock
lock = HomeLock(Home(Path(sys.argv[1]))).acquire()
lock.update("http://127.0.0.1:8484")
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from everturn.errors import HomeLocked
from everturn.home.folder import Home, HomeLock
try:
    HomeLock(Home(Path(sys.argv[1]))).acquire()
except HomeLocked as error:
    print(error)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@contextmanager
def process(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has said its first line; it is killed at the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_what_was_given_else_the_variable_else_in_the_users_directory(tmp_path: Path) -> None:
    env = {"EVERTURN_HOME": str(tmp_path / "b")}
    assert Home.find(tmp_path / "a", env).path == tmp_path / "a"
    assert Home.find(None, env).path == tmp_path / "b"
    assert Home.find(None, {"EVERTURN_HOME": ""}).path == Path.home() / ".everturn"
    assert Home.find(Path("x"), {}).path == Path.cwd() / "x"


def test_the_files_have_their_documented_names(home: Home) -> None:
    files = [home.config_file, home.database, home.token_file, home.lock_file]
    names = ["everturn.toml", "everturn.db", "api_token", "gateway.lock"]
    assert [file.name for file in files] == names
    assert {file.parent for file in files} == {home.path}


def test_a_new_home_is_for_its_owner_only(home: Home) -> None:
    home.create()
    home.create()
    assert mode(home.path) == 0o700


def test_a_home_others_can_write_in_is_told_and_left(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.path.mkdir()
    home.path.chmod(0o777)
    home.create()
    assert mode(home.path) == 0o777
    assert "other users can write" in caplog.text


def test_a_home_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"file cannot be made: a file is in its place; choose another with --home"):
        Home(tmp_path / "file").create()
    with pytest.raises(ConfigError, match="Not a directory"):
        Home(tmp_path / "file" / "below").create()


def test_the_token_is_made_once_for_the_owner_only(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    token = home.api_token()
    assert len(token) == 43
    assert mode(home.token_file) == 0o600
    assert Home(home.path).api_token() == token
    assert [path.name for path in home.path.iterdir()] == ["api_token"]
    assert not caplog.records


def test_many_who_ask_first_get_the_same_token(home: Home) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: home.api_token(), range(64)))) == 1


def test_a_token_others_can_read_is_closed_and_told(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    token = home.api_token()
    home.token_file.chmod(0o644)
    assert home.api_token() == token
    assert mode(home.token_file) == 0o600
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "mode 644" in caplog.text
    assert token not in caplog.text


def test_an_empty_token_is_never_used(home: Home) -> None:
    home.create()
    home.token_file.write_text("\n", encoding="utf-8")
    assert len(home.api_token()) == 43


def test_a_token_that_cannot_be_read_is_an_error_that_names_it(home: Home) -> None:
    home.token_file.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"api_token cannot be read"):
        home.api_token()


def test_the_lock_is_refused_at_once_and_told_who_holds_it(home: Home) -> None:
    with process(HOLD, home.path) as gateway, pytest.raises(HomeLocked) as caught:
        HomeLock(home).acquire()
    said = str(caught.value)
    assert f"process {gateway.pid} on " in said
    assert "at http://127.0.0.1:8484, since 20" in said
    assert f"everturn stop --home {home.path}" in said


def test_others_can_see_who_holds_the_home(home: Home) -> None:
    assert holder(home) is None
    with HomeLock(home) as lock:
        assert holder(home) == Holder(**json.loads(home.lock_file.read_text(encoding="utf-8")))
        lock.update("http://a-much-longer-address:8484")
        lock.update("http://h:1")
        found = holder(home)
        assert found is not None
        assert (found.pid, found.url) == (os.getpid(), "http://h:1")
    assert holder(home) is None
    assert home.lock_file.exists()


def test_the_lock_is_free_after_the_holder_was_killed(home: Home) -> None:
    with process(HOLD, home.path) as gateway:
        gateway.kill()
        gateway.wait()
        assert str(gateway.pid) in home.lock_file.read_text(encoding="utf-8")
        assert holder(home) is None
        with HomeLock(home):
            pass


def test_a_damaged_lock_file_decides_nothing(home: Home) -> None:
    home.create()
    home.lock_file.write_text("{", encoding="utf-8")
    assert holder(home) is None
    with HomeLock(home):
        home.lock_file.write_text('{"pid": ', encoding="utf-8")
        assert holder(home) == Holder()
        with pytest.raises(HomeLocked, match="locked by another process"):
            HomeLock(home).acquire()


def test_a_program_that_the_holder_started_does_not_keep_the_lock(home: Home) -> None:
    lock = HomeLock(home).acquire()
    command = [sys.executable, "-c", "print('held', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        child.stdout.readline()
        lock.release()
        assert holder(home) is None
        child.kill()


FORK = """
import os, sys
from pathlib import Path
from everturn.home.folder import Home, HomeLock
lock = HomeLock(Home(Path(sys.argv[1]))).acquire()
if os.fork() == 0:
    print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(home: Home) -> None:
    with process(FORK, home.path) as gateway:
        assert holder(home) is not None
        gateway.kill()
        gateway.wait()
        assert holder(home) is None
        assert gateway.stdin is not None
        gateway.stdin.close()


def test_who_only_asks_never_keeps_a_gateway_from_starting(home: Home) -> None:
    home.create()
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(lambda: [holder(home) for _ in range(500)]) for _ in range(2)]
        for _ in range(50):
            with HomeLock(home):
                pass
        for each in asking:
            each.result()


def test_only_one_of_many_gateways_starts(home: Home) -> None:
    with process(HOLD, home.path) as gateway:
        tries = [
            subprocess.Popen([sys.executable, "-c", TRY, home.path], stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        assert all(f"process {gateway.pid}" in child.communicate()[0] for child in tries)
