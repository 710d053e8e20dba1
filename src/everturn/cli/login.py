"""`everturn login` and `everturn logout`: log a browser in to the page, or log all browsers out."""

from __future__ import annotations

import time

import click

from everturn.cli.looking.client import ask, base_url
from everturn.cli.looking.options import home_option
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, holder


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
    click.echo(f"This link works once, within {minutes} minutes:", err=True)
    print(f"{base}/login#{made['code']}")


@click.command
@home_option
def logout(home: Home) -> None:
    """Log every browser out of the page at once."""
    ended = ask(home, _running(home), "POST", "/control/logout", {})["ended"]
    print(f"Logged out: {ended} {'browser' if ended == 1 else 'browsers'}.")


def _running(home: Home) -> Holder:
    gateway = holder(home)
    if gateway is None or not gateway.url:
        raise EverturnError(f"no gateway runs on {home.path}; start it with `everturn run`")
    return gateway
