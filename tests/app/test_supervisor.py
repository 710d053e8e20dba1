"""The supervisor: real children, real signals, real kills."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

import pytest

from everturn.app.supervisor import FD_VARIABLE, watch_supervisor
from everturn.pauses import Backoff
from tests.waiting import WAIT_S

QUICK = Backoff(first_s=0.01, most_s=0.04)
# Always in a process of its own: code that handles SIGCHLD in a process whose event loop waits for programs takes it away from
# the loop.
SUPERVISE = """
import json, sys
from everturn.app.supervisor import supervise
from everturn.pauses import Backoff
sys.exit(supervise([sys.executable, "-c", *sys.argv[2:]], backoff=Backoff(**json.loads(sys.argv[1]))))
"""
PUTS_BACK = """
import signal, sys
from everturn.app.supervisor import supervise
watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
before = [signal.getsignal(number) for number in watched]
supervise([sys.executable, "-c", ""])
sys.exit([signal.getsignal(number) for number in watched] != before)
"""
# Each child takes the next ending from a file: an exit code, or minus a signal.
NEXT_ENDING = """
import os, sys
from pathlib import Path
file = Path(sys.argv[1])
ending, *rest = file.read_text().split()
file.write_text(" ".join(rest))
sys.exit(int(ending)) if int(ending) >= 0 else os.kill(os.getpid(), -int(ending))
"""
# Prints its pid and which signals it gets; `then` runs at each signal.
LISTEN = """
import os, signal, sys
from everturn.app.supervisor import watch_supervisor
def heard(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
    {then}
for name in ("SIGTERM", "SIGINT", "SIGHUP"):
    signal.signal(getattr(signal, name), heard)
watched = watch_supervisor(grace_s={grace_s})
print("child", os.getpid(), watched, flush=True)
while True:
    signal.pause()
"""


def listening(then: str = "sys.exit(0)", grace_s: float = 60) -> str:
    return LISTEN.format(then=then, grace_s=grace_s)


def under(backoff: Backoff) -> list[str]:
    """The command of a supervisor; the child's program follows."""
    return [sys.executable, "-c", SUPERVISE, json.dumps(asdict(backoff))]


def processes(tmp_path: Path, *endings: int, backoff: Backoff = QUICK) -> int:
    """Supervise a child through these endings; returns the supervisor's exit code."""
    (tmp_path / "endings").write_text(" ".join(map(str, endings)), encoding="utf-8")
    code = subprocess.run([*under(backoff), NEXT_ENDING, str(tmp_path / "endings")], check=False).returncode
    assert not (tmp_path / "endings").read_text(encoding="utf-8"), "every ending was used"
    return code


@contextmanager
def supervisor(program: str, first_s: float = 0.01) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A supervisor in a process of its own, and all that it and its child say."""
    command = [*under(Backoff(first_s=first_s)), program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as parent:
        assert parent.stdout is not None
        try:
            yield parent, parent.stdout
        finally:
            parent.kill()


@pytest.mark.parametrize("code", [0, 78])
def test_a_planned_end_or_a_bad_configuration_is_final(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    assert processes(tmp_path, code) == code
    assert capfd.readouterr().err == ""


def test_a_wanted_restart_happens_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert processes(tmp_path, 75, 75, 0, backoff=Backoff(first_s=3600)) == 0
    assert capfd.readouterr().err == "everturn: the gateway asked for a restart; starting it again\n" * 2


def test_an_unclean_end_is_told_and_followed_by_another_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert processes(tmp_path, -9, 1, 78) == 78
    assert capfd.readouterr().err.splitlines() == [
        "everturn: the gateway ended unexpectedly (signal 9); starting it again in 0.01 s",
        "everturn: the gateway ended unexpectedly (exit code 1); starting it again in 0.02 s",
    ]


def test_the_pause_doubles_up_to_its_limit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert processes(tmp_path, 1, 1, 1, 1, 0) == 0
    pauses = [line.split()[-2] for line in capfd.readouterr().err.splitlines()]
    assert pauses == ["0.01", "0.02", "0.04", "0.04"]


def test_the_pause_is_short_again_after_a_long_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert processes(tmp_path, 1, 1, 0, backoff=Backoff(first_s=0.01, healthy_s=0)) == 0
    assert [line.split()[-2] for line in capfd.readouterr().err.splitlines()] == ["0.01", "0.01"]


def test_the_usual_pauses_go_from_a_fifth_of_a_second_to_half_a_minute() -> None:
    usual, pauses = Backoff(), [0.0]
    for _ in range(9):
        pauses.append(usual.next_delay_s(pauses[-1], ran_s=59.9))
    assert pauses[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert usual.next_delay_s(30.0, ran_s=60.0) == 0.2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_is_passed_on_and_the_childs_end_awaited(name: str) -> None:
    with supervisor(listening()) as (parent, said):
        assert said.readline().startswith("child ")
        parent.send_signal(getattr(signal, name))
        assert said.readline() == f"heard {name}\n"
        assert parent.wait() == 0


def test_after_a_signal_the_child_is_not_started_again() -> None:
    with supervisor(listening(then="sys.exit(75)")) as (parent, said):
        said.readline()
        parent.terminate()
        assert said.read() == "heard SIGTERM\n"
        assert parent.wait() == 0


def test_a_child_that_ends_by_the_passed_signal_itself_ended_as_planned() -> None:
    with supervisor("import signal; print('up', flush=True); signal.pause()") as (parent, said):
        said.readline()
        parent.terminate()
        assert parent.wait() == 0


def test_a_second_signal_kills_the_child() -> None:
    with supervisor(listening(then="pass")) as (parent, said):
        said.readline()
        parent.terminate()
        assert said.readline() == "heard SIGTERM\n"
        parent.terminate()
        assert said.read() == ""
        assert parent.wait() == 1


def test_a_signal_during_the_pause_ends_it() -> None:
    with supervisor("raise SystemExit(3)", first_s=3600) as (parent, said):
        assert (
            said.readline() == "everturn: the gateway ended unexpectedly (exit code 3); starting it again in 3600 s\n"
        )
        parent.terminate()
        assert parent.wait() == 0


def test_a_killed_child_is_replaced_by_another() -> None:
    with supervisor(listening()) as (parent, said):
        first = int(said.readline().split()[1])
        os.kill(first, signal.SIGKILL)
        assert "(signal 9)" in said.readline()
        second = int(said.readline().split()[1])
        assert second != first
        parent.terminate()
        assert parent.wait() == 0


def test_the_child_drains_and_ends_when_its_supervisor_was_killed() -> None:
    with supervisor(listening()) as (parent, said):
        assert said.readline().split()[2] == "True"
        parent.kill()
        # The pipe ends only when the child, its last writer, has ended.
        assert said.read() == "heard SIGTERM\n"


def test_a_child_that_does_not_drain_ends_after_the_grace() -> None:
    with supervisor(listening(then="pass", grace_s=WAIT_S / 15)) as (parent, said):
        said.readline()
        parent.kill()
        assert said.read() == "heard SIGTERM\n"


def test_ctrl_c_in_the_terminal_reaches_the_child_once() -> None:
    with supervisor(listening(then="")) as (parent, said):
        child = int(said.readline().split()[1])
        assert os.getpgid(child) != os.getpgid(parent.pid)
        assert os.getsid(child) == child


def test_without_a_supervisor_there_is_nothing_to_watch() -> None:
    with Path(os.devnull).open("rb") as no_pipe:
        for text in ("", "no number", "99999", str(no_pipe.fileno())):
            env = {FD_VARIABLE: text}
            assert not watch_supervisor(env=env)
            assert not env
    assert not watch_supervisor(env={})


def test_the_watcher_calls_back_when_the_supervisor_is_gone() -> None:
    read_end, write_end = os.pipe()
    gone = threading.Event()
    env = {FD_VARIABLE: str(read_end)}
    assert watch_supervisor(gone.set, env=env)
    assert not env, "a program that we start must not take itself for supervised"
    assert not gone.is_set()
    os.close(write_end)
    assert gone.wait(WAIT_S)
    os.close(read_end)


def test_the_callers_signal_handlers_are_put_back() -> None:
    assert subprocess.run([sys.executable, "-c", PUTS_BACK], check=False).returncode == 0


def test_a_program_that_cannot_be_started_is_told_and_tried_again(tmp_path: Path) -> None:
    program = f"import sys; sys.executable = {str(tmp_path / 'nothing')!r}\n{SUPERVISE}"
    command = [sys.executable, "-c", program, '{"first_s": 3600}', ""]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        assert "cannot be started" in parent.stderr.readline()
        assert "starting it again in 3600 s" in parent.stderr.readline()
        parent.terminate()
        assert parent.wait() == 0
