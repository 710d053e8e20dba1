"""`everturn chat`: for programs by a pipe, for people on a terminal; it survives the gateway's restarts and its own."""

from pathlib import Path

from tests.cli.holding import holding, let_go
from tests.cli.outside import call, post
from tests.cli.program import GatewayProgram, Program, everturn
from tests.cli.typist import Typist
from tests.waiting import poll


def test_each_piped_line_is_answered(shared: GatewayProgram) -> None:
    ended = everturn("chat", home=shared.home, text="one\n\n/status\nwork 2 0\n")
    assert ended.code == 0
    assert "You said: one" in ended.out
    assert ended.out.endswith("done: 2 steps\n")
    assert call(shared.home, "/api/chats/me/transcript")["messages"][0]["content"] == "one"


def test_a_command_as_the_last_line_is_answered(shared: GatewayProgram) -> None:
    ended = everturn("chat", "helped", home=shared.home, text="/help\n")
    assert (ended.code, "/resume" in ended.out) == (0, True)


def test_a_line_that_is_too_long_is_refused_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("[limits]\nmessage_chars = 10\n")
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        ended = everturn("chat", home=tmp_path, text="this is longer than ten\n")
        assert (ended.code, ended.out) == (1, "")
        assert "the limit is 10 characters" in ended.err


def test_what_was_answered_meanwhile_is_shown_once(shared: GatewayProgram) -> None:
    assert everturn("chat", "away", home=shared.home, text="one\n").code == 0
    post(shared.home, "away", "elsewhere", "two")
    second = everturn("chat", "away", home=shared.home, text="three\n").out
    assert ("You said: one" in second, "You said: two" in second) == (False, True)
    assert "You said: two" not in everturn("chat", "away", home=shared.home, text="four\n").out


def test_a_chat_outlives_a_killed_gateway(tmp_path: Path) -> None:
    env = holding(tmp_path)
    with GatewayProgram(tmp_path, **env) as gateway, Program("chat", home=tmp_path) as chat:
        gateway.ready()
        chat.enter("hold\n")
        chat.shows("working: held")
        gateway.kill()
        chat.shows("the connection was lost")
        chat.enter("typed while nobody listened\n")
        let_go(tmp_path)
        with GatewayProgram(tmp_path, **env) as second:
            second.ready()
            output = chat.shows("You said: typed while nobody listened")
            assert chat.wait() == 0
    assert output.count("done: let go") == 1
    assert output.count("the connection was lost") == 1
    assert output.count("You said: typed while nobody listened") == 1


async def test_a_chat_shows_the_reply_that_was_finished_while_it_was_gone(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with GatewayProgram(tmp_path, **holding(tmp_path)) as gateway:
        gateway.ready()
        with Program("chat", home=tmp_path, before=["sh", "-c", f'exec "$@" 2> "{errors}"', "sh"]) as chat:
            chat.enter("hold\n")
            await poll(lambda: errors.exists() and "working: held" in errors.read_text(), seen=lambda: chat.output)
            assert chat.output == ""  # how it goes is no reply
        let_go(tmp_path)
        with Program("chat", home=tmp_path) as chat:
            chat.shows("done: let go")


def test_without_a_gateway_a_pipe_does_not_wait_for_ever(tmp_path: Path) -> None:
    ended = everturn("chat", "--wait", "0.3", home=tmp_path, text="hello\n")
    assert (ended.code, ended.out) == (1, "")
    assert "no gateway runs on" in ended.err
    assert not list(tmp_path.iterdir())
    missing = everturn("chat", home=tmp_path / "none", text="hello\n")
    assert (missing.code, "does not exist" in missing.err) == (1, True)


def test_a_person_talks_on_a_terminal_and_leaves_with_ctrl_d(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path, **holding(tmp_path)) as gateway, Typist("chat", home=tmp_path) as person:
        gateway.ready()
        person.shows("> ")
        person.enter("hold\n")
        person.shows(".. working: held")
        let_go(tmp_path)
        person.shows("done: let go")
        person.enter("bye\n")
        person.shows("You said: bye")
        person.presses("\x04", "everturn explain ")
        assert person.ends() == 0


def test_a_person_leaves_with_quit_or_is_interrupted(shared: GatewayProgram) -> None:
    with Typist("chat", "leaving", home=shared.home) as person:
        person.shows("> ")
        person.enter("/quit\n")
        assert person.ends() == 0
    with Typist("chat", "leaving", home=shared.home) as person:
        person.shows("> ")
        assert person.interrupts() == 130


def test_a_person_with_a_wrong_token_gets_an_error_and_does_not_wait(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        (tmp_path / "api_token").write_text("another\n")
        with Typist("chat", home=tmp_path) as person:
            person.shows("the gateway refused the connection")
            assert person.ends() == 1
