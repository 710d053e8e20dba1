"""Why a request was denied, and what to do: the texts of HTTP errors."""

from __future__ import annotations

from collections.abc import Iterable

CREDENTIAL_REQUIRED = (
    "send the header `Authorization: Bearer KEY` with a key that `everturn keys create` made, or with the token in the"
    " file api_token of the gateway's home; in a browser, open the link that `everturn login` prints"
)
LOGIN_UNKNOWN = (
    "This link is not valid on this gateway. Run `everturn login` where the gateway runs, and open the link it prints."
)
LOGIN_USED = "This link was used before; each works once. Run `everturn login` where the gateway runs for a new one."
LOGIN_EXPIRED = "This link has expired. Run `everturn login` where the gateway runs for a new one."
TOO_MANY_LOGINS = (
    "Too many wrong login links were opened from your address. Run `everturn login` where the gateway runs: a new link works at"
    " any time."
)
WRONG_HOST = (
    "this gateway does not serve that host name; use its address, or set server.public_url in everturn.toml to the"
    " address people use"
)
NO_DATABASE = "the database is unavailable; the gateway continues when it is back (`everturn status` shows the cause)"
EXPOSED = (
    "other machines may reach this address, and the connection is not encrypted: anyone on the network path can read"
    ' messages, keys and login links, and use them. Listen on this machine only (server.host = "127.0.0.1"); or put a'
    " proxy that speaks https in front of it, and set server.public_url to its https address"
)
WRONG_ORIGIN = "this request was made by a page of another site; only the gateway's own page may do this"
TOO_MANY_WINDOWS = "this conversation is open in too many windows; close one, and this one continues by itself"
LEAVE_ROOM = "this client has as many event streams open as are left for all other clients; close one"
NO_ROOM = "this gateway has too many open connections; try again later"
CANNOT_LOOK_UP = "the database does not answer, so no key and no login code can be checked; try again later"


def too_many_streams(most: int) -> str:
    """A key has too many event streams open."""
    return f"this key has {most} event streams open; close one"


def not_in_scope(name: str, wanted: Iterable[str]) -> str:
    """A key lacks the scope."""
    either = " or ".join(f"`{scope}`" for scope in sorted(wanted)) or "none"
    return f"the key {name!r} may not do this; it needs the scope {either}: make another with `everturn keys create`"


def only_the_owner(name: str) -> str:
    """A key was used where only the owner may act."""
    return f"only the owner may do this, on the page or with the home's token; the key {name!r} may not"


def too_fast(per_minute: float) -> str:
    """Too many requests."""
    return f"more than {per_minute:g} requests within a minute; slow down and try again (server.requests_per_minute)"


def one_login(link: str, minutes: float) -> str:
    """The login link that the gateway prints first."""
    return f"Open this link to talk to the agent (it works once, within {minutes:.0f} minutes):\n\n  {link}\n"


def name_taken(name: str) -> str:
    """A valid key has that name."""
    return f"a key named {name!r} already exists; revoke it first, or choose another name"


def no_such_key(name: str) -> str:
    """No valid key has that name."""
    return f"no valid key is named {name!r}; `everturn keys list` shows all keys"
