"""Which chat platforms a gateway has, and what is said when one cannot be made."""

from dataclasses import replace
from pathlib import Path

import pytest

from everturn.clock import SystemClock
from everturn.errors import ConfigError
from everturn.platforms import chat_platforms, close_all
from everturn.settings import Config, PlatformsConfig, ServerConfig, TelegramConfig
from everturn.testing_telegram import BOT_ID, TOKEN


def config(public_url: str = "", **telegram: object) -> Config:
    own = replace(TelegramConfig(enabled=True), **telegram)  # type: ignore[arg-type]
    return Config(platforms=PlatformsConfig(telegram=own), server=ServerConfig(public_url=public_url))


def test_none_is_made_unless_it_is_switched_on(tmp_path: Path) -> None:
    assert chat_platforms(Config(), tmp_path, SystemClock()) == []


async def test_the_token_comes_from_its_setting_or_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    for each in (config(token=TOKEN), config(token_file="token")):
        made = chat_platforms(each, tmp_path, SystemClock())
        assert [(one.name, one.account) for one in made] == [("telegram", str(BOT_ID))]
        await close_all(made)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "EVERTURN_PLATFORMS_TELEGRAM_TOKEN"),
        ({"token": "nonsense"}, "BotFather"),
        ({"token_file": "missing"}, "missing"),
        ({"token_file": "open"}, "chmod 600"),
        ({"token_file": "empty"}, "empty"),
        ({"token": TOKEN, "webhook": True}, "public_url"),
        ({"token": TOKEN, "webhook": True, "public_url": "http://x.example"}, "https"),
    ],
)
def test_what_is_wrong_is_told_without_the_secret(tmp_path: Path, wrong: dict[str, object], told: str) -> None:
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "empty").touch(0o600)
    with pytest.raises(ConfigError, match=told) as error:
        chat_platforms(config(**wrong), tmp_path, SystemClock())  # type: ignore[arg-type]
    assert TOKEN.partition(":")[2] not in str(error.value)
