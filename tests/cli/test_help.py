"""The help answers at once: it loads no command, no database, no server. Every command takes --home."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everturn import __version__
from everturn.cli.commands import COMMANDS
from tests.cli.program import called, environment, everturn

HEAVY = {
    "anthropic",
    "apsw",
    "asyncio",
    "asyncpg",
    "httpx",
    "mcp",
    "msgspec",
    "openai",
    "pydantic",
    "pydantic_ai",
    "rich",
    "starlette",
    "structlog",
    "uvicorn",
    "xllamacpp",
    "everturn.settings.config",
}
LOADED = """
import json, sys
from everturn.cli.commands import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    """The modules that are in memory when the command has ended."""
    command = [sys.executable, "-P", "-c", LOADED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_the_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert loaded & HEAVY == set()
    assert [name for name in loaded if name.startswith("everturn.cli.") and name != "everturn.cli.commands"] == []


def test_the_help_of_run_loads_no_server_and_no_database() -> None:
    assert loaded_by("run", "--help") & {"apsw", "asyncpg", "httpx", "rich", "starlette", "uvicorn"} == set()


def test_the_help_lists_every_command() -> None:
    text = everturn("--help").out
    assert all(f"  {name} " in text and line in text for name, (_, line) in COMMANDS.items())


GROUPS = {
    "channels": ("list", "alias", "unalias"),
    "config": ("show",),
    "connect": ("telegram",),
    "dead": ("list", "send", "run", "drop"),
    "keys": ("create", "list", "revoke"),
    "pair": ("list", "approve", "allow", "revoke"),
}


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in COMMANDS if name not in GROUPS),
        *(f"{group} {name}" for group, names in GROUPS.items() for name in names),
    ],
)
def test_every_command_takes_a_home(name: str) -> None:
    ended = called(*name.split(), "--help")
    assert ended.code == 0
    assert "--home DIR" in ended.out


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert everturn("version", home=tmp_path).out == everturn("--version").out == f"everturn {__version__}\n"


def test_a_wrong_command_or_option_is_named() -> None:
    assert "No such command 'sesions'" in everturn("sesions").err
    wrong = called("run", "--prot", "1")
    assert (wrong.code, "--prot" in wrong.err) == (2, True)
