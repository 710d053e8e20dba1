"""`everturn connect`: from a secret to a platform that is read and answered."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from everturn.cli.options import PATH, home_option
from everturn.decide.connect_words import Bot, about_bot, next_steps, no_such_token
from everturn.errors import ConfigError, EverturnError
from everturn.home import Home, holder

TOKEN_VARIABLE = "EVERTURN_PLATFORMS_TELEGRAM_TOKEN"  # noqa: S105  the name of a variable
TOKEN_FILE = "telegram_token"  # noqa: S105  the name of a file
TABLE = f"""
[platforms.telegram]
enabled = true
token_file = "{TOKEN_FILE}"
"""
PATIENCE_S = 15.0


@click.group
def connect() -> None:
    """Connect a chat platform: check its secret, say what is missing, write the settings."""


@connect.command
@click.option(
    "--token-file", metavar="FILE", type=PATH, help="Read the token from a file instead of asking; - is standard input."
)
@click.option("--api-url", default="https://api.telegram.org", show_default=True, help="Where the Bot API is.")
@home_option
def telegram(token_file: Path | None, api_url: str, home: Home) -> None:
    """Connect a Telegram bot. @BotFather makes one (/newbot) and gives its token."""
    token = _token(token_file)
    bot = _look(api_url.rstrip("/"), token)
    home.create()
    _write_private(home.path / TOKEN_FILE, token)
    written = _enable(home.config_file, api_url)
    for line in about_bot(bot):
        print(line)
    print(f"The token is in {home.path / TOKEN_FILE}, which only you can read.")
    if not written:
        print(f"{home.config_file} has a table [platforms.telegram] already; it should say:\n{TABLE}")
    print("Next:")
    for line in next_steps(bot, running=holder(home) is not None):
        print(f"  {line}")


def _token(file: Path | None) -> str:
    """From the file, the environment, or the person; never from an argument, which others on the machine can see."""
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    else:
        text = os.environ.get(TOKEN_VARIABLE, "") or click.prompt("The bot's token", hide_input=True, err=True)
    token = str(text).strip()
    number, _, rest = token.partition(":")
    if not number.isdigit() or not rest:
        raise EverturnError("this is not a token of @BotFather: it looks like 123456:ABC...")
    return token


def _look(api_url: str, token: str) -> Bot:
    """What Telegram says of the bot. Raises EverturnError, without the token."""
    me, hook = _ask(api_url, token, "getMe"), _ask(api_url, token, "getWebhookInfo")
    return Bot(
        id=me["id"],
        username=me.get("username", ""),
        joins_groups=me.get("can_join_groups", False),
        reads_groups=me.get("can_read_all_group_messages", False),
        hook=hook.get("url", ""),
    )


def _ask(api_url: str, token: str, method: str) -> dict[str, Any]:
    import httpx

    try:
        answer = httpx.get(f"{api_url}/bot{token}/{method}", timeout=PATIENCE_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EverturnError(f"Telegram can not be reached at {api_url}: {type(error).__name__}") from None
    if not answer.is_success:
        raise EverturnError(no_such_token(answer.status_code))
    found: dict[str, Any] = answer.json()["result"]
    return found


def _write_private(file: Path, text: str) -> None:
    """Replace the file, whole or not at all, readable by its owner alone from its first byte."""
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as stream:
        stream.write(f"{text}\n")
        stream.flush()
        os.fsync(number)
    draft.replace(file)


def _enable(file: Path, api_url: str) -> bool:
    """Add the table to the settings; False when there is one, which is the owner's to change."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    if "telegram" in found.get("platforms", {}):
        return False
    elsewhere = "" if api_url == "https://api.telegram.org" else f'api_url = "{api_url}"\n'
    draft = file.with_name(f".{file.name}.new")
    draft.write_text(f"{text.rstrip()}\n{TABLE}{elsewhere}".lstrip("\n"), encoding="utf-8")
    draft.replace(file)
    return True
