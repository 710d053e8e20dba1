"""`everturn connect matrix`: log in to a homeserver, save the access token, and enable the platform in the settings.

The home keeps an access token and the name of its device: the homeserver recognises by the device what was sent before, so
connecting again must not make another one. A password is used once and saved nowhere.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from everturn.cli.connect.shared import (
    PATIENCE_S,
    enable,
    has_terminal,
    keep,
    make_owner,
    prompt_for,
    secret,
    secret_in,
)
from everturn.cli.options import PATH, home_option
from everturn.cli.rules import connect_texts as texts
from everturn.errors import EverturnError
from everturn.home.folder import Home, holder

TOKEN_VARIABLE = "EVERTURN_PLATFORMS_MATRIX_TOKEN"  # noqa: S105  the name of a variable
TOKEN_FILE = "matrix_token"  # noqa: S105  the name of a file
DEVICE_FILE = "matrix_device"
API = "/_matrix/client/v3"
ROOMS_LOOKED_AT = 50
ACCOUNT = re.compile(r"@[^:\s]+:\S+")


@click.command
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
        raise click.UsageError("give a password or an access token, not both")
    owner = _account_of(owner or "")
    user = user or prompt_for("The gateway's own account (@name:server)")
    server = HomeserverProbe(_found(user, homeserver))
    before = _device(home)
    token = _token(server, user, home, token_file, password_file)
    account = _look(server, token, user)
    home.create()
    if account.device_id:
        keep(home, DEVICE_FILE, account.device_id)
    kept = keep(home, TOKEN_FILE, token)
    table = _table(server.url, account.user_id)
    written = enable(home.config_file, "matrix", table)
    for line in texts.about_account(account, before):
        print(line)
    print(f"The access token is in {kept}, which only you can read.")
    if not written:
        print(texts.left_as_it_is(str(home.config_file), "matrix", table))
    owner = owner or (_offer(account) if has_terminal() else None)
    if owner:
        print(make_owner(home.config_file, f"matrix:{owner}"))
    print("Next:")
    for line in texts.matrix_steps(account, running=holder(home) is not None, owner=bool(owner)):
        print(f"  {line}")


def _offer(account: texts.Account) -> str:
    """Ask for the owner's account: the gateway accepts invitations only from approved people."""
    said = click.prompt(
        texts.owner_of_account(account), default="", show_default=False, value_proc=_account_of, err=True
    )
    return str(said)


def _account_of(text: str) -> str:
    """The account in a text, which may be empty. Raises UsageError."""
    if text.strip() and not ACCOUNT.fullmatch(text.strip()):
        raise click.UsageError(f"{text!r} is not an account: one looks like @name:example.org")
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


def _found(user: str, homeserver: str | None) -> str:
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


def _token(server: HomeserverProbe, user: str, home: Home, token_file: Path | None, password_file: Path | None) -> str:
    """The access token that was given, or that of a new login."""
    if token_file is not None:
        return secret_in(token_file)
    if password_file is not None:
        return _logged_in(server, user, secret_in(password_file), home)
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return token
    question = "The account's password (used once; empty: give an access token instead)"
    password = prompt_for(question, hidden=True, default="")
    return _logged_in(server, user, password, home) if password else secret(None, "", "The access token")


def _logged_in(server: HomeserverProbe, user: str, password: str, home: Home) -> str:
    """Log in with the earlier device, or with a new one whose name is saved first; returns the access token."""
    flows = server.get(f"{API}/login").get("flows", [])
    if not any(each.get("type") == "m.login.password" for each in flows):
        raise EverturnError(texts.no_passwords())
    device = _device(home) or f"EVERTURN{secrets.token_hex(4).upper()}"
    home.create()
    keep(home, DEVICE_FILE, device)
    login = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": user},
        "password": password,
        "device_id": device,
        "initial_device_display_name": "Everturn",
    }
    return str(server.post(f"{API}/login", login)["access_token"])


def _device(home: Home) -> str:
    """The device of the last login; empty if there was none."""
    file = home.path / DEVICE_FILE
    return secret_in(file) if file.exists() else ""


def _look(server: HomeserverProbe, token: str, user: str) -> texts.Account:
    """Ask the homeserver about the account."""
    me = server.get(f"{API}/account/whoami", token)
    if user.startswith("@") and me["user_id"] != user:
        raise EverturnError(texts.another_account(me["user_id"], user))
    rooms = server.get(f"{API}/joined_rooms", token).get("joined_rooms", [])
    return texts.Account(
        user_id=me["user_id"],
        device_id=me.get("device_id", ""),
        rooms=len(rooms),
        encrypted=sum(_encrypted(server, token, room) for room in rooms[:ROOMS_LOOKED_AT]),
        plain_http=server.url.startswith("http://"),
    )


def _encrypted(server: HomeserverProbe, token: str, room: str) -> bool:
    path = f"{API}/rooms/{quote(room, safe='')}/state/m.room.encryption"
    return bool(_request("GET", f"{server.url}{path}", token).is_success)


def _table(homeserver: str, user: str) -> str:
    return (
        f"[platforms.matrix]\nenabled = true\nhomeserver = {json.dumps(homeserver)}\nuser = {json.dumps(user)}\n"
        f"token_file = {json.dumps(TOKEN_FILE)}\n"
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
