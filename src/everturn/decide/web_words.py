"""What people and programs are told at the HTTP door: why they may not enter, and how they may."""

from __future__ import annotations

from collections.abc import Iterable

WHO_ARE_YOU = (
    "send the header `Authorization: Bearer KEY` with a key that `everturn keys create` made, or with the token in the"
    " file api_token of the gateway's home; in a browser, open the link that `everturn login` prints"
)
LOGIN_UNKNOWN = (
    "This link is not one of this gateway. Run `everturn login` where the gateway runs, and open the link it prints."
)
LOGIN_USED = "This link was used before; each opens once. Run `everturn login` where the gateway runs for a new one."
LOGIN_EXPIRED = "This link is too old. Run `everturn login` where the gateway runs for a new one."
TOO_MANY_LOGINS = (
    "Too many wrong login links were opened from your address. Run `everturn login` where the gateway runs: a new link opens at"
    " any time."
)
WRONG_HOST = (
    "this gateway is not known under that name; use its address, or set server.public_url in everturn.toml to the"
    " address people use"
)
NO_DATABASE = "the database cannot be used now; the gateway goes on by itself when it can (`everturn status` says why)"
EXPOSED = (
    "other machines may reach this address, and nothing encrypts what goes over the network: who listens there can read"
    ' messages, keys and login links, and use them. Let it listen on this machine only (server.host = "127.0.0.1"); or put a'
    " proxy that speaks https in front of it, and set server.public_url to its https address"
)
WRONG_ORIGIN = "this request was made by a page of another site; only the gateway's own page may do this"
TOO_MANY_WINDOWS = "this conversation is open in too many windows; close one, and this one goes on by itself"
LEAVE_ROOM = "this client has as many event streams open as it leaves to all others; close one"
NO_ROOM = "there are more connections than this gateway has room for; try again a little later"


def too_many_streams(most: int) -> str:
    """One program watches too much."""
    return f"this key has {most} event streams open; close one"


def not_in_scope(name: str, wanted: Iterable[str]) -> str:
    """A key that is too weak for what it asks."""
    either = " or ".join(f"`{scope}`" for scope in sorted(wanted)) or "none"
    return f"the key {name!r} may not do this; it needs the scope {either}: make another with `everturn keys create`"


def only_the_owner(name: str) -> str:
    """A key where only the owner may go."""
    return f"only the owner may do this, in the page or with the home's token; the key {name!r} may not"


CANNOT_LOOK_UP = "the database does not answer, so no key and no code can be checked; try again in a moment"


def too_fast(per_minute: float) -> str:
    """Too many requests."""
    return (
        f"more than {per_minute:g} requests came within a minute; slow down and try again (server.requests_per_minute)"
    )


def one_login(link: str, minutes: float) -> str:
    """The line that a person opens first."""
    return f"Open this link to talk to the agent (it opens once, within {minutes:.0f} minutes):\n\n  {link}\n"


def name_taken(name: str) -> str:
    """A key of that name is in force."""
    return f"there is a key named {name!r} already; revoke it first, or choose another name"


def no_such_key(name: str) -> str:
    """Nothing to revoke."""
    return f"there is no key named {name!r} in force; `everturn keys list` shows those there are"
