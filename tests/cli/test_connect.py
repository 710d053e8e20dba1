"""`everturn connect telegram`: from a secret to a platform that can be switched on, without the secret being shown."""

import asyncio
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.app.platforms import token_of
from everturn.cli.commands import everturn
from everturn.cli.connect import enable
from everturn.cli.texts import Bot, about_bot, next_steps, no_such_token
from everturn.settings.config import read_config
from everturn.testing.telegram import TOKEN, TelegramProcess, TelegramServer, person
from tests.cli.answering import answering
from tests.cli.program import everturn as program
from tests.cli.typist import at_a_terminal
from tests.crash.gateways import Gateway, command


@pytest.fixture(scope="module")
def telegram_url() -> Iterator[str]:
    """The address of a Telegram server that knows the bot; requests about the bot leave nothing there."""
    with TelegramProcess() as telegram:
        yield telegram.url


def run(home: Path, url: str, token: str, *more: str) -> tuple[int, str]:
    arguments = ["connect", "telegram", "--home", str(home), "--token-file", "-", "--api-url", url, *more]
    result = CliRunner().invoke(everturn, arguments, input=f"{token}\n")
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_token_that_works_is_kept_for_its_owner_and_the_platform_is_switched_on(
    telegram_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    code, told = run(home, telegram_url, TOKEN)
    again = run(home, telegram_url, TOKEN)
    own = read_config(home, None, {}, {}).config.platforms.telegram
    assert (code, own.enabled, own.api_url, own.allow) == (0, True, telegram_url, ())
    assert token_of("telegram", own.token, own.token_file, home) == TOKEN
    assert stat.S_IMODE((home / own.token_file).stat().st_mode) == 0o600
    assert "@everturn_bot" in told
    assert "Privacy mode is on" in told
    assert TOKEN not in told + again[1]
    assert (again[0], "already" in again[1]) == (0, True)


@pytest.mark.parametrize(("token", "text"), [("nonsense", "BotFather"), ("123:wrong", "does not know")])
def test_a_token_that_does_not_work_changes_nothing(telegram_url: str, tmp_path: Path, token: str, text: str) -> None:
    home = tmp_path / "home"
    code, told = run(home, telegram_url, token)
    assert (code, text in told) == (1, True)
    assert not (home / "everturn.toml").exists()
    assert not list(home.glob("telegram_token")) if home.exists() else True


def test_a_server_that_is_not_telegram_is_an_error_with_its_address(tmp_path: Path) -> None:
    for body in (b"<html>Welcome</html>", b"[]", b"{}"):
        with answering({f"/bot{TOKEN}/getMe": body}) as url:
            code, told = run(tmp_path / "home", url, TOKEN)
        assert (code, told) == (1, f"what answers at {url} is not Telegram's Bot API")


def test_settings_that_only_their_owner_reads_stay_so(tmp_path: Path) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text("[agent]\n")
    file.chmod(0o600)
    assert enable(file, "telegram", "[platforms.telegram]\nenabled = true\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "[agent]" in file.read_text()


def test_settings_are_on_the_disk_before_they_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    """Else a power cut may leave an empty file, and no gateway would start."""
    file, seen = tmp_path / "everturn.toml", tmp_path / "calls"
    file.write_text("[agent]\n")
    adding = (
        "import sys, pathlib; from everturn.cli.connect import add_table; add_table(pathlib.Path(sys.argv[1]), '[x]')"
    )
    watching = ["strace", "-f", "-qq", "-o", str(seen), "-e", "trace=fsync,rename"]
    subprocess.run([*watching, sys.executable, "-B", "-c", adding, str(file)], check=True)
    assert re.findall(r"(fsync|rename)\(", seen.read_text()) == ["fsync", "rename"]
    assert file.read_text() == "[agent]\n\n[x]"


@pytest.mark.parametrize(
    "settings",
    [
        "platforms = { matrix = { enabled = false } }\n",
        "[platforms]\ntelegram = { enabled = false }\n",
        "platforms.telegram.enabled = false\n",
    ],
)
def test_settings_to_which_no_table_can_be_added_are_left_and_told(
    telegram_url: str, tmp_path: Path, settings: str
) -> None:
    """A table behind them would make all of them unreadable, and no gateway would start."""
    file = tmp_path / "everturn.toml"
    file.write_text(settings)
    code, told = run(tmp_path, telegram_url, TOKEN, "--owner", "7")
    assert (code, "was left as it is; it should say" in told) == (0, True)
    assert file.read_text() == f'{settings}\n[rights]\nowners = ["telegram:7"]\n'
    assert read_config(tmp_path, None, {}, {}).config.rights.owners == ("telegram:7",)


def test_settings_that_are_a_link_stay_one(tmp_path: Path) -> None:
    real, link = tmp_path / "kept" / "settings.toml", tmp_path / "everturn.toml"
    real.parent.mkdir()
    real.write_text("[agent]\n")
    link.symlink_to(real)
    assert enable(link, "telegram", "[platforms.telegram]\nenabled = true\n")
    assert (link.is_symlink(), "[platforms.telegram]" in real.read_text()) == (True, True)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("everturn.toml", b'x = "\xff"', "cannot be read: it is not text"),
        ("everturn.toml", b"x = ", "is not valid TOML"),
        ("everturn.toml", None, "cannot be read"),
        ("telegram_token", None, "cannot be written"),
    ],
)
def test_what_cannot_be_read_or_written_is_an_error_with_the_file(
    telegram_url: str, tmp_path: Path, name: str, content: bytes | None, text: str
) -> None:
    """None: a folder is in its place."""
    file = tmp_path / name
    file.mkdir() if content is None else file.write_bytes(content)
    code, told = run(tmp_path, telegram_url, TOKEN)
    assert (code, f"{file} " in told, text in told, TOKEN in told) == (1, True, True, False)
    assert not list(tmp_path.glob(".*.new"))


