"""`everturn connect`: check a platform's secret, save it, enable the platform in the settings, and name its first owner.

Of a Matrix account the home keeps an access token and the name of its device: the homeserver recognises by the device what was
sent before, so connecting again must not make another one. A password is used once and saved nowhere.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from everturn.cli import texts
from everturn.cli.shared import PATH, home_option, printable
from everturn.cli.texts import Account, Bot, DirectSender
from everturn.errors import ConfigError, EverturnError
from everturn.home.folder import Home, holder

PATIENCE_S = 15.0
TELEGRAM_TOKEN_VARIABLE = "EVERTURN_PLATFORMS_TELEGRAM_TOKEN"  # noqa: S105  the name of a variable
TELEGRAM_TOKEN_FILE = "telegram_token"  # noqa: S105  the name of a file
TELEGRAM_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
TELEGRAM_URL = "https://api.telegram.org"
TELEGRAM_TABLE = f"""\
[platforms.telegram]
enabled = true
token_file = "{TELEGRAM_TOKEN_FILE}"
"""
MATRIX_TOKEN_VARIABLE = "EVERTURN_PLATFORMS_MATRIX_TOKEN"  # noqa: S105  the name of a variable
MATRIX_TOKEN_FILE = "matrix_token"  # noqa: S105  the name of a file
MATRIX_DEVICE_FILE = "matrix_device"
MATRIX_ACCOUNT = re.compile(r"@[^:\s]+:\S+")
MATRIX_API = "/_matrix/client/v3"
ROOMS_LOOKED_AT = 50


@click.group
def connect() -> None:
    """Connect a chat platform: check its secret, show what is missing, write the settings."""


@connect.command
@click.option(
    "--token-file", metavar="FILE", type=PATH, help="Read the token from a file instead of asking; - is standard input."
)
@click.option(
    "--owner", metavar="ID", help="Your own number on Telegram, approved as the owner [default: ask on a terminal]."
)
@click.option("--api-url", default=TELEGRAM_URL, show_default=True, help="The address of the Bot API.")
@home_option
def telegram(token_file: Path | None, owner: str | None, api_url: str, home: Home) -> None:
    """Connect a Telegram bot. @BotFather makes one (/newbot) and gives you its token."""
    if owner is not None and not owner.isdecimal():
        raise click.UsageError(texts.OWNER_IS_NUMBER)
    token = secret(token_file, TELEGRAM_TOKEN_VARIABLE, texts.BOT_TOKEN)
    if not TELEGRAM_TOKEN.fullmatch(token):
        raise EverturnError(texts.NO_TOKEN)
    bot = _bot(api_url.rstrip("/"), token)
    home.create()
    kept = keep(home, TELEGRAM_TOKEN_FILE, token)
    address = "" if api_url == TELEGRAM_URL else f"api_url = {json.dumps(api_url)}\n"
    written = enable(home.config_file, "telegram", TELEGRAM_TABLE + address)
    _print_lines([*texts.about_bot(bot), texts.bot_token_saved(kept)])
    if not written:
        print(texts.left_as_it_is(str(home.config_file), "telegram", TELEGRAM_TABLE))
    running = holder(home) is not None
    can_ask = has_terminal() and not running and not bot.hook
    owner = owner or (_choose_owner(api_url.rstrip("/"), token, bot) if can_ask else None)
    if owner is not None:
        print(make_owner(home.config_file, f"telegram:{owner}"))
    _print_lines(
        [texts.NEXT, *(f"  {step}" for step in texts.next_steps(bot, running=running, owner=owner is not None))]
    )


def _choose_owner(api_url: str, token: str, bot: Bot) -> str | None:
    """Ask for each person who wrote to the bot whether they are the owner; returns the first, or None. Their messages stay for
    the gateway to answer.
    """
    click.prompt(texts.write_to(bot), default="", show_default=False, prompt_suffix="", err=True)
    said = [each.get("message") or {} for each in _telegram(api_url, token, "getUpdates")]
    people = [each["from"] for each in said if each.get("chat", {}).get("type") == "private" and "from" in each]
    newest_first = {str(each["id"]): _name(each) for each in reversed(people) if not each.get("is_bot")}
    for number, name in newest_first.items():
        if click.confirm(texts.is_it_you(DirectSender(number, name)), default=True, err=True):
            return number
    if not newest_first:
        click.echo(texts.NOBODY_WROTE, err=True)
    return None


def _name(person: dict[str, Any]) -> str:
    named = f"{person.get('first_name', '')} {person.get('last_name', '')}".strip()
    return printable(f"{named} @{person['username']}" if person.get("username") else named)


def _bot(api_url: str, token: str) -> Bot:
    """Ask Telegram about the bot. Raises EverturnError, without the token."""
    me, hook = _telegram(api_url, token, "getMe"), _telegram(api_url, token, "getWebhookInfo")
    if not isinstance(me, dict) or "id" not in me or not isinstance(hook, dict):
        raise EverturnError(texts.no_telegram(api_url))
    return Bot(
        id=me["id"],
        username=me.get("username", ""),
        joins_groups=me.get("can_join_groups", False),
        reads_groups=me.get("can_read_all_group_messages", False),
        hook=hook.get("url", ""),
    )


def _telegram(api_url: str, token: str, method: str) -> Any:
    import httpx2

    try:
        answer = httpx2.get(f"{api_url}/bot{token}/{method}", timeout=PATIENCE_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise EverturnError(texts.telegram_unreachable(api_url, type(error).__name__)) from None
    if not answer.is_success:
        raise EverturnError(texts.no_such_token(answer.status_code))
    try:
        return answer.json()["result"]
    except (ValueError, KeyError, TypeError):
        raise EverturnError(texts.no_telegram(api_url)) from None


@connect.command
@click.option("--user", metavar="@NAME:SERVER", help="The gateway's own account [default: ask].")
@click.option("--homeserver", metavar="URL", help="The homeserver's address [default: what the account's server says].")
@click.option("--token-file", metavar="FILE", type=PATH, help="Read an access token from a file; - is standard input.")
@click.option("--password-file", metavar="FILE", type=PATH, help="Read the password from a file; - is standard input.")
@click.option(
    "--owner", metavar="@YOU:SERVER", help="Your own account, approved as the owner [default: ask on a terminal]."
)
@home_option
def matrix(
    user: str | None,
    homeserver: str | None,
    token_file: Path | None,
    password_file: Path | None,
    owner: str | None,
    home: Home,
) -> None:
    """Connect a Matrix account, by its password (used once, not saved) or by an access token."""
    if token_file and password_file:
        raise click.UsageError(texts.PASSWORD_OR_TOKEN)
    owner = _account_in(owner or "")
    user = user or prompt_for(texts.GATEWAYS_ACCOUNT)
    server = HomeserverProbe(_homeserver(user, homeserver))
    before = _device(home)
    token = _access_token(server, user, home, token_file, password_file)
    account = _account(server, token, user)
    home.create()
    if account.device_id:
        keep(home, MATRIX_DEVICE_FILE, account.device_id)
    kept = keep(home, MATRIX_TOKEN_FILE, token)
    table = _table(server.url, account.user_id)
    written = enable(home.config_file, "matrix", table)
    _print_lines([*texts.about_account(account, before), texts.access_token_saved(kept)])
    if not written:
        print(texts.left_as_it_is(str(home.config_file), "matrix", table))
    if not owner and has_terminal():  # the gateway accepts invitations only from approved people
        question = texts.owner_of_account(account)
        owner = str(click.prompt(question, default="", show_default=False, value_proc=_account_in, err=True))
    if owner:
        print(make_owner(home.config_file, f"matrix:{owner}"))
    steps = texts.matrix_steps(account, running=holder(home) is not None, owner=bool(owner))
    _print_lines([texts.NEXT, *(f"  {step}" for step in steps)])


def _account_in(text: str) -> str:
    """The account in a text, which may be empty. Raises UsageError."""
    if text.strip() and not MATRIX_ACCOUNT.fullmatch(text.strip()):
        raise click.UsageError(texts.not_an_account(text))
    return text.strip()


class HomeserverProbe:
    """Sends a few requests to a homeserver. Errors are sentences, without secrets."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, token: str = "") -> dict[str, Any]:
        """GET a path; returns the JSON object."""
        return self._answer("GET", path, token)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST a JSON body; returns the JSON object."""
        return self._answer("POST", path, "", json=body)

    def _answer(self, method: str, path: str, token: str, **more: Any) -> dict[str, Any]:
        answer = _request(method, f"{self.url}{path}", token, **more)
        found = _object(answer)
        if not answer.is_success:
            raise EverturnError(texts.refused_by_homeserver(answer.status_code, str(found.get("errcode", ""))))
        return found


def _homeserver(user: str, homeserver: str | None) -> str:
    """The homeserver's address, if one answers there: the one that is given, else the one that the account's server
    points to.

    https://spec.matrix.org/latest/client-server-api/#server-discovery
    """
    name = user.partition(":")[2]
    if not homeserver and (not user.startswith("@") or not name):
        raise EverturnError(texts.no_account_name(user))
    begin = (homeserver or name).rstrip("/")
    begin = begin if "://" in begin else f"https://{begin}"
    url = begin if homeserver else _pointed_to(begin) or begin
    if not _object(_request("GET", f"{url}/_matrix/client/versions")).get("versions"):
        raise EverturnError(texts.no_homeserver(url))
    return url


def _pointed_to(begin: str) -> str:
    """The homeserver that a server points to; empty if it points to none. Never from https to plain http."""
    answer = _request("GET", f"{begin}/.well-known/matrix/client", follow_redirects=True)
    found = _object(answer).get("m.homeserver") if answer.is_success else None
    url = str(found.get("base_url", "")).rstrip("/") if isinstance(found, dict) else ""
    schemes = {"https", urlsplit(begin).scheme}
    return url if urlsplit(url).scheme in schemes and urlsplit(url).netloc else ""


def _access_token(
    server: HomeserverProbe, user: str, home: Home, token_file: Path | None, password_file: Path | None
) -> str:
    """The access token that was given, or that of a new login."""
    if token_file is not None:
        return secret_in(token_file)
    if password_file is not None:
        return _logged_in(server, user, secret_in(password_file), home)
    if token := os.environ.get(MATRIX_TOKEN_VARIABLE, "").strip():
        return token
    password = prompt_for(texts.PASSWORD, hidden=True, default="")
    return _logged_in(server, user, password, home) if password else prompt_for(texts.ACCESS_TOKEN, hidden=True)


def _logged_in(server: HomeserverProbe, user: str, password: str, home: Home) -> str:
    """Log in with the earlier device, or with a new one whose name is saved first; returns the access token."""
    flows = server.get(f"{MATRIX_API}/login").get("flows", [])
    if not any(each.get("type") == "m.login.password" for each in flows):
        raise EverturnError(texts.no_passwords())
    device = _device(home) or f"EVERTURN{secrets.token_hex(4).upper()}"
    home.create()
    keep(home, MATRIX_DEVICE_FILE, device)
    login = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": user},
        "password": password,
        "device_id": device,
        "initial_device_display_name": "Everturn",
    }
    return str(server.post(f"{MATRIX_API}/login", login)["access_token"])


def _device(home: Home) -> str:
    """The device of the last login; empty if there was none."""
    file = home.path / MATRIX_DEVICE_FILE
    return secret_in(file) if file.exists() else ""


def _account(server: HomeserverProbe, token: str, user: str) -> Account:
    """Ask the homeserver about the account."""
    me = server.get(f"{MATRIX_API}/account/whoami", token)
    if user.startswith("@") and me["user_id"] != user:
        raise EverturnError(texts.another_account(me["user_id"], user))
    rooms = server.get(f"{MATRIX_API}/joined_rooms", token).get("joined_rooms", [])
    return Account(
        user_id=me["user_id"],
        device_id=me.get("device_id", ""),
        rooms=len(rooms),
        encrypted=sum(_encrypted(server, token, room) for room in rooms[:ROOMS_LOOKED_AT]),
        plain_http=server.url.startswith("http://"),
    )


def _encrypted(server: HomeserverProbe, token: str, room: str) -> bool:
    path = f"{MATRIX_API}/rooms/{quote(room, safe='')}/state/m.room.encryption"
    return bool(_request("GET", f"{server.url}{path}", token).is_success)


def _table(homeserver: str, user: str) -> str:
    return (
        f"[platforms.matrix]\nenabled = true\nhomeserver = {json.dumps(homeserver)}\nuser = {json.dumps(user)}\n"
        f"token_file = {json.dumps(MATRIX_TOKEN_FILE)}\n"
    )


def _request(method: str, url: str, token: str = "", **more: Any) -> Any:
    import httpx2

    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx2.request(method, url, headers=headers, timeout=PATIENCE_S, **more)
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        host = urlsplit(url).netloc or url
        raise EverturnError(texts.unreachable(host, type(error).__name__)) from None


def _object(answer: Any) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def secret(file: Path | None, variable: str, question: str) -> str:
    """Read a secret from a file, the environment, or a prompt; never from an argument, which other users can see."""
    if file is not None:
        return secret_in(file)
    return os.environ.get(variable, "").strip() or prompt_for(question, hidden=True)


def secret_in(file: Path) -> str:
    """Read a secret from a file, or from standard input."""
    try:
        return (sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeError) as error:
        raise EverturnError(texts.cannot_be_read(file, _why(error))) from None


def prompt_for(question: str, *, hidden: bool = False, default: str | None = None) -> str:
    """Prompt a person or read from a pipe. Raises EverturnError when there is nothing to read."""
    try:
        answer = click.prompt(question, hide_input=hidden, default=default, show_default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise EverturnError(texts.nobody_to_ask(question)) from None
    return str(answer).strip()


def keep(home: Home, name: str, text: str) -> Path:
    """Replace a file of the home, whole or not at all, readable by its owner alone from its first byte."""
    file = home.path / name
    _replace(file, f"{text}\n", 0o600)
    return file


def settings_in(file: Path) -> tuple[str, dict[str, Any]]:
    """The settings file as text and as values. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return text, tomllib.loads(text)
    except (OSError, UnicodeError) as error:
        raise ConfigError(texts.cannot_be_read(file, _why(error))) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(texts.invalid_toml(file, error)) from None


