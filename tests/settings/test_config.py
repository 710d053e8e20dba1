"""Settings: every source, their order, and an error that helps for everything that can be wrong."""

import os
import runpy
from pathlib import Path
from typing import Any

import pytest

from everturn.errors import ConfigError
from everturn.settings import SETTINGS, TABLES, Setting, find_setting, value_at
from everturn.settings.config import Config, Loaded, ResetConfig, StoreConfig, read_config, shown
from tests.house import ROOT

GENERATE = runpy.run_path(str(ROOT / "scripts" / "generate.py"))


def read(home: Path, text: str = "", env: dict[str, str] | None = None, **overrides: object) -> Loaded:
    (home / "everturn.toml").write_text(text, encoding="utf-8")
    return read_config(home, None, env or {}, {key.replace("__", "."): value for key, value in overrides.items()})


def error(home: Path, text: str = "", env: dict[str, str] | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(home, text, env, **overrides)
    return str(caught.value)


def test_without_a_file_every_setting_has_its_default(tmp_path: Path) -> None:
    loaded = read_config(tmp_path, None, {}, {})
    assert loaded.config == Config()
    assert loaded.file is None
    assert set(loaded.origins) == {each.keys for each in SETTINGS.values()}
    assert set(loaded.origins.values()) == {"default"}


def test_the_documented_defaults_hold() -> None:
    config = Config()
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8484)
    assert (config.sessions.reset, config.sessions.busy, config.recovery.resume) == ("none", "steer", "auto")
    assert (config.recovery.fresh_s, config.recovery.stuck_after, config.recovery.crash_loop_delay_s) == (3600, 3, 60)
    assert (config.agent.kind, config.store.url, config.drain.timeout_s) == ("auto", "", 30)


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    text = '[server]\nport = 1\nhost = "a"\n[limits]\nrunning_turns = 1'
    env = {"EVERTURN_SERVER_PORT": "2", "EVERTURN_SERVER_HOST": "b"}
    loaded = read(tmp_path, text, env, server__port=3, server__host=None)
    assert (loaded.config.server.port, loaded.config.server.host, loaded.config.limits.running_turns) == (3, "b", 1)
    assert loaded.origin("server.port") == "command line"
    assert loaded.origin("server.host") == "environment EVERTURN_SERVER_HOST"
    assert loaded.origin("limits.running_turns") == f"file {tmp_path / 'everturn.toml'}"
    assert loaded.origin("limits.message_chars") == "default"


SCALARS = [each for each in SETTINGS.values() if each.variable]
SAMPLES = {
    "server.public_url": "https://chat.example.org",
    "store.url": "sqlite:///x",
    "sessions.timezone": "UTC",
    "agent.model": "openai:x",
    "agent.base_url": "https://host/v1",
    "agent.url": "https://host/",
    "agent.object": "module:thing",
    "telemetry.endpoint": "http://host:4318",
}


def another_value(what: Setting) -> str:
    """A value that the setting takes, other than its default where there is one."""
    if isinstance(what.default, bool):
        return shown(not what.default)
    if what.rule.between:
        return str(what.rule.between[1])
    return what.rule.choices[0] if what.rule.choices else SAMPLES.get(what.key, "HAM")


@pytest.mark.parametrize("what", SCALARS, ids=[each.key for each in SCALARS])
def test_every_setting_can_come_from_the_environment(tmp_path: Path, what: Setting) -> None:
    text = another_value(what)
    loaded = read(tmp_path, "", {str(what.variable): text})
    assert loaded.origin(what.key) == f"environment {what.variable}"
    assert shown(value_at(loaded.config, what.keys)).strip('"') == text
    assert not loaded.warnings


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("1", "0"), ("Yes", "NO"), (" on", "off ")])
def test_a_variable_may_say_yes_and_no_in_several_ways(tmp_path: Path, yes: str, no: str) -> None:
    assert read(tmp_path, "", {"EVERTURN_SESSIONS_NOTIFY": yes}).config.sessions.notify is True
    assert read(tmp_path, "", {"EVERTURN_SESSIONS_NOTIFY": no}).config.sessions.notify is False


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert read(tmp_path, "[server]\nport = 5", {"EVERTURN_SERVER_PORT": ""}).config.server.port == 5


def test_a_whole_number_is_fine_where_a_number_is_wanted(tmp_path: Path) -> None:
    value = read(tmp_path, "[drain]\ntimeout_s = 5").config.drain.timeout_s
    assert (value, type(value)) == (5.0, float)