@pytest.mark.parametrize("platform", ["telegram", "matrix"])
def test_without_a_terminal_that_is_an_error(tmp_path: Path, platform: str) -> None:
    said = program("connect", platform, home=tmp_path / "home")
    assert (said.code, "there is no terminal to ask" in said.err) == (1, True)


async def test_from_one_secret_to_an_answer(tmp_path: Path) -> None:
    """Connect, start, write, be approved with the code, write again: nobody speaks to the agent before."""
    home, file = tmp_path / "home", tmp_path / "token"
    file.write_text(TOKEN)
    async with TelegramServer() as server, Gateway(home, settings={}) as gateway:
        telegram, ann = server.telegram, person(server.telegram, "Ann")
        made = await command("connect", "telegram", "--token-file", str(file), "--api-url", server.url, home=home)
        assert made.code == 0, made.err
        await gateway.up()
        ann.says("hello")
        await telegram.until(lambda: telegram.texts(ann.id))
        (asked,) = telegram.texts(ann.id)
        code = asked.partition("pair approve ")[2].split()[0]
        assert (await command("pair", "approve", code, "--owner", home=home)).code == 0
        ann.says("hello again")
        await telegram.until(lambda: any("You said: hello again" in text for text in telegram.texts(ann.id)))
        assert not any("You said: hello\n" in text for text in telegram.texts(ann.id))


@pytest.mark.prove
async def test_who_connects_is_offered_to_be_the_owner_and_is_answered_what_they_wrote(tmp_path: Path) -> None:
    """At a terminal: no code, no number to look up; the message that shows who it is stays to be answered."""
    home, file = tmp_path / "home", tmp_path / "token"
    file.write_text(TOKEN)
    async with TelegramServer() as server, Gateway(home, settings={}) as gateway:
        telegram = server.telegram
        eve, ann = person(telegram, "Eve"), person(telegram, "Ann")
        asked = ["connect", "telegram", "--token-file", str(file), "--api-url", server.url]
        await asyncio.to_thread(at_a_terminal, home, asked, [
            ("press Enter", lambda: [eve.says("who is this?"), ann.says("hello"), eve.says("anybody?")], "\n"),
            (f"({eve.id}) wrote", list, "n\n"),
            (f"({ann.id}) wrote", list, "y\n"),
            (f"telegram:{ann.id} is the owner", list, ""),
        ])  # fmt: skip
        assert read_config(home, None, {}, {}).config.rights.owners == (f"telegram:{ann.id}",)
        await gateway.up()
        await telegram.until(lambda: any("You said: hello" in text for text in telegram.texts(ann.id)))
        assert not any("You said" in text for text in telegram.texts(eve.id))


def test_an_owner_can_be_named_and_those_of_the_settings_stay(telegram_url: str, tmp_path: Path) -> None:
    code, told = run(tmp_path / "new", telegram_url, TOKEN, "--owner", "7")
    assert (code, "telegram:7 is the owner" in told, "pair approve" in told) == (0, True, False)
    assert read_config(tmp_path / "new", None, {}, {}).config.rights.owners == ("telegram:7",)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "everturn.toml").write_text('[rights]\nowners = ["web:ann"]\n')
    code, told = run(tmp_path / "old", telegram_url, TOKEN, "--owner", "7")
    assert (code, 'add "telegram:7" to its owners' in told) == (0, True)
    assert read_config(tmp_path / "old", None, {}, {}).config.rights.owners == ("web:ann",)
    assert run(tmp_path / "odd", telegram_url, TOKEN, "--owner", "ann")[0] == 2


def test_what_is_missing_is_told_and_what_is_fine_is_not() -> None:
    fine = Bot(1, "b", joins_groups=True, reads_groups=True)
    poor = Bot(1, "b", joins_groups=False, reads_groups=False, hook="https://x.example")
    assert [len(about_bot(fine)), len(about_bot(poor))] == [1, 4]
    assert "restart" in next_steps(fine, running=True)[0]
    assert "later" in no_such_token(502)
