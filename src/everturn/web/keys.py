"""Access keys over HTTP, for `everturn keys`. A secret is shown once, when it is made."""

from __future__ import annotations

import secrets

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.decide import web_words
from everturn.decide.access import GRANTABLE
from everturn.model import Json
from everturn.store.interface import Store
from everturn.store.operations.access import BY_OWNER, AccessKey, add_key, list_keys, revoke_key
from everturn.web.access import THE_OWNER, Access, hashed, visitor_of
from everturn.web.answers import BadRequest
from everturn.web.bodies import json_response, small_body
from everturn.web.queries import query_of

MARK = "ev_"
PREFIX_CHARS = len(MARK) + 6
NAME_CHARS = 64


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/keys`."""

    name: str
    scopes: list[str]


_read_new = msgspec.json.Decoder(NewKey).decode


class Taken(ValueError):
    """There is a key of this name."""


async def make_key(store: Store, clock: Clock, name: str, scopes: tuple[str, ...], made_by: str = BY_OWNER) -> str:
    """Make a key; its secret. `made_by` is the hash of the key that does. A ValueError says why it cannot be made."""
    check_key(name, scopes)
    secret = MARK + secrets.token_urlsafe(32)
    if not await store.run(add_key, hashed(secret), name, secret[:PREFIX_CHARS], scopes, clock.now(), made_by):
        raise Taken(web_words.name_taken(name))
    return secret


def check_key(name: str, scopes: tuple[str, ...]) -> None:
    """Raise a ValueError that says what is wrong with a key's name or scopes."""
    if not 0 < len(name) <= NAME_CHARS or not name.isprintable() or name != name.strip():
        raise ValueError(f"a key's name has 1 to {NAME_CHARS} printable characters")
    if name.casefold() == THE_OWNER.name:
        raise ValueError("a key may not be named owner: what it does is written down under its name")
    unknown = [scope for scope in scopes if scope not in GRANTABLE]
    if unknown or not scopes:
        raise ValueError(f"the scopes are {', '.join(GRANTABLE)}; at least one is wanted, and {unknown[:3]} is none")


class Keys:
    """The endpoints."""

    def __init__(self, access: Access, store: Store, clock: Clock) -> None:
        self._access = access
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/control/keys", self.all, methods=["GET"]),
            Route("/control/keys", self.create, methods=["POST"]),
            Route("/control/keys/{name:path}", self.revoke, methods=["DELETE"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /control/keys`."""
        return json_response({"keys": [key_json(key) for key in await self._store.read(list_keys)]})

    async def create(self, request: Request) -> Response:
        """`POST /control/keys`."""
        try:
            wanted = _read_new(await small_body(request))
            visitor = visitor_of(request.scope)
            made_by = visitor.secret if visitor is not None and visitor.secret is not None else BY_OWNER
            secret = await make_key(self._store, self._clock, wanted.name, tuple(wanted.scopes), made_by)
        except Taken as error:
            raise HTTPException(409, str(error)) from None
        except (msgspec.DecodeError, ValueError) as error:
            raise BadRequest(str(error)) from None
        self._access.made(hashed(secret))
        return json_response({"name": wanted.name, "scopes": wanted.scopes, "key": secret}, 201)

    async def revoke(self, request: Request) -> Response:
        """`DELETE /control/keys/{name}`."""
        name = request.path_params["name"]
        with_made = query_of(request.scope).get("made") == "1"
        revoked = await self._store.run(revoke_key, name, self._clock.now(), with_made=with_made)
        if revoked is None:
            raise HTTPException(404, web_words.no_such_key(name[:NAME_CHARS]))
        self._access.on_end()
        return json_response({"revoked": name, "also": list(revoked.also), "left": list(revoked.left)})


def key_json(key: AccessKey) -> Json:
    """A key as people may see it."""
    return {
        "name": key.name, "prefix": key.prefix, "scopes": list(key.scopes), "made_at": key.made_at,
        "used_at": key.used_at, "revoked_at": key.revoked_at, "made_by": key.made_by, "maker_revoked": key.maker_revoked,
    }  # fmt: skip
