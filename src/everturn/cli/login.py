"""`everturn login` and `everturn logout`: let a browser in, or put all of them out."""

from __future__ import annotations

import time

import click

from everturn.cli.client import ask, base_url
from everturn.cli.options import home_option
from everturn.errors import EverturnError
from everturn.home import Holder, Home, holder


@click.command
@home_option
def login(home: Home) -> None:
    """Print a link that opens the page in a browser. It opens once, and soon expires.

    Whoever opens it is the owner of this gateway in that browser, for 30 days or until they log out.
    """
    who = _running(home)
    made = ask(home, who, "POST", "/control/login", {})
    minutes = max(1, round((made["expires_at"] - time.time()) / 60))
    base = str(made.get("public_url") or base_url(who)).rstrip("/")
    click.echo(f"It opens once, within {minutes} minutes:", err=True)
    print(f"{base}/login#{made['code']}")


@click.command
@home_option
def logout(home: Home) -> None:
    """Log every browser out of the page, at once."""
    ended = ask(home, _running(home), "POST", "/control/logout", {})["ended"]
    print(f"Logged out: {ended} {'browser' if ended == 1 else 'browsers'}.")


def _running(home: Home) -> Holder:
    who = holder(home)
    if who is None or not who.url:
        raise EverturnError(f"no gateway runs on {home.path}; start it with `everturn run`")
    return who
