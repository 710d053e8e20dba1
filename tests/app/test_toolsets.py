"""The composition of tools: off unless switched on, and only for the agents that name them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everturn.agent.interface import TurnContext
from everturn.app.toolsets import ToolParts, Toolsets
from everturn.clock import SystemClock
from everturn.errors import ConfigError
from everturn.model import SessionSource
from everturn.settings.agent import BUILT_IN
from everturn.settings.config import read_config
from everturn.store.open import open_store

ALL = "".join(f"[tools.{name}]\nenabled = true\n" for name in BUILT_IN)


async def send(_turn: TurnContext, _call: str, _to: SessionSource | None, _text: str, /) -> bool:
    return True


@asynccontextmanager
async def made(home: Path, text: str) -> AsyncIterator[Toolsets]:
    (home / "everturn.toml").write_text(text)
    config = read_config(home, None, {}, {}).config
    store = await open_store(f"sqlite:///{home / 'everturn.db'}")
    tools = Toolsets(config, ToolParts(home=home, env={}, clock=SystemClock(), store=store, send=send))
    try:
        tools.make()
        yield tools
    finally:
        await tools.close()
        await store.close()


def names(tools: Toolsets, *chosen: str, every: bool = True) -> set[str]:
    return {tool.name for source in tools.named(chosen, every=every) for tool in source.tools() or ()}


async def test_nothing_is_offered_unless_it_is_switched_on(tmp_path: Path) -> None:
    async with made(tmp_path, "") as tools:
        assert names(tools, "*") == set()


async def test_everything_can_be_switched_on(tmp_path: Path) -> None:
    async with made(tmp_path, ALL) as tools:
        offered = names(tools, "*")
        assert {"run_command", "fetch_page", "remember", "send_message", "read_output"} <= offered
        assert any("file" in name for name in offered)
        assert (tmp_path / "workspace").is_dir()
        assert not (tmp_path / "files").exists()


async def test_an_agent_gets_what_it_names_and_what_reads_long_outputs(tmp_path: Path) -> None:
    async with made(tmp_path, ALL) as tools:
        assert names(tools, "shell") == {"run_command", "read_output"}
        assert names(tools, "shell", every=False) == {"run_command", "read_output"}
        assert names(tools, "*", every=False) == set()
        assert names(tools) == set()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"tools\.files\.folder: .*taken"):
        async with made(tmp_path, '[tools.files]\nenabled = true\nfolder = "taken"\n'):
            pass


@pytest.mark.parametrize("folder", ["files", "files/own", ".", "", "..", "/", "link", "files/../files"])
@pytest.mark.parametrize("table", ["files", "send"])
async def test_a_folder_with_other_peoples_uploads_is_refused(tmp_path: Path, table: str, folder: str) -> None:
    (tmp_path / "link").symlink_to("files")
    text = f'[tools.{table}]\nenabled = true\nfolder = "{folder}"\n' + ("files = true\n" if table == "send" else "")
    with pytest.raises(ConfigError, match=rf'tools\.{table}\.folder: .*files that people sent.*such as "workspace"'):
        async with made(tmp_path, text):
            pass


UPLOADS = [f"{'a' * 22}.cat.png", f"{'-_' * 11}.notes.txt"]


async def test_what_an_agent_wrote_among_the_uploads_is_moved_to_its_own_folder(tmp_path: Path) -> None:
    """The default was one folder for both. A move that a death cut short goes on at the next start."""
    (tmp_path / "files" / "plans").mkdir(parents=True)
    for name in (*UPLOADS, "todo.txt", "plans/may.txt"):
        (tmp_path / "files" / name).write_text(name)
    (tmp_path / "workspace.moving").mkdir()
    (tmp_path / "workspace.moving" / "moved.txt").write_text("before the death")
    for _ in range(2):
        async with made(tmp_path, ALL):
            pass
    assert {path.name for path in (tmp_path / "files").iterdir()} == set(UPLOADS)
    assert {path.name for path in (tmp_path / "workspace").iterdir()} == {"todo.txt", "plans", "moved.txt"}
    assert (tmp_path / "workspace" / "plans" / "may.txt").read_text() == "plans/may.txt"
    assert not (tmp_path / "workspace.moving").exists()


async def test_a_server_is_named_like_a_tool_and_starts_only_when_it_is_used(tmp_path: Path) -> None:
    text = '[mcp.weather]\ncommand = ["no-such-program"]\neffects = { forecast = "pure" }\n'
    async with made(tmp_path, text) as tools:
        (server, _) = tools.named(("weather",))
        assert server.tools() is None  # dead: it offers nothing, and nobody else notices
        assert tools.named(("shell",)) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[mcp.a]\ncommand = ["x"]\npass_environment = ["SECRET"]\n', "environment variable SECRET, which is not set"),
        ('[mcp.a]\nurl = "https://x"\napi_key_env = "SECRET"\n', "mcp.a.api_key_env names the environment variable"),
        ("[mcp.a]\n", "mcp.a needs a command or a url, and not both"),
        ('[mcp.a]\ncommand = ["x"]\nurl = "https://x"\n', "mcp.a needs a command or a url, and not both"),
        ('[mcp.shell]\ncommand = ["x"]\n', '"shell" is the name of a built-in tool'),
        ('[mcp.a]\ncommand = ["x"]\neffects = { b = "prue" }\n', 'the nearest is "pure"'),
        ('[mcp.a]\ncommand = ["x"]\neffects = "pure"\n', "but must be a table"),
        (
            '[mcp.a]\ncommand = ["x"]\nenvironment = { KEY = 5 }\n',
            "mcp.a.environment must be a table of texts; each of its entries must be a text",
        ),
    ],
)
async def test_what_is_wrong_with_a_server_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        async with made(tmp_path, text):
            pass
    assert said in str(caught.value)


def test_what_a_server_is_given_is_never_shown(tmp_path: Path) -> None:
    text = '[mcp.a]\ncommand = ["x"]\nenvironment = { KEY = "s3cret" }\nheaders = { A = "s3cret" }\n'
    (tmp_path / "everturn.toml").write_text(text)
    loaded = read_config(tmp_path, None, {}, {})
    assert "s3cret" not in repr(loaded) + str(list(loaded.entries()))
    assert loaded.config.mcp["a"].environment == {"KEY": "s3cret"}
