"""Commands on a home whose gateway does not run: they lock it and read its store; they create nothing."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.home.folder import Home, HomeLock
from everturn.testing import FakePlatform, ScriptedAgent, World
from tests.cli.program import Ended, called, everturn

LOOKING = [("sessions",), ("status",), ("explain", "m1"), ("config", "show"), ("stop",), ("restart",), ("version",)]


async def conversation(home: Path, *chats: str) -> None:
    """Run a gateway in this home: one message in each chat, with one tool."""
    platform = FakePlatform()
    async with World(f"sqlite:///{home / 'everturn.db'}", ScriptedAgent(["look"]), [platform]):
        for chat in chats:
            platform.say(chat, "hello")
        await platform.until(lambda: len(platform.screen) == len(chats))


@pytest.mark.parametrize(("run", "command"), [(everturn, LOOKING[0]), *((called, command) for command in LOOKING)])
def test_looking_at_a_home_that_does_not_exist_makes_nothing(
    tmp_path: Path, run: Callable[..., Ended], command: tuple[str, ...]
) -> None:
    home = tmp_path / "none"
    ended = run(*command, home=home)
    assert ended.code == (1 if command[0] in {"explain", "restart"} else 0)
    assert ended.out + ended.err
    assert not home.exists()


def test_a_home_without_sessions_has_an_empty_list(tmp_path: Path) -> None:
    assert json.loads(called("sessions", "--json", home=tmp_path).out) == []
    assert called("sessions", home=tmp_path).out == f"There are no sessions in {tmp_path}.\n"
    assert list(tmp_path.iterdir()) == []


async def test_sessions_are_listed_for_people_and_programs(tmp_path: Path) -> None:
    await conversation(tmp_path, "one", "two")
    listed = json.loads(called("sessions", "--json", home=tmp_path).out)
    assert [each["key"] for each in listed] == ["agent:main:fake:dm:one", "agent:main:fake:dm:two"]
    assert {each["state"] for each in listed} == {"active"}
    table = everturn("sessions", home=tmp_path).out.splitlines()
    assert table[0].split()[:3] == ["key", "session", "state"]
    assert listed[0]["session_id"] in table[1]


async def test_the_life_of_a_message_is_told_in_order(tmp_path: Path) -> None:
    await conversation(tmp_path, "one")
    told = everturn("explain", "m1", home=tmp_path).out
    wanted = [
        "received from fake",
        "attempt 1 began without a note",
        "effect look call-1 (once) begun",
        "delivered",
        "done",
    ]
    places = [told.find(text) for text in wanted]
    assert -1 not in places, told
    assert places[:3] == sorted(places[:3])
    (message,) = json.loads(called("explain", "m1", "--json", home=tmp_path).out)
    assert (message["state"], message["turn"]["attempts"][0]["note"]) == ("done", None)


async def test_all_messages_with_one_id_are_told(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", ScriptedAgent(), [platform]):
        platform.say("one", "hello", "same")
        platform.say("two", "hello", "same")
        await platform.until(lambda: len(platform.screen) == 2)
    told = called("explain", "same", home=tmp_path)
    assert "same@one" in told.out
    assert "same@two" in told.out


async def test_an_unknown_message_is_said_to_be_unknown(tmp_path: Path) -> None:
    await conversation(tmp_path, "one")
    ended = called("explain", "nobody", home=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert "no message with the id 'nobody'" in ended.err


async def test_status_tells_how_the_last_life_ended(tmp_path: Path) -> None:
    await conversation(tmp_path, "one")
    status = json.loads(called("status", "--json", home=tmp_path).out)
    assert (status["running"], status["previous_exit"]["ended"]) == (False, "stop")
    assert f"No gateway runs on {tmp_path}" in called("status", home=tmp_path).out


async def test_a_home_that_is_released_meanwhile_is_waited_for(tmp_path: Path) -> None:
    await conversation(tmp_path, "one")
    with HomeLock(Home(tmp_path)):
        looking = asyncio.create_task(asyncio.to_thread(everturn, "sessions", "--json", home=tmp_path))
        assert await asyncio.wait({looking}, timeout=0.5) == (set(), {looking})
    assert len(json.loads((await looking).out)) == 1


def test_a_damaged_database_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "everturn.db").write_text("this is not a database, but long enough to look at" * 10)
    ended = called("sessions", home=tmp_path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (78, "", 1)
    assert "is not an Everturn database" in ended.err


async def test_another_file_of_settings_names_another_store(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    await conversation(other, "one")
    (tmp_path / "some.toml").write_text(f'[store]\nurl = "sqlite:///{other / "everturn.db"}"\n')
    listed = called("sessions", "--json", "--config", str(tmp_path / "some.toml"), home=home)
    assert len(json.loads(listed.out)) == 1
