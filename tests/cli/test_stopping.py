"""`everturn stop` and `everturn restart` ask, wait, and say what happened."""

import json
import os
import signal
from pathlib import Path

import pytest

from everturn.home.folder import Home, HomeLock, holder
from tests.cli.holding import held, holding, let_go
from tests.cli.outside import post
from tests.cli.program import GatewayProgram, called, everturn


def test_stop_waits_until_the_gateway_is_gone(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        stopped = everturn("stop", home=tmp_path)
        assert (stopped.code, stopped.out) == (0, "The gateway is stopped.\n")
        assert holder(Home(tmp_path)) is None
        assert gateway.wait() == 0
    assert called("stop", home=tmp_path).out == f"No gateway runs on {tmp_path}.\n"
    assert json.loads(called("status", "--json", home=tmp_path).out)["previous_exit"]["asked_by"] == "everturn stop"


def test_stop_ends_a_supervised_gateway_for_good(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, "--supervise") as gateway:
        gateway.ready()
        assert called("stop", home=tmp_path).code == 0
        assert gateway.wait() == 0


@pytest.mark.prove
def test_stop_ends_a_supervisor_that_is_about_to_start_the_next_gateway(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, "--supervise") as gateway:
        for start in (1, 2, 3):  # the pauses double
            os.kill(gateway.ready(times=start).pid, signal.SIGKILL)
        gateway.shows("again in 0.8 s")
        stopped = everturn("stop", home=tmp_path)
        assert (stopped.code, stopped.out) == (0, "The gateway is stopped.\n")
        assert gateway.wait() == 0
    assert called("stop", home=tmp_path).out == f"No gateway runs on {tmp_path}.\n"


def test_restart_waits_for_a_new_life_without_a_supervisor(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        before = gateway.ready()
        restarted = everturn("restart", home=tmp_path)
        assert restarted.code == 0, restarted.err
        after = gateway.holder()
        assert after.started_at > before.started_at
        assert after.url in restarted.out
        assert gateway.kill(signal.SIGTERM) == 0


@pytest.mark.prove
def test_restart_under_a_supervisor_is_a_new_process(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, "--supervise") as gateway:
        before = gateway.ready()
        assert everturn("restart", home=tmp_path).code == 0
        assert gateway.holder().pid != before.pid
        assert gateway.kill(signal.SIGTERM) == 0


async def test_what_a_restart_cuts_off_goes_on_with_its_note(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("[drain]\ntimeout_s = 0.2\n")
    with GatewayProgram(tmp_path, "--supervise", **holding(tmp_path)) as gateway:
        gateway.ready()
        post(tmp_path, "ann", "long", "hold")
        await held(tmp_path)
        assert everturn("restart", home=tmp_path).code == 0
        let_go(tmp_path)
        assert "done: let go" in everturn("chat", "ann", home=tmp_path, text="hello\n").out
        told = called("explain", "long", home=tmp_path).out
        assert gateway.kill(signal.SIGTERM) == 0
    assert "with the note resume:restart_timeout" in told


def test_restart_without_a_gateway_fails_and_says_how_to_start_one(tmp_path: Path) -> None:
    ended = called("restart", home=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert "everturn run" in ended.err


async def test_a_wait_has_an_end(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, **holding(tmp_path)) as gateway:
        gateway.ready()
        post(tmp_path, "ann", "long", "hold")
        await held(tmp_path)
        ended = everturn("stop", "--timeout", "0.2", home=tmp_path)
        assert ended.code == 1
        assert "did not stop within 0.2 s" in ended.err


def test_a_gateway_that_does_not_answer_is_ended_by_signal(tmp_path: Path) -> None:
    """The holder here is a process that listens nowhere: a stopped sibling of this test."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        HomeLock(Home(tmp_path)).acquire().update("http://127.0.0.1:1")
        os.write(write_end, b"held")
        signal.pause()
    assert os.read(read_end, 4) == b"held"
    ended = everturn("stop", home=tmp_path)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert (ended.code, f"process {child}" in ended.err) == (0, True)
    os.close(read_end)
    os.close(write_end)
