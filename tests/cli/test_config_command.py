"""`everturn config show` tells what is in force and where it came from; wrong settings end with 78 and their name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Ended, called, everturn


def test_each_setting_is_shown_with_its_origin(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("[drain]\ntimeout_s = 7\n[server]\nport = 1\n")
    ended = everturn("config", "show", "--json", home=tmp_path, EVERTURN_SERVER_PORT="2")
    settings = json.loads(ended.out)["settings"]
    assert settings["drain.timeout_s"] == {"value": 7, "origin": f"file {tmp_path / 'everturn.toml'}"}
    assert settings["server.port"] == {"value": 2, "origin": "environment EVERTURN_SERVER_PORT"}
    assert settings["agent.kind"] == {"value": "demo", "origin": "environment EVERTURN_AGENT_KIND"}
    assert settings["agent.fallback"] == {"value": [], "origin": "default"}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_password_is_never_shown(tmp_path: Path, form: tuple[str, ...]) -> None:
    url = "postgresql://ann:very-secret@db.example/everturn"
    ended = called("config", "show", *form, home=tmp_path, EVERTURN_STORE_URL=url)
    assert "very-secret" not in ended.out + ended.err
    assert "db.example" in ended.out


def test_how_answers_are_shown_in_a_chat_is_told_with_the_table_that_decides(tmp_path: Path) -> None:
    """The chat's table, else the platform's, else the one for all, else what is built in."""
    text = '[display]\nquote = "never"\n[display.platform.telegram]\nsilence = "send"\n[display.chat."telegram:-7"]\ntyping = false\n'
    (tmp_path / "everturn.toml").write_text(text)
    asked = ("config", "show", "--json", "--platform", "telegram")
    there = json.loads(called(*asked, home=tmp_path).out)["settings"]
    chat = json.loads(called(*asked, "--chat=-7", home=tmp_path).out)["settings"]
    file = f"file {tmp_path / 'everturn.toml'}"
    assert chat["display.typing"] == {"value": False, "origin": f'[display.chat."telegram:-7"], {file}'}
    assert chat["display.silence"] == {"value": "send", "origin": f"[display.platform.telegram], {file}"}
    assert chat["display.quote"] == {"value": "never", "origin": f"[display], {file}"}
    assert chat["streaming.enabled"] == there["display.typing"] == {"value": True, "origin": "default"}
    assert "agent.kind" not in chat


def test_how_answers_are_shown_on_a_platform_of_the_owners_is_told_too(tmp_path: Path) -> None:
    text = '[platforms.own.folder]\nenabled = true\nobject = "folder_platform:FolderPlatform"\n[display.platform.folder]\ntyping = false\n'
    (tmp_path / "everturn.toml").write_text(text)
    there = json.loads(called("config", "show", "--json", "--platform=folder", home=tmp_path).out)["settings"]
    file = f"file {tmp_path / 'everturn.toml'}"
    assert there["display.typing"] == {"value": False, "origin": f"[display.platform.folder], {file}"}
    assert "there are folder, telegram, matrix" in called("config", "show", "--platform=own", home=tmp_path).err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--chat=7", "needs --platform"),
        ("--platform=telegarm", "there are telegram, matrix"),
        ("--platform=own", "unknown platform 'own'"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, asked: str, said: str) -> None:
    ended = called("config", "show", asked, home=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_table_for_people_has_every_setting(tmp_path: Path) -> None:
    lines = called("config", "show", home=tmp_path).out.splitlines()
    assert [line.split() for line in lines if line.startswith("server.port")] == [["server.port", "8484", "default"]]


def test_old_names_and_unknown_variables_warn(tmp_path: Path) -> None:
    ended = called("config", "show", home=tmp_path, EVERTURN_GATEWAY_PORT="1", EVERTURN_SERVER_PROT="2")
    assert ended.code == 0
    assert "gateway.port is called server.port now" in ended.err
    assert "EVERTURN_SERVER_PROT" in ended.err


@pytest.mark.parametrize(
    ("run", "command"),
    [
        (everturn, ("run",)),
        (everturn, ("run", "--supervise")),
        (called, ("config", "show")),
        (called, ("sessions",)),
        (called, ("restart",)),
    ],
)
def test_a_wrong_setting_ends_with_78_and_its_name(
    tmp_path: Path, run: Callable[..., Ended], command: tuple[str, ...]
) -> None:
    (tmp_path / "everturn.toml").write_text("[server]\nprot = 1\n")
    ended = run(*command, home=tmp_path)
    assert (ended.code, ended.out) == (78, "")
    assert "unknown setting server.prot; the nearest known one is server.port" in ended.err


def test_a_port_out_of_range_ends_with_78(tmp_path: Path) -> None:
    ended = everturn("run", "--port", "70000", home=tmp_path)
    assert ended.code == 78
    assert "server.port" in ended.err


def test_a_home_that_cannot_be_made_ends_with_78(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = everturn("run", "--port", "0", home=tmp_path / "file" / "home")
    assert ended.code == 78
    assert "cannot be made" in ended.err
