"""`everturn pair`, `keys`, `login` and `logout`: people on chat platforms, programs and browsers that may speak to the agent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from everturn.cli import texts
from everturn.cli.shared import (
    ask,
    base_url,
    config_option,
    home_option,
    json_option,
    moment,
    print_json,
    printable,
    show_table,
)
from everturn.cli.view import look
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, holder
from everturn.people.rules import people_texts
from everturn.people.rules.rights import GRANTABLE, MEANINGS

_SCOPES = "; ".join(f"{scope}: {MEANINGS[scope]}" for scope in GRANTABLE)


@click.group
def pair() -> None:
    """Approve people who may speak to the agent on chat platforms, or revoke them."""


@pair.command(name="list")
@home_option
@config_option
@json_option
def list_people(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the access requests, and the people who were approved or revoked."""
    found = look(home, config_file, lambda view: view.pairings())
    if as_json:
        print_json(found)
        return
    requests = [
        (each["request"], f"{each['platform']}:{each['person']}", each["name"], moment(each["expires_at"]))
        for each in found["requests"]
    ]
    show_table(texts.REQUEST_COLUMNS, requests)
    print()
    people = [
        (
            f"{each['platform']}:{each['id']}", each["name"], texts.person_state(each["state"], owner=each["owner"]),
            moment(each["at"]),
        )
        for each in found["people"]
    ]  # fmt: skip
    show_table(texts.PEOPLE_COLUMNS, people)


@pair.command
@click.argument("code", required=False)
@click.option("--request", "request", help="The request's number in `everturn pair list`, instead of the code.")
@click.option("--platform", help="The platform on which the person got the code [default: any].")
@click.option("--owner", is_flag=True, help="Make the person an owner of this gateway, who may use every command.")
@home_option
@config_option
def approve(
    code: str | None,
    request: str | None,
    platform: str | None,
    owner: bool,  # noqa: FBT001  click's
    home: Home,
    config_file: Path | None,
) -> None:
    """Approve the person who was given CODE."""
    if (code is None) == (request is None):
        raise click.UsageError(texts.CODE_OR_REQUEST)
    wanted = {"code": code, "request": request, "platform": platform, "owner": owner}
    done = look(home, config_file, lambda view: view.approve_pairing(wanted))
    name = f" ({done['name']})" if done.get("name") else ""
    print(texts.is_approved(printable(done["approved"] + name), owner=owner))


@pair.command
@click.argument("person", metavar="PLATFORM:USER")
@click.option("--owner", is_flag=True, help="Make the person an owner of this gateway, who may use every command.")
@home_option
@config_option
def allow(person: str, owner: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """Approve PLATFORM:USER without a code, also after they were revoked."""
    done = look(home, config_file, lambda view: view.allow_person(person, owner=owner))
    print(texts.is_approved(person, owner=owner))
    _warn_unknown_platform(done, person)


@pair.command(name="revoke")
@click.argument("person", metavar="PLATFORM:USER")
@home_option
@config_option
def revoke_person(person: str, home: Home, config_file: Path | None) -> None:
    """Revoke PLATFORM:USER at once: running tasks stop, queued messages are not answered, and no list admits them."""
    done = look(home, config_file, lambda view: view.revoke_person(person))
    print(texts.is_revoked(person, done["stopped_turns"]))
    _warn_unknown_platform(done, person)


def _warn_unknown_platform(done: dict[str, Any], person: str) -> None:
    """Print a warning when nothing ever came from the named platform: it may be misspelt."""
    if not done["platform_known"]:
        print(people_texts.no_such_platform(person.partition(":")[0]))


@click.group
def keys() -> None:
    """Create, list and revoke access keys for programs that use the gateway over HTTP."""


@keys.command
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in GRANTABLE]),
    default=("chat",),
    show_default=True,
    help=f"What the key may do; can be given several times. {_SCOPES}.",
)
@home_option
@config_option
def create(name: str, scopes: tuple[str, ...], home: Home, config_file: Path | None) -> None:
    """Create the key NAME and print it. It is shown only this once: the gateway keeps only its hash."""
    secret = look(home, config_file, lambda view: view.make_key(name, tuple(dict.fromkeys(scopes))))
    click.echo(texts.shown_once(name, scopes), err=True)
    print(secret)


@keys.command(name="list")
@home_option
@config_option
@json_option
def list_keys(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """List the keys: name, first characters, scopes, last use."""
    found = look(home, config_file, lambda view: view.keys())
    if as_json:
        print_json({"keys": found})
        return
    rows = [
        (
            each["name"], each["prefix"], " ".join(each["scopes"]),
            moment(each["made_at"]), moment(each["used_at"]), moment(each["revoked_at"]),
            texts.key_maker(each["made_by"], revoked=each["maker_revoked"]),
        )
        for each in found
    ]  # fmt: skip
    show_table(texts.KEY_COLUMNS, rows)


@keys.command(name="revoke")
@click.argument("name")
@click.option("--with-made", is_flag=True, help="Also revoke the keys that were made with it, and with those.")
@home_option
@config_option
def revoke_key(name: str, with_made: bool, home: Home, config_file: Path | None) -> None:  # noqa: FBT001
    """Revoke the key NAME at once. Keys that were made with it stay valid, and are listed."""
    done = look(home, config_file, lambda view: view.revoke_key(name, with_made=with_made))
    for line in texts.key_revoked(name, done["also"], done["left"]):
        print(line)


@click.command
@home_option
def login(home: Home) -> None:
    """Print a login link for the page. It works once, and soon expires.

    The browser that opens it acts for the owner of this gateway, for 30 days or until it is logged out.
    """
    gateway = _running(home)
    made = ask(home, gateway, "POST", "/control/login", {})
    minutes = max(1, round((made["expires_at"] - time.time()) / 60))
    base = str(made.get("public_url") or base_url(gateway)).rstrip("/")
    click.echo(texts.link_works_once(minutes), err=True)
    print(f"{base}/login#{made['code']}")


@click.command
@home_option
def logout(home: Home) -> None:
    """Log every browser out of the page at once."""
    print(texts.logged_out(ask(home, _running(home), "POST", "/control/logout", {})["ended"]))


def _running(home: Home) -> Holder:
    gateway = holder(home)
    if gateway is None or not gateway.url:
        raise EverturnError(texts.not_running(home.path, texts.START_BY))
    return gateway
