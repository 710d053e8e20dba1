"""Commands beside a running gateway use it. A second gateway is refused with the process that holds the home."""

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.holding import held, holding
from tests.cli.outside import answered, post
from tests.cli.program import GatewayProgram, called, everturn


def test_a_gateway_says_where_it_listens_and_ends_with_0(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path / "home") as gateway:
        process = gateway.ready()
        assert process.url in gateway.output
        assert gateway.kill(signal.SIGTERM) == 0
    assert json.loads(called("status", "--json", home=tmp_path / "home").out)["previous_exit"]["ended"] == "stop"


async def test_commands_ask_the_running_gateway(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        process = gateway.ready()
        await answered(tmp_path, "ann", "1", "hello")
        (session,) = json.loads(called("sessions", "--json", home=tmp_path).out)
        assert (session["key"], session["state"]) == ("agent:main:api:dm:ann", "active")
        assert session["session_id"] in called("sessions", home=tmp_path).out
        status = json.loads(everturn("status", "--json", home=tmp_path).out)
        assert (status["running"], status["pid"], status["url"]) == (True, process.pid, process.url)
        assert f"process {process.pid}" in everturn("status", home=tmp_path).out


def test_the_same_timeline_comes_from_the_gateway_and_from_the_stopped_home(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        post(tmp_path, "ann", "a/b@c%", "hello")
        assert everturn("chat", "ann", home=tmp_path, text="and more\n").code == 0  # so that both were delivered
        running = called("explain", "a/b@c%", "--json", home=tmp_path)
        assert called("stop", home=tmp_path).code == 0
    stopped = called("explain", "a/b@c%", "--json", home=tmp_path)
    assert json.loads(running.out) == json.loads(stopped.out)
    assert json.loads(stopped.out)[0]["state"] == "done"


def test_a_second_gateway_is_refused_with_the_process_that_holds_the_home(shared: GatewayProgram) -> None:
    process = shared.holder()
    second = everturn("run", "--port", "0", home=shared.home)
    assert second.code == 78
    assert f"process {process.pid}" in second.err
    assert process.url in second.err


@pytest.mark.parametrize(
    ("public_url", "warned"), [("", True), ("https://chat.example", False)], ids=["plain", "behind a proxy"]
)
def test_listening_to_the_network_without_https_is_warned_of(tmp_path: Path, public_url: str, warned: bool) -> None:  # noqa: FBT001
    with GatewayProgram(tmp_path, "--host", "0.0.0.0", EVERTURN_SERVER_PUBLIC_URL=public_url) as gateway:
        gateway.shows("] ready ")
        told = json.loads(called("status", "--json", home=tmp_path).out)["warning"]
        assert called("stop", home=tmp_path).code == 0
    assert (told is not None, "listening without encryption" in gateway.output) == (warned, warned)


@pytest.mark.parametrize("way", [(), ("--supervise",)], ids=["alone", "supervised"])
def test_a_taken_port_is_one_line_and_no_start(tmp_path: Path, way: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = everturn("run", "--port", port, *way, home=tmp_path)
    assert ended.code == 78
    (line,) = ended.err.splitlines()
    assert line.startswith(f"everturn: cannot listen on 127.0.0.1 port {port}: another program uses that port; stop it")
    assert "--port" in line
    assert json.loads(called("status", "--json", home=tmp_path).out)["previous_exit"] is None


async def test_a_killed_gateway_leaves_a_home_one_can_look_into(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, **holding(tmp_path)) as gateway:
        gateway.ready()
        await answered(tmp_path, "ann", "1", "hello")
        post(tmp_path, "ann", "long", "hold")
        await held(tmp_path)
        gateway.kill()
    (session,) = json.loads(called("sessions", "--json", home=tmp_path).out)
    assert (session["state"], session["running"]) == ("active", False)
    assert "No gateway runs" in called("status", home=tmp_path).out
    assert json.loads(called("status", "--json", home=tmp_path).out)["previous_exit"]["ended"] == "unclean"
    assert "the message is being answered" in called("explain", "long", home=tmp_path).out


@pytest.mark.prove
def test_a_crash_and_its_note_are_told(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, "--supervise") as gateway:
        gateway.ready()
        post(tmp_path, "ann", "fatal", "crash")
        gateway.ready(times=2)
        assert everturn("chat", "ann", home=tmp_path, text="still there?\n").code == 0
        told = called("explain", "fatal", home=tmp_path).out
        assert gateway.kill(signal.SIGTERM) == 0
    assert "attempt 1 ended: the gateway ended while it was running" in told
    assert "attempt 2 began with the note resume:restart_interrupted" in told
    assert "reply delivered" in told


def test_everything_works_on_postgresql(tmp_path: Path, database_url: str) -> None:
    env = {"EVERTURN_STORE_URL": database_url}
    with GatewayProgram(tmp_path, **env) as gateway:
        gateway.ready()
        assert "You said: hello" in everturn("chat", "ann", home=tmp_path, text="hello\n", **env).out
        running = called("sessions", "--json", home=tmp_path, **env)
        assert called("stop", home=tmp_path, **env).code == 0
    assert json.loads(everturn("sessions", "--json", home=tmp_path, **env).out) == json.loads(running.out)
    assert not (tmp_path / "everturn.db").exists()


def test_settings_that_became_wrong_hinder_only_a_restart(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        before = gateway.ready()
        (tmp_path / "everturn.toml").write_text("[server]\nprot = 1\n")
        assert called("sessions", "--json", home=tmp_path).code == 0
        refused = everturn("restart", home=tmp_path)
        assert (refused.code, "server.prot" in refused.err) == (78, True)
        assert gateway.holder() == before
        assert called("stop", home=tmp_path).code == 0


def test_status_says_which_platform_cannot_be_read_and_since_when(tmp_path: Path) -> None:
    nowhere = {"API_URL": "http://127.0.0.1:9", "ENABLED": "true", "TOKEN": "123456:secret-of-the-tests"}
    env = {f"EVERTURN_PLATFORMS_TELEGRAM_{name}": value for name, value in nowhere.items()}
    with GatewayProgram(tmp_path, **env) as gateway:
        gateway.ready()
        gateway.shows("platform not readable")
        told = called("status", home=tmp_path).out
    (line,) = (line for line in told.splitlines() if line.startswith("telegram 123456"))
    assert " cannot be read since 2" in line
    assert "secret-of-the-tests" not in told
