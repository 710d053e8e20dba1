"""The chat directory over HTTP, for `everturn channels`."""

from __future__ import annotations

import re

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.people.rows.directory import Directory, directory, drop_alias, put_alias
from everturn.people.rules.admission import clean_name
from everturn.people.rules.directory import ALIAS_CHARS, KnownChat, at_address, kinds, plain
from everturn.store.interface import Store
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response, small_body

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9_]*:[^\s\x00]{1,400}")


class AliasRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/channels/alias`: a name, and "platform:chat" or "platform:chat:thread"."""

    name: str
    address: str


class UnaliasRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/channels/unalias`."""

    name: str


_read_alias = msgspec.json.Decoder(AliasRequest).decode
_read_unalias = msgspec.json.Decoder(UnaliasRequest).decode


async def list_channels(store: Store) -> Json:
    """List the chat directory, the last seen first, and the aliases."""
    known = await store.read(directory)
    kind, by_address = kinds(known.channels), _aliases_of(known)
    listed = [_json(each, kind(each), by_address.get(each.address, [])) for each in known.channels]
    return {"channels": listed, "aliases": known.aliases}


async def give_alias(store: Store, clock: Clock, name: str, address: str) -> Json:
    """Give a chat an alias, seen or not. A ValueError says why that is impossible."""
    if not plain(name) or len(name) > ALIAS_CHARS or not name.isprintable() or {":", "/"} & set(name):
        raise ValueError(f"an alias must have 1 to {ALIAS_CHARS} printable characters, without : and /")
    known = await store.read(directory)
    place = at_address(address, known.channels) if _ADDRESS.fullmatch(address) else None
    if place is None:
        raise ValueError(f"{clean_name(address)} is not an address; examples: telegram:-100123, telegram:-100123:7")
    await store.run(put_alias, plain(name), place, clock.now())
    return {"alias": plain(name), "address": place.address}


async def take_alias(store: Store, name: str) -> Json:
    """Remove an alias. Raises ValueError if it does not exist."""
    if plain(name) not in (await store.read(directory)).aliases:
        raise ValueError(f"there is no alias {clean_name(name)}")
    await store.run(drop_alias, plain(name))
    return {"unaliased": plain(name)}


def _aliases_of(known: Directory) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, address in known.aliases.items():
        found.setdefault(address, []).append(name)
    return found


def _json(each: KnownChat, kind: str, aliases: list[str]) -> Json:
    return {
        "label": each.label,
        "address": each.address,
        "type": kind,
        "platform": each.platform,
        "account": each.account,
        "chat": each.chat_id,
        "thread": each.thread_id or None,
        "name": each.name,
        "parent": each.parent or None,
        "aliases": aliases,
        "seen_at": each.seen_at,
    }


class ChannelList:
    """The endpoints of the chat directory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/control/channels", self.all, methods=["GET"]),
            Route("/control/channels/alias", self.alias, methods=["POST"]),
            Route("/control/channels/unalias", self.unalias, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /control/channels`."""
        return json_response(await list_channels(self._store))

    async def alias(self, request: Request) -> Response:
        """`POST /control/channels/alias`."""
        try:
            wanted = _read_alias(await small_body(request))
            return json_response(await give_alias(self._store, self._clock, wanted.name, wanted.address))
        except (msgspec.DecodeError, ValueError) as error:
            raise BadRequest(str(error)) from None

    async def unalias(self, request: Request) -> Response:
        """`POST /control/channels/unalias`."""
        try:
            wanted = _read_unalias(await small_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        try:
            return json_response(await take_alias(self._store, wanted.name))
        except ValueError as error:
            raise HTTPException(404, str(error)) from None
