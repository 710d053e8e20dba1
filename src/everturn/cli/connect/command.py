"""`everturn connect telegram`: check a bot's token, save it, and enable the platform in the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from everturn.cli.connect.matrix import matrix
from everturn.cli.connect.shared import PATIENCE_S, choose, enable, has_terminal, keep, make_owner, secret
from everturn.cli.looking.asking import printable
from everturn.cli.options import PATH, home_option
from everturn.cli.rules.connect_texts import (
    Bot,
    DirectSender,
    about_bot,
    left_as_it_is,
    next_steps,
    no_such_token,
    no_telegram,
    write_to,
)
from everturn.errors import EverturnError
from everturn.home.folder import Home, holder

TOKEN_VARIABLE = "EVERTURN_PLATFORMS_TELEGRAM_TOKEN"  # noqa: S105  the name of a variable
TOKEN_FILE = "telegram_token"  # noqa: S105  the name of a file
TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
API_URL = "https://api.telegram.org"
TABLE = f"""\
[platforms.telegram]
enabled = true
token_file = "{TOKEN_FILE}"
"""


@click.group
def connect() -> None:
    """Connect a chat platform: check its secret, show what is missing, write the settings."""


connect.add_command(matrix)


@connect.command
@click.option(
    "--token-file", metavar="FILE", type=PATH, help="Read the token from a file instead of asking; - is standard input."
)
@click.option(
    "--owner", metavar="ID", help="Your own number on Telegram, approved as the owner [default: ask on a terminal]."
)
@click.option("--api-url", default=API_URL, show_default=True, help="The address of the Bot API.")
@home_option
def telegram(token_file: Path | None, owner: str | None, api_url: str, home: Home) -> None:
    """Connect a Telegram bot. @BotFather makes one (/newbot) and gives you its token."""
    if owner is not None and not owner.isdecimal():
        raise click.UsageError("--owner must be a number; @userinfobot shows you yours")
    token = _token(token_file)
    bot = _look(api_url.rstrip("/"), token)
    home.create()
    kept = keep(home, TOKEN_FILE, token)
    written = enable(
        home.config_file, "telegram", TABLE + ("" if api_url == API_URL else f"api_url = {json.dumps(api_url)}\n")
    )
    for line in about_bot(bot):
        print(line)
    print(f"The token is in {kept}, which only you can read.")
    if not written:
        print(left_as_it_is(str(home.config_file), "telegram", TABLE))
    running = holder(home) is not None
    can_ask = has_terminal() and not running and not bot.hook
    owner = owner or (_offer(api_url.rstrip("/"), token, bot) if can_ask else None)
    if owner is not None:
        print(make_owner(home.config_file, f"telegram:{owner}"))
    print("Next:")
    for line in next_steps(bot, running=running, owner=owner is not None):
        print(f"  {line}")


def _offer(api_url: str, token: str, bot: Bot) -> str | None:
    """Ask which person who wrote to the bot is the owner. Their messages stay for the gateway to answer."""
    click.prompt(write_to(bot), default="", show_default=False, prompt_suffix="", err=True)
    said = [each.get("message") or {} for each in _ask(api_url, token, "getUpdates")]
    people = [each["from"] for each in said if each.get("chat", {}).get("type") == "private" and "from" in each]
    newest_first = {str(each["id"]): _name(each) for each in reversed(people) if not each.get("is_bot")}
    return choose([DirectSender(number, name) for number, name in newest_first.items()])


def _name(person: dict[str, Any]) -> str:
    named = f"{person.get('first_name', '')} {person.get('last_name', '')}".strip()
    return printable(f"{named} @{person['username']}" if person.get("username") else named)


def _token(file: Path | None) -> str:
    token = secret(file, TOKEN_VARIABLE, "The bot's token")
    if not TOKEN.fullmatch(token):
        raise EverturnError("this is not a bot token; @BotFather's look like 123456:ABC...")
    return token


def _look(api_url: str, token: str) -> Bot:
    """Ask Telegram about the bot. Raises EverturnError, without the token."""
    me, hook = _ask(api_url, token, "getMe"), _ask(api_url, token, "getWebhookInfo")
    if not isinstance(me, dict) or "id" not in me or not isinstance(hook, dict):
        raise EverturnError(no_telegram(api_url))
    return Bot(
        id=me["id"],
        username=me.get("username", ""),
        joins_groups=me.get("can_join_groups", False),
        reads_groups=me.get("can_read_all_group_messages", False),
        hook=hook.get("url", ""),
    )


def _ask(api_url: str, token: str, method: str) -> Any:
    import httpx2

    try:
        answer = httpx2.get(f"{api_url}/bot{token}/{method}", timeout=PATIENCE_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise EverturnError(f"Telegram cannot be reached at {api_url}: {type(error).__name__}") from None
    if not answer.is_success:
        raise EverturnError(no_such_token(answer.status_code))
    try:
        return answer.json()["result"]
    except (ValueError, KeyError, TypeError):
        raise EverturnError(no_telegram(api_url)) from None