@pytest.mark.parametrize(
    ("text", "wrong", "near"),
    [
        ("[recovery]\nstuck_afer = 1", "recovery.stuck_afer", "recovery.stuck_after"),
        ("[server]\nrunning_turns = 1", "server.running_turns", "limits.running_turns"),
        ("port = 1", "port", "server.port"),
        ('[sore]\nurl = ""', "sore.url", "store.url"),
        ("[sever]", "[sever]", "[server]"),
        ('[sessions.platform.api]\nrest = "none"', "sessions.platform.api.rest", "sessions.platform.api.reset"),
        ('[sessions.chat_type.grup]\nreset = "idle"', "grup", "group"),
        ("[server.port]\nx = 1", "server.port.x", "server.port"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path, text: str, wrong: str, near: str) -> None:
    said = error(tmp_path, text)
    assert "unknown" in said
    assert wrong in said
    assert said.endswith(near)
    assert str(tmp_path / "everturn.toml") in said


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ('[server]\nport = "8484"', "server.port", "a whole number from 0 to 65535"),
        ("[server]\nport = 65536", "server.port", "out of range"),
        ("[server]\nport = true", "server.port", "a whole number"),
        ('[server]\nhost = ""', "server.host", "a host name"),
        ("[drain]\ntimeout_s = nan", "drain.timeout_s", "a number from 0"),
        ("[drain]\ntimeout_s = -1", "drain.timeout_s", "out of range"),
        ("[sessions]\nnotify = 1", "sessions.notify", "true or false"),
        ("[sessions]\nat_hour = 24", "sessions.at_hour", "from 0 to 23"),
        ('[sessions]\nreset = "dayly"', "sessions.reset", 'the nearest is "daily"'),
        ('[sessions]\ntimezone = "Europe/Berlyn"', "sessions.timezone", '"Europe/Berlin"'),
        ('[sessions]\ntimezone = "Europe"', "sessions.timezone", "name of a time zone"),
        ('[sessions.platform.api]\nreset = "x"', "sessions.platform.api.reset", '"none", "idle"'),
        ('[sessions.platform."../x"]\nreset = "none"', "sessions.platform", "small letters"),
        ('[store]\nurl = "mysql://h/x"', "store.url", "postgresql://"),
        ('[agent]\nkind = "lllm"', "agent.kind", 'the nearest is "llm"'),
        ("server = 1", "server", "a table: write [server]"),
        ("[[server]]\nport = 1", "server", "a table: write [server]"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    said = error(tmp_path, text)
    assert key in said
    assert allowed in said


def test_a_bad_variable_or_option_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert "EVERTURN_SERVER_PORT: server.port" in error(tmp_path, "", {"EVERTURN_SERVER_PORT": "many"})
    assert "EVERTURN_SESSIONS_NOTIFY" in error(tmp_path, "", {"EVERTURN_SESSIONS_NOTIFY": "maybe"})
    assert "command line: server.port" in error(tmp_path, server__port=-1)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    said = error(tmp_path, "[server]\nport = -1\nprt = 2", {"EVERTURN_DRAIN_TIMEOUT_S": "x"}, server__host="")
    assert len(said.splitlines()) == 4


def test_an_unknown_variable_only_warns_and_names_the_nearest(tmp_path: Path) -> None:
    env = {"EVERTURN_STORE_ULR": "x", "EVERTURN_HOME": "x", "EVERTURN_SUPERVISOR_FD": "3", "PATH": "x"}
    (warning,) = read(tmp_path, "", env).warnings
    assert "EVERTURN_STORE_ULR" in warning
    assert "EVERTURN_STORE_URL" in warning


def test_a_renamed_key_works_and_warns(tmp_path: Path) -> None:
    loaded = read(tmp_path, '[gateway]\nport = 9\nhost = "old"\n[server]\nhost = "new"')
    assert (loaded.config.server.port, loaded.config.server.host) == (9, "new")
    assert any("gateway.port is called server.port now" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("platforms.telegram", "on_doubt", "on_unknown_delivery"),
        ("platforms.matrix", "on_doubt", "on_unknown_delivery"),
        ("recovery", "calm_s", "crash_loop_delay_s"),
    ],
)
def test_a_name_from_before_the_first_release_is_refused_with_the_new_one(
    tmp_path: Path, table: str, old: str, new: str
) -> None:
    assert f"{table}.{old} is called {table}.{new} now: please rename it" in error(tmp_path, f"[{table}]\n{old} = 1\n")
    variable, current = (f"EVERTURN_{table}_{name}".upper().replace(".", "_") for name in (old, new))
    assert f"environment {variable}: it is called {current} now: please rename it" in error(
        tmp_path, "", {variable: "1"}
    )


def test_a_name_that_never_was_one_is_not_called_renamed(tmp_path: Path) -> None:
    assert "the nearest known one" in error(tmp_path, "[server]\non_doubt = 1\n")
    (warning,) = read(tmp_path, "", {"EVERTURN_SERVER_ON_DOUBT": "1"}).warnings
    assert "not a setting and ignored" in warning


def test_a_renamed_variable_works_and_warns(tmp_path: Path) -> None:
    loaded = read(tmp_path, "", {"EVERTURN_GATEWAY_PORT": "9"})
    assert loaded.config.server.port == 9
    assert "server.port" in loaded.warnings[0]


def test_broken_toml_is_named_with_file_and_line(tmp_path: Path) -> None:
    said = error(tmp_path, "[server]\nport = = 1")
    assert str(tmp_path / "everturn.toml") in said
    assert "line 2" in said


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"[server]\n# \xff")
    with pytest.raises(ConfigError, match=r"x\.toml: not UTF-8 text \(at line 2\)"):
        read_config(tmp_path, tmp_path / "x.toml", {}, {})


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"other\.toml: it cannot be read: No such file"):
        read_config(tmp_path, tmp_path / "other.toml", {}, {})


