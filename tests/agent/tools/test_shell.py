"""Shell commands: approved first, bounded, without secrets, and never outliving the gateway."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.agent.tools.shell import Child, HeadAndTail, ShellSettings, scrubbed, shell_tools
from everturn.clock import Clock, SystemClock
from everturn.model import Effect, RowOutcome
from everturn.testing import ManualClock
from tests.agent.tools.benches import Bench
from tests.house import ROOT
from tests.waiting import poll

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C", "OPENAI_API_KEY": "sk-secret", "CITY": "Paris"}


def bench(folder: Path, clock: Clock = SystemClock(), **changes: object) -> Bench:  # noqa: B008  it has no state
    settings = ShellSettings(folder=folder, **({"approval": "never"} | changes))  # type: ignore[arg-type]
    return Bench(folder, lambda _: shell_tools(settings, ENVIRON, clock))


def is_gone(pid: int) -> bool:
    """Whether the process has ended (one that nobody reaped yet has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def written_pid(file: Path) -> Callable[[], bool]:
    """Whether a whole process number stands in the file."""
    return lambda: file.exists() and file.read_text().endswith("\n")


async def test_a_command_runs_in_its_folder_and_says_how_it_ended(tmp_path: Path) -> None:
    async with bench(tmp_path) as shell:
        result = await shell.use("run_command", command="pwd; echo oops >&2; exit 3")
    assert result == f"The command ended with code 3. Its output:\n{tmp_path}\noops\n"


@pytest.mark.parametrize(
    ("command", "outcome"), [("true", None), ("exit 3", RowOutcome.FAILED), ("x" * 5_000, RowOutcome.FAILED)]
)
async def test_a_call_that_failed_is_marked_in_the_transcript(
    tmp_path: Path, command: str, outcome: RowOutcome | None
) -> None:
    async with bench(tmp_path, approval="ask" if len(command) > 1000 else "never") as shell:
        (result,) = await shell.results(shell.say(("run_command", {"command": command})))
    assert result.outcome == outcome


async def test_a_person_is_asked_by_default(tmp_path: Path) -> None:
    (tool,) = shell_tools(ShellSettings(folder=tmp_path), ENVIRON, SystemClock())
    assert tool.effect is Effect.ONCE
    assert tool.ask({"command": "ls -l"}) == "Run this command? ls -l"
    shown = tool.ask({"command": "echo 1\n\x1b[2Krm -rf \u202e/"})
    assert shown == r"Run this command? echo 1\n\x1b[2Krm -rf \u202e/"


async def test_a_command_too_long_to_be_seen_is_neither_asked_about_nor_run(tmp_path: Path) -> None:
    (tool,) = shell_tools(ShellSettings(folder=tmp_path), ENVIRON, SystemClock())
    assert tool.ask({"command": "true; " + "x" * 5_000}) is None
    async with bench(tmp_path, approval="ask") as shell:
        result = await shell.use("run_command", command="touch here; : " + "x" * 5_000)
    assert "too long for an approval request" in result
    assert not (tmp_path / "here").exists()


async def test_who_need_not_be_asked_is_not(tmp_path: Path) -> None:
    (tool,) = shell_tools(ShellSettings(folder=tmp_path, approval="never"), ENVIRON, SystemClock())
    assert tool.ask({"command": "ls"}) is None


async def test_the_environment_holds_no_secret(tmp_path: Path) -> None:
    async with bench(tmp_path, environment=("CITY",)) as shell:
        result = await shell.use("run_command", command="env")
    names = {line.partition("=")[0] for line in result.splitlines()[1:]}
    assert "sk-secret" not in result
    assert {"PATH", "HOME", "LC_ALL", "CITY"} <= names
    assert {name for name in names if not name.startswith("TURN_")} <= {
        "PATH",
        "HOME",
        "LC_ALL",
        "CITY",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }


def test_what_is_passed_on_is_named() -> None:
    assert scrubbed({"HOME": "/h", "AWS_SECRET": "x", "CITY": "y"}, ["CITY"]) == {
        "PATH": os.defpath,
        "HOME": "/h",
        "CITY": "y",
    }


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock, time_s=90) as shell:
        number = shell.say(("run_command", {"command": "echo begun; sleep 600 & echo $! > child; wait"}))
        await poll(written_pid(tmp_path / "child"))
        await shell.use("run_command", command="true", chat="two")  # meanwhile what the first has said is read
        clock.advance(91)
        (result,) = await shell.results(number)
    assert result.content == "The command was killed after 90 seconds. Its output:\nbegun\n"
    await poll(lambda: is_gone(int((tmp_path / "child").read_text())))


