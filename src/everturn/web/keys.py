"""Access keys and browser logins over HTTP: made, listed and revoked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.people.rows.credentials import (
    BY_OWNER,
    AccessKey,
    LoginOutcome,
    add_key,
    add_login,
    is_login,
    list_keys,
    log_in,
    log_out,
    revoke_key,
)
from everturn.people.rules.rights import GRANTABLE
from everturn.store.interface import Store
from everturn.web import texts
from everturn.web.access import THE_OWNER, Access, address_of, hashed, visitor_of
from everturn.web.wire.requests import BadRequest, json_response, query_of, small_body

MARK = "ev_"
PREFIX_CHARS = len(MARK) + 6
NAME_CHARS = 64
LOGIN_S = 900.0
VISIT_S = 30 * 86_400.0
BROWSER_CHARS = 200
REFUSALS = {
    LoginOutcome.UNKNOWN: texts.LOGIN_UNKNOWN,
    LoginOutcome.USED: texts.LOGIN_USED,
    LoginOutcome.EXPIRED: texts.LOGIN_EXPIRED,
}


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
        raise Taken(texts.name_taken(name))
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
            raise HTTPException(404, texts.no_such_key(name[:NAME_CHARS]))
        self._access.on_end()
        return json_response({"revoked": name, "also": list(revoked.also), "left": list(revoked.left)})


def key_json(key: AccessKey) -> Json:
    """Return a key as JSON, without its secret."""
    return {
        "name": key.name, "prefix": key.prefix, "scopes": list(key.scopes), "made_at": key.made_at,
        "used_at": key.used_at, "revoked_at": key.revoked_at, "made_by": key.made_by, "maker_revoked": key.maker_revoked,
    }  # fmt: skip


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /login`."""

    code: str


_read_code = msgspec.json.Decoder(Code).decode


@dataclass(frozen=True, slots=True)
class Login:
    """A login link; it works once."""

    code: str
    expires_at: float

    def link(self, base: str) -> str:
        """Return the link's URL."""
        return f"{base.rstrip('/')}/login#{self.code}"


class Visits:
    """Makes login codes and logs browsers in and out.

    The code of a login link is in its fragment and the page posts it, so no log or history has it.
    """

    def __init__(self, access: Access, store: Store, clock: Clock) -> None:
        self._access = access
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route("/control/login", self.new_login, methods=["POST"]),
            Route("/control/logout", self.log_out_all, methods=["POST"]),
        ]

    async def make(self, key_hash: str | None = None) -> Login:
        """Make a login code for the owner, or for a key, whose scopes the browser will have."""
        code, now = secrets.token_urlsafe(24), self._clock.now()
        await self._store.run(add_login, hashed(code), now, now + LOGIN_S, key_hash)
        return Login(code, now + LOGIN_S)

    async def new_login(self, request: Request) -> Response:
        """`POST /control/login`: for `everturn login`. A browser never gets more rights than its maker has, or for longer."""
        visitor = visitor_of(request.scope)
        login = await self.make(visitor.secret if visitor is not None else None)
        return json_response(
            {"code": login.code, "expires_at": login.expires_at, "public_url": self._access.place.public_url}
        )

    async def log_in(self, request: Request) -> Response:
        """`POST /login`: exchanges a code for a cookie, once. Only wrong codes are counted, and a right one is never refused:
        strangers may share the owner's address, as they do behind a proxy.
        """
        try:
            code = _read_code(await small_body(request)).code
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise HTTPException(400, 'the body must be JSON like {"code": "..."}') from None
        name, secret, now = address_of(request.scope), secrets.token_urlsafe(32), self._clock.now()
        wait = self._access.logins.wait(name)
        # After too many wrong codes, another costs a read and no write. A code is used only when the database has just answered: a
        # write that times out may still use the code up, and nobody would have the cookie.
        right = await self._access.look_up(partial(self._store.read, is_login, hashed(code), now))
        if wait is not None and not right:
            raise HTTPException(429, texts.TOO_MANY_LOGINS, {"retry-after": str(int(wait) + 1)})
        browser = request.headers.get("user-agent", "")[:BROWSER_CHARS]
        trying = partial(self._store.run, log_in, hashed(code), hashed(secret), browser, now, now + VISIT_S)
        outcome = await self._access.look_up(trying)
        if outcome is not LoginOutcome.OPEN:
            self._access.logins.take(name)
            raise HTTPException(403, REFUSALS[outcome])
        self._access.add_new(hashed(secret))
        return self._with_cookie(Response(status_code=204), secret, VISIT_S)

    async def log_out(self, request: Request) -> Response:
        """`POST /logout`: logs this browser out."""
        visitor = visitor_of(request.scope)
        if visitor is not None and visitor.visit is not None:
            await self._store.run(log_out, visitor.visit)
            self._access.on_end()
        return self._with_cookie(Response(status_code=204, headers={"clear-site-data": '"cache"'}), "", 0)

    async def log_out_all(self, _: Request) -> Response:
        """`POST /control/logout`: logs every browser out."""
        ended = await self._store.run(log_out, None)
        self._access.on_end()
        return json_response({"ended": ended})

    def _with_cookie(self, response: Response, value: str, seconds: float) -> Response:
        response.set_cookie(
            self._access.cookie, value, max_age=int(seconds), path="/", httponly=True, samesite="strict",
            secure=self._access.place.secure,
        )  # fmt: skip
        return response
