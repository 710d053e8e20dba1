"""Reads a request's query and headers. Raises BadRequest with the name of what is invalid."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.types import Scope

from everturn.web.wire.answers import BadRequest

LARGEST = 2**63 - 1


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query's parameters; of one given twice the last counts."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def keepable(scope: Scope) -> None:
    """Raise BadRequest for a URL with a NUL, which no database can store, so that no endpoint has to check. What cannot be
    decoded is replaced where a URL is read, headers cannot contain NUL, and bodies are read by bodies.small_body.
    """
    if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
        raise BadRequest("the URL contains a NUL character; remove it")


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return a header's value."""
    return next((value for each, value in scope["headers"] if each == name), None)


def whole(query: Mapping[str, str], name: str, default: int, most: int = LARGEST) -> int:
    """Return a query parameter as a whole number from 0 to `most`."""
    return whole_number(name, query[name], most) if name in query else default


def whole_number(name: str, text: str, most: int = LARGEST) -> int:
    """Parse a whole number from 0 to `most`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most):
        raise BadRequest(f"{name} must be a whole number from 0 to {most}, not {text[:40]!r}")
    return int(text)


def place_of(scope: Scope) -> int | None:
    """Return the event id after which a stream continues: Last-Event-ID, which a reconnect sends, else `after` of the URL."""
    last = header_of(scope, b"last-event-id")
    if last:
        return whole_number("Last-Event-ID", last.decode("latin-1"))
    query = query_of(scope)
    return whole(query, "after", 0) if "after" in query else None


def wants_added(scope: Scope) -> bool:
    """Whether an event stream sends only what was added to a text: `?added=1`."""
    return query_of(scope).get("added") == "1"