def enable(file: Path, platform: str, table: str) -> bool:
    """Add the platform's table to the settings; False if there is one already, which only the owner changes."""
    platforms = settings_in(file)[1].get("platforms", {})
    return isinstance(platforms, dict) and platform not in platforms and add_table(file, table)


def add_table(file: Path, table: str) -> bool:
    """Append a table to the settings, whole or not at all; False if the file would no longer be valid TOML."""
    text, _ = settings_in(file)
    whole = f"{text.rstrip()}\n\n{table}".lstrip("\n")
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError:  # they have it, written in one line
        return False
    file = file.resolve()  # of a link, what it leads to is changed
    # The file may hold secrets: the new one keeps its mode.
    _replace(file, whole, stat.S_IMODE(file.stat().st_mode) if file.exists() else None)
    return True


def _replace(file: Path, text: str, mode: int | None) -> None:
    """Write a draft, sync it, and rename it to the file: a power cut leaves the old one or the new one."""
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            if mode is not None:
                draft.chmod(mode)
            stream.write(text)
            stream.flush()
            os.fsync(number)
        draft.replace(file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)  # it may hold a secret
        raise ConfigError(texts.cannot_be_written(file, _why(error))) from None


def _why(error: OSError | UnicodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else texts.NOT_TEXT


def has_terminal() -> bool:
    """Whether standard input is a terminal, so that a person can answer prompts."""
    return sys.stdin.isatty()


def make_owner(file: Path, person: str) -> str:
    """Add the owner to the settings, unless these have owners already; returns what was done, as text."""
    rights = settings_in(file)[1].get("rights")
    owners = rights.get("owners") if isinstance(rights, dict) else None
    if isinstance(owners, list) and person in owners:
        return texts.is_owner(person)
    if rights is not None or not add_table(file, f"[rights]\nowners = [{json.dumps(person)}]\n"):
        return texts.add_owner(person, str(file))
    return texts.is_owner(person)


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line)
