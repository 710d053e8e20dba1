"""Reading a request's query and headers. What is wrong is a BadRequest that names it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.types import Scope

from everturn.web.answers import BadRequest

LARGEST = 2**63 - 1


def query_of(scope: Scope) -> dict[str, str]:
    """The query's parameters; of one given twice the last counts."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def keepable(scope: Scope) -> None:
    """Raise BadRequest for an address with a NUL, which no database keeps. No endpoint has to look for it: what cannot be
    decoded is replaced where an address is read, headers cannot hold one, and bodies are read by bodies.small_body.
    """
    if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
        raise BadRequest("the address holds a NUL character; leave it out")


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """A header's value."""
    return next((value for each, value in scope["headers"] if each == name), None)


def whole(query: Mapping[str, str], name: str, default: int, most: int = LARGEST) -> int:
    """A whole number from 0 to `most`."""
    return whole_number(name, query[name], most) if name in query else default


def whole_number(name: str, text: str, most: int = LARGEST) -> int:
    """The number in a text."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most):
        raise BadRequest(f"{name} must be a whole number from 0 to {most}, not {text[:40]!r}")
    return int(text)


def place_of(scope: Scope) -> int | None:
    """Where an event stream goes on: a reconnect's Last-Event-ID is newer than the `after` of its address."""
    last = header_of(scope, b"last-event-id")
    if last:
        return whole_number("Last-Event-ID", last.decode("latin-1"))
    query = query_of(scope)
    return whole(query, "after", 0) if "after" in query else None


def wants_added(scope: Scope) -> bool:
    """Whether an event stream says only what was added to a text: `?added=1`."""
    return query_of(scope).get("added") == "1"