def test_another_file_is_read_instead_of_the_homes(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nport = 7\r\n")
    (tmp_path / "everturn.toml").write_text("nonsense", encoding="utf-8")
    assert read_config(tmp_path, tmp_path / "other.toml", {}, {}).config.server.port == 7


def test_a_platform_goes_before_a_chat_type_goes_before_the_default(tmp_path: Path) -> None:
    text = """
        [sessions]
        idle_minutes = 10
        [sessions.platform.telegram]
        reset = "daily"
        [sessions.chat_type.group]
        reset = "idle"
        notify = false
    """
    sessions = read(tmp_path, text).config.sessions
    plain = ResetConfig(reset="none", idle_minutes=10, at_hour=4, notify=True)
    assert sessions.reset_for("api", "dm") == plain
    assert sessions.reset_for("api", "group") == ResetConfig(reset="idle", idle_minutes=10, at_hour=4, notify=False)
    assert sessions.reset_for("telegram", "group") == ResetConfig(
        reset="daily", idle_minutes=10, at_hour=4, notify=True
    )


def test_a_platforms_policy_can_come_from_the_environment(tmp_path: Path) -> None:
    text = '[sessions.platform.my_chat]\nreset = "daily"\nat_hour = 1'
    loaded = read(tmp_path, text, {"EVERTURN_SESSIONS_PLATFORM_MY_CHAT_AT_HOUR": "2"})
    assert loaded.config.sessions.reset_for("my_chat", "dm").at_hour == 2
    assert ("sessions.platform.my_chat.reset", "daily", f"file {tmp_path / 'everturn.toml'}") in loaded.entries()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@host/db",
        "postgresql://me:s3cret@with@host:5432/db",
        "postgresql://:s3cret@host/db",
        "postgresql://host/db?user=me&password=s3cret&sslmode=require",
        "postgresql://me@host/db?sslpassword=s3cret",
    ],
)
def test_a_password_is_never_shown(tmp_path: Path, url: str) -> None:
    loaded = read(tmp_path, "", {"EVERTURN_STORE_URL": url})
    assert loaded.config.store.url == url
    assert "s3cret" not in shown(url) + repr(loaded) + str(list(loaded.entries()))
    assert "s3cret" not in error(tmp_path, "", {"EVERTURN_STORE_URL": f"x{url}"})
    assert "host" in shown(url)


def test_settings_cannot_be_changed_in_place() -> None:
    store: Any = StoreConfig()
    with pytest.raises(AttributeError):
        store.url = "x"


def test_the_generated_files_are_up_to_date() -> None:
    texts: dict[Path, str] = GENERATE["generated"]()
    assert [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text] == []


def test_the_example_names_every_setting_with_its_default(tmp_path: Path) -> None:
    example: str = GENERATE["example_toml"]()
    lines = [line.removeprefix("#") if line[1:2] != " " else line for line in example.splitlines()]
    loaded = read(tmp_path, os.linesep.join(lines))
    assert all(loaded.origin(key).startswith("file") for key in SETTINGS)
    assert all(value_at(loaded.config, each.keys) == each.default for each in SETTINGS.values())


def test_the_example_shows_every_table_that_the_owner_names(tmp_path: Path) -> None:
    shown_there = set(GENERATE["EXAMPLES"])
    open_ones = {".".join(table.keys) for table in TABLES if table.open and table.settings()}
    assert shown_there | {name for name in open_ones if name.startswith("agents.NAME.")} == open_ones


def test_every_table_of_the_tree_can_be_found_again() -> None:
    for table in TABLES:
        for each in table.settings():
            assert table.open or find_setting(each.keys) == each
