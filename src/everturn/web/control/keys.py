"""Access keys over HTTP, for `everturn keys`. A secret is shown once, when it is made."""

from __future__ import annotations

import secrets

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.people.rows.access import BY_OWNER, AccessKey, add_key, list_keys, revoke_key
from everturn.people.rules.access import GRANTABLE
from everturn.store.interface import Store
from everturn.web.access import THE_OWNER, Access, hashed, visitor_of
from everturn.web.rules import web_texts
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response, small_body
from everturn.web.wire.queries import query_of

MARK = "ev_"
PREFIX_CHARS = len(MARK) + 6
NAME_CHARS = 64


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/keys`."""

    name: str
    scopes: list[str]


_read_new = msgspec.json.Decoder(NewKey).decode


class Taken(ValueError):
    """A valid key has this name."""


async def make_key(store: Store, clock: Clock, name: str, scopes: tuple[str, ...], made_by: str = BY_OWNER) -> str:
    """Make a key and return its secret. `made_by` is the hash of the key in use. A ValueError says why it is impossible."""
    check_key(name, scopes)
    secret = MARK + secrets.token_urlsafe(32)
    if not await store.run(add_key, hashed(secret), name, secret[:PREFIX_CHARS], scopes, clock.now(), made_by):
        raise Taken(web_texts.name_taken(name))
    return secret


def check_key(name: str, scopes: tuple[str, ...]) -> None:
    """Raise a ValueError that says what is wrong with a key's name or scopes."""
    if not 0 < len(name) <= NAME_CHARS or not name.isprintable() or name != name.strip():
        raise ValueError(f"a key's name must have 1 to {NAME_CHARS} printable characters, and no space at its ends")
    if name.casefold() == THE_OWNER.name:
        raise ValueError("a key cannot be named owner: actions are recorded under the key's name")
    unknown = [scope for scope in scopes if scope not in GRANTABLE]
    if unknown or not scopes:
        raise ValueError(f"give at least one scope of {', '.join(GRANTABLE)}; not a scope: {unknown[:3]}")


class Keys:
    """The endpoints of access keys."""

    def __init__(self, access: Access, store: Store, clock: Clock) -> None:
        self._access = access
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
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
        self._access.add_new(hashed(secret))
        return json_response({"name": wanted.name, "scopes": wanted.scopes, "key": secret}, 201)

    async def revoke(self, request: Request) -> Response:
        """`DELETE /control/keys/{name}`."""
        name = request.path_params["name"]
        with_made = query_of(request.scope).get("made") == "1"
        revoked = await self._store.run(revoke_key, name, self._clock.now(), with_made=with_made)
        if revoked is None:
            raise HTTPException(404, web_texts.no_such_key(name[:NAME_CHARS]))
        self._access.on_end()
        return json_response({"revoked": name, "also": list(revoked.also), "left": list(revoked.left)})


def key_json(key: AccessKey) -> Json:
    """Return a key as JSON, without its secret."""
    return {
        "name": key.name, "prefix": key.prefix, "scopes": list(key.scopes), "made_at": key.made_at,
        "used_at": key.used_at, "revoked_at": key.revoked_at, "made_by": key.made_by, "maker_revoked": key.maker_revoked,
    }  # fmt: skip