async def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as shell:
        result = await shell.use("run_command", command="sleep 600 & echo $! > child; echo done")
    assert result.endswith("code 0. Its output:\ndone\n")
    await poll(lambda: is_gone(int((tmp_path / "child").read_text())))


async def test_a_turn_that_is_stopped_ends_its_command(tmp_path: Path) -> None:
    async with bench(tmp_path) as shell:
        shell.say(("run_command", {"command": "sleep 600 & echo $! > child; wait"}))
        await poll(written_pid(tmp_path / "child"))
        shell.platform.say("one", "/stop", "stop")
        await poll(lambda: is_gone(int((tmp_path / "child").read_text())))


GATEWAY = """
import asyncio, pathlib, sys
from everturn.agent.tools.shell import Child
async def main():
    child = await Child.start(("/bin/sh", "-c", "sleep 600 & echo $! > child; wait"), lambda _: None,
        folder=pathlib.Path(sys.argv[1]), environment={"PATH": sys.argv[2]})
    await child.ended()
asyncio.run(main())
"""


async def test_when_we_are_killed_our_children_end_too(tmp_path: Path) -> None:
    """No handler of ours runs after SIGKILL: the guard sees its pipe closed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, str(tmp_path), ENVIRON["PATH"], env={"PYTHONPATH": str(ROOT / "src")}
    )
    await poll(written_pid(tmp_path / "child"))
    pid = int((tmp_path / "child").read_text())
    assert not is_gone(pid)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await poll(lambda: is_gone(pid))


async def test_endless_output_is_kept_by_head_and_tail(tmp_path: Path) -> None:
    command = "echo first; head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo last"
    async with bench(tmp_path, output_bytes=1_000) as shell:
        result = await shell.use("run_command", command=command)
    assert "Its output:\nfirst\nxxx" in result
    assert result.endswith("x\nlast\n")
    assert "[... 2999012 bytes were not kept ...]" in result
    assert len(result) < 1_200


@pytest.mark.parametrize("sizes", [(1,) * 50, (7,) * 9, (50,), (9, 41), (10, 30, 10)])
def test_head_and_tail_do_not_depend_on_the_pieces(sizes: tuple[int, ...]) -> None:
    said, output = bytes(range(65, 65 + sum(sizes))), HeadAndTail(20)
    place = 0
    for size in sizes:
        output.add(said[place : place + size])
        place += size
    gap = f"\n[... {len(said) - 20} bytes were not kept ...]\n"
    assert output.text() == said[:10].decode() + gap + said[-10:].decode()


async def test_a_folder_that_is_missing_is_an_answer(tmp_path: Path) -> None:
    settings = ShellSettings(folder=tmp_path / "none", approval="never")
    async with Bench(tmp_path, lambda _: shell_tools(settings, ENVIRON, SystemClock())) as shell:
        assert (await shell.use("run_command", command="pwd")).startswith("Error: the command could not be started")


async def test_a_program_that_talks_is_talked_with(tmp_path: Path) -> None:
    said = bytearray()
    child = await Child.start(("cat",), said.extend, folder=tmp_path, environment=scrubbed(ENVIRON), talks=True)
    child.write(b"hello")
    await poll(lambda: bytes(said) == b"hello")
    await child.close()
    assert child.code == -signal.SIGKILL
