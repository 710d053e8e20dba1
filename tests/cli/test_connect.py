"""`everturn connect telegram`: from a secret to a platform that can be switched on, without the secret being shown."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.cli.connect import connect
from everturn.config import read_config
from everturn.decide.connect_words import Bot, about_bot, next_steps, no_such_token
from everturn.platforms import token_of
from everturn.testing_telegram import TOKEN, TelegramProcess, TelegramServer, person
from tests.crash.gateways import Gateway, command


def run(home: Path, url: str, token: str) -> tuple[int, str]:
    arguments = ["telegram", "--home", str(home), "--token-file", "-", "--api-url", url]
    result = CliRunner().invoke(connect, arguments, input=f"{token}\n")
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_token_that_works_is_kept_for_its_owner_and_the_platform_is_switched_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with TelegramProcess() as telegram:
        code, told = run(home, telegram.url, TOKEN)
        again = run(home, telegram.url, TOKEN)
    own = read_config(home, None, {}, {}).config.platforms.telegram
    assert (code, own.enabled, own.api_url, own.allow) == (0, True, telegram.url, ())
    assert token_of("telegram", own.token, own.token_file, home) == TOKEN
    assert stat.S_IMODE((home / own.token_file).stat().st_mode) == 0o600
    assert "@everturn_bot" in told
    assert "Privacy mode is on" in told
    assert TOKEN not in told + again[1]
    assert (again[0], "already" in again[1]) == (0, True)


@pytest.mark.parametrize(("token", "words"), [("nonsense", "BotFather"), ("123:wrong", "does not know")])
def test_a_token_that_does_not_work_changes_nothing(tmp_path: Path, token: str, words: str) -> None:
    home = tmp_path / "home"
    with TelegramProcess() as telegram:
        code, told = run(home, telegram.url, token)
    assert (code, words in told) == (1, True)
    assert not (home / "everturn.toml").exists()
    assert not list(home.glob("telegram_token")) if home.exists() else True


@pytest.mark.timeout(120)
async def test_from_one_secret_to_an_answer(tmp_path: Path) -> None:
    """Connect, start, write, let in with the code, write again: nobody speaks to the agent before."""
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


def test_what_is_missing_is_told_and_what_is_fine_is_not() -> None:
    fine = Bot(1, "b", joins_groups=True, reads_groups=True)
    poor = Bot(1, "b", joins_groups=False, reads_groups=False, hook="https://x.example")
    assert [len(about_bot(fine)), len(about_bot(poor))] == [1, 4]
    assert "restart" in next_steps(fine, running=True)[0]
    assert "later" in no_such_token(502)
