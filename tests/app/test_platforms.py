"""Which chat platforms a gateway has, and what is said when one cannot be made."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from everturn.app.gateway_settings import admission_of
from everturn.app.platforms import chat_platforms, close_all
from everturn.clock import SystemClock
from everturn.errors import ConfigError
from everturn.model import SessionSource
from everturn.people.rules.access import AccessVerdict, Standing, verdict
from everturn.platform.interface import CanEdit, CanPull, CanSend
from everturn.settings import Config, MatrixConfig, OwnPlatformConfig, PlatformsConfig, ServerConfig, TelegramConfig
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.testing.telegram import BOT_ID, TOKEN

ROOT = Path(__file__).parents[2]


def config(public_url: str = "", **telegram: object) -> Config:
    own = replace(TelegramConfig(enabled=True), **telegram)  # type: ignore[arg-type]
    return Config(platforms=PlatformsConfig(telegram=own), server=ServerConfig(public_url=public_url))


def on_matrix(**matrix: object) -> Config:
    given: dict[str, object] = {
        "enabled": True,
        "homeserver": "https://x.example",
        "user": "@e:x.example",
        "token": "syt_x",
    }
    return Config(platforms=PlatformsConfig(matrix=MatrixConfig(**given | matrix)))  # type: ignore[arg-type]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(f"sqlite:///{tmp_path / 'everturn.db'}")
    yield store
    await store.close()


async def test_none_is_made_unless_it_is_switched_on(tmp_path: Path, store: Store) -> None:
    assert chat_platforms(Config(), tmp_path, SystemClock(), store) == []


async def test_the_token_comes_from_its_setting_or_from_a_private_file(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    for each in (config(token=TOKEN), config(token_file="token")):
        made = chat_platforms(each, tmp_path, SystemClock(), store)
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
async def test_what_is_wrong_is_told_without_the_secret(
    tmp_path: Path, store: Store, wrong: dict[str, object], told: str
) -> None:
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "empty").touch(0o600)
    with pytest.raises(ConfigError, match=told) as error:
        chat_platforms(config(**wrong), tmp_path, SystemClock(), store)  # type: ignore[arg-type]
    assert TOKEN.partition(":")[2] not in str(error.value)


async def test_matrix_is_made_of_an_address_an_account_and_a_token(tmp_path: Path, store: Store) -> None:
    made = chat_platforms(on_matrix(), tmp_path, SystemClock(), store)
    assert [(one.name, one.account) for one in made] == [("matrix", "@e:x.example")]
    await close_all(made)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"token": ""}, "EVERTURN_PLATFORMS_MATRIX_TOKEN"),
        ({"homeserver": "x.example"}, "https://"),
        ({"user": "everturn"}, "@name:example.org"),
    ],
)
async def test_what_is_wrong_with_matrix_is_told(
    tmp_path: Path, store: Store, wrong: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        chat_platforms(on_matrix(**wrong), tmp_path, SystemClock(), store)


def of_their_own(**own: object) -> Config:
    given: dict[str, object] = {"enabled": True, "object": "folder_platform:FolderPlatform"}
    return Config(platforms=PlatformsConfig(own={"folder": OwnPlatformConfig(**given | own)}))  # type: ignore[arg-type]


async def test_a_platform_of_ones_own_is_named_in_the_settings_and_lies_in_the_home(
    tmp_path: Path, store: Store
) -> None:
    (tmp_path / "folder_platform.py").write_text((ROOT / "examples" / "folder_platform.py").read_text())
    (made,) = chat_platforms(of_their_own(), tmp_path, SystemClock(), store)
    assert (made.name, isinstance(made, CanPull), isinstance(made, CanSend), isinstance(made, CanEdit)) == (
        "folder",
        True,
        True,
        True,
    )
    assert chat_platforms(of_their_own(enabled=False), tmp_path, SystemClock(), store) == []


def test_only_approved_people_may_speak_there() -> None:
    """Promise 11."""
    admission, ann = admission_of(of_their_own()), SessionSource(platform="folder", chat_id="a", user_id="ann")
    assert verdict(admission, ann, Standing.UNKNOWN) is not AccessVerdict.ALLOWED
    named = admission_of(of_their_own(allow=("ann",)))
    assert verdict(named, ann, Standing.UNKNOWN) is AccessVerdict.ALLOWED


@pytest.mark.parametrize(
    ("name", "place", "told"),
    [
        ("folder", "", "names no adapter"),
        ("folder", "no_such_module:x", "cannot be loaded: ModuleNotFoundError"),
        ("folder", "types:SimpleNamespace", "cannot be made"),
        ("folder", "operator:is_", "is not a platform"),
        ("folder", "json:loads", "cannot be made: TypeError"),
        ("telegram", "json:loads", "choose another one"),
        ("web", "json:loads", "choose another one"),
    ],
)
async def test_what_is_none_is_named_with_the_reason(
    tmp_path: Path, store: Store, name: str, place: str, told: str
) -> None:
    own = {name: OwnPlatformConfig(enabled=True, object=place)}
    with pytest.raises(ConfigError, match=rf"platforms\.own\.{name}|{place}") as caught:
        chat_platforms(Config(platforms=PlatformsConfig(own=own)), tmp_path, SystemClock(), store)
    assert told in str(caught.value)
