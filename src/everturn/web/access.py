"""Authentication and authorization of HTTP requests. Everything is denied unless it is allowed here."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.types import Scope as Request

from everturn.clock import Clock
from everturn.errors import StoreError
from everturn.people.rows.credentials import AccessKey, find_key, find_visit, key_used, secrets_in_force
from everturn.people.rules.rights import (
    OWNER,
    SAFE,
    GatewayAddress,
    KeyScope,
    granted,
    is_open,
    is_page,
    needed,
    network_of,
    own_host,
    own_origin,
)
from everturn.store.interface import Store
from everturn.web import texts
from everturn.web.wire.limits import Buckets
from everturn.web.wire.requests import CompleteResponse, Header, header_of, not_now, refusal, retry_after

T = TypeVar("T")
VISITOR = "everturn.visitor"
CHALLENGE: Header = (b"www-authenticate", b'Bearer realm="everturn"')
RECORDED_EVERY_S = 60.0
LOGINS = 10  # failed attempts of one address before it must wait
LOGIN_REFILL_S = 60.0
SECRET_CHARS = 200
LOOK_UPS = 500  # concurrent look-ups of credentials in the database
LOOK_UP_S = 2.0
IDENTIFIED_WITHIN_S = 2.0  # on open paths, which nobody is denied
VALID_FOR_S = 1.0  # how long the hashes of all keys and visits are cached, for addresses that guess
MOST_VALID = 10_000  # size of that cache; where there are more, every secret is looked up
MOST_NEW = 1_000  # the newest secrets made by this process: the cache may have been read before


@dataclass(frozen=True, slots=True)
class Visitor:
    """The authenticated sender of a request: the owner, or somebody with a key."""

    name: str
    scopes: frozenset[KeyScope]
    key: str | None = None
    secret: str | None = None  # the hash of the key
    visit: str | None = None  # the hash of the cookie


THE_OWNER = Visitor("owner", OWNER)


class NotAdmitted(Exception):
    """The request is denied; the response says why."""

    def __init__(self, reply: CompleteResponse) -> None:
        super().__init__(reply.status)
        self.reply = reply


def hashed(secret: str) -> str:
    """Return the hash of a secret. Secrets have 128 bits or more, so no salt is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def access_check(access: Access, scope: Request) -> Callable[[], Awaitable[bool]] | None:
    """Return a check whether the sender's key or visit is still valid; None for the token, which does not expire."""
    visitor = visitor_of(scope)
    if visitor is None or (visitor.secret is None and visitor.visit is None):
        return None
    return partial(access.still_admitted, visitor)


def visitor_of(scope: Request) -> Visitor | None:
    """Return the authenticated sender of this request."""
    found = scope.get(VISITOR)
    return found if isinstance(found, Visitor) else None


class Access:
    """Checks every request. `per_minute` limits each key, and each address without a valid secret; 0: no limit."""

    def __init__(
        self, *, token: str, store: Store, clock: Clock, place: GatewayAddress, per_minute: float = 600
    ) -> None:
        self._token = token.encode()
        self._bearer = b"Bearer " + self._token
        self._store = store
        self._clock = clock
        self._looking_up = 0
        self._recorded: dict[str, float] = {}
        self._valid: frozenset[str] = frozenset()
        self._valid_at = 0.0
        self._reading: asyncio.Future[bool] | None = None
        self._new: dict[str, None] = {}
        self._per_minute = per_minute
        self._requests = Buckets(clock, per_minute, 60 / per_minute) if per_minute else None
        self.logins = Buckets(clock, LOGINS, LOGIN_REFILL_S)
        self.place = place
        self.on_end: Callable[[], None] = lambda: None  # called when a key or a visit ends
        self.cookie = "__Host-everturn" if place.secure else f"everturn_{hashed(token)[:8]}"

    def is_token(self, given: bytes | None) -> bool:
        """Whether this Authorization header contains the home's token."""
        if given is None:
            return False
        if hmac.compare_digest(given, self._bearer):
            return True
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def admit(self, scope: Request) -> None:
        """Authenticate a request and store the sender in its scope; else raise NotAdmitted."""
        path, method = scope["path"], scope["method"]
        if method not in SAFE:
            self._check_origin(scope)
        if is_open(path):
            if is_page(path):
                self._check_host(scope)
            elif header_of(scope, b"authorization") is not None:
                await self._identify(scope)
            return
        visitor = await self._visitor(scope)
        wanted = needed(method, path)
        if not visitor.scopes & wanted:
            owner_only = wanted <= {KeyScope.OWNER}
            why = texts.only_the_owner if owner_only else lambda name: texts.not_in_scope(name, wanted)
            raise NotAdmitted(refusal(403, why(visitor.name)))
        scope[VISITOR] = visitor

    def add_new(self, secret_hash: str) -> None:
        """Accept a key or a visit that this process just made, also from an address that guesses."""
        self._new[secret_hash] = None
        if len(self._new) > MOST_NEW:
            del self._new[next(iter(self._new))]

    async def still_admitted(self, visitor: Visitor) -> bool:
        """Whether the sender's key or visit is still valid."""
        if visitor.visit is not None:
            return await self._store.read(find_visit, visitor.visit, self._clock.now()) is not None
        return visitor.secret is None or await self._store.read(find_key, visitor.secret) is not None

    async def _identify(self, scope: Request) -> None:
        """On an open path, store the sender in the scope if the credential is valid: it may get more details. Nobody is denied,
        whatever the credential and whether or not the database answers.
        """
        with contextlib.suppress(NotAdmitted, StoreError, TimeoutError):
            async with asyncio.timeout(IDENTIFIED_WITHIN_S):
                scope[VISITOR] = await self._visitor(scope)

    async def _visitor(self, scope: Request) -> Visitor:
        given = header_of(scope, b"authorization")
        if self.is_token(given):
            return THE_OWNER
        found = await (self._by_key(scope, given) if given is not None else self._by_cookie(scope))
        if found is None:
            self._count_stranger(scope)
            raise NotAdmitted(refusal(401, texts.CREDENTIAL_REQUIRED, CHALLENGE))
        return found

    async def _by_key(self, scope: Request, given: bytes) -> Visitor | None:
        scheme, _, rest = given.partition(b" ")
        secret = rest.strip().decode("latin-1")
        if scheme.lower() != b"bearer" or not 0 < len(secret) <= SECRET_CHARS:
            return None
        secret_hash = hashed(secret)
        key = None
        if await self._may_be_valid(scope, secret_hash):
            key = await self.look_up(partial(self._store.read, find_key, secret_hash))
        return None if key is None else self._with_key(key, secret_hash)

    async def _by_cookie(self, scope: Request) -> Visitor | None:
        """Authenticate a browser. The Host header is checked before the cookie: another site's page must not use it."""
        secret = cookie_of(scope, self.cookie)
        if secret is None:
            return None
        self._check_host(scope)
        visit_hash = hashed(secret)
        if not await self._may_be_valid(scope, visit_hash):
            return None
        visit = await self.look_up(partial(self._store.read, find_visit, visit_hash, self._clock.now()))
        if visit is None:
            return None
        if visit.key is None or visit.key_hash is None:
            return Visitor("owner", OWNER, visit=visit_hash)
        return self._with_key(visit.key, visit.key_hash, visit_hash)

    async def _may_be_valid(self, scope: Request, secret_hash: str) -> bool:
        """Whether to look a secret up. After too many wrong secrets from an address, only if its hash is among those in force:
        these are read at most once a second for everybody, so that guessing costs no further reads, and a right secret still
        passes. It is then looked up like all others: False only means that the secret is wrong for certain.
        """
        if self._requests is None or not self._requests.is_empty(f"address {address_of(scope)}"):
            return True
        if secret_hash in self._valid or secret_hash in self._new:
            return True
        now = self._clock.monotonic()
        if self._reading is None or now - self._valid_at >= VALID_FOR_S:
            self._valid_at = now
            self._reading = asyncio.ensure_future(self._read_valid())
            self._reading.add_done_callback(_consume_exception)
        if not await asyncio.shield(self._reading):  # the read failed: no secret can be judged until the next one
            raise NotAdmitted(not_now(texts.CANNOT_LOOK_UP))
        return secret_hash in self._valid or len(self._valid) >= MOST_VALID

    async def _read_valid(self) -> bool:
        """Read the hashes of valid secrets; False if that failed. Many wait for it: an exception would keep all their frames."""
        try:
            self._valid = await self.look_up(partial(self._store.read, secrets_in_force, self._clock.now(), MOST_VALID))
        except (NotAdmitted, StoreError):
            return False
        return True

    async def look_up(self, ask: Callable[[], asyncio.Future[T]]) -> T:
        """Look a credential up in the database. While the database does not answer, at most LOOK_UPS look-ups wait, whether or not
        their clients hung up: every other request gets 503.
        """
        if self._looking_up >= LOOK_UPS:
            raise NotAdmitted(not_now(texts.CANNOT_LOOK_UP))
        found = ask()
        self._looking_up += 1
        found.add_done_callback(self._looked_up)
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await asyncio.shield(found)
        except TimeoutError:
            raise NotAdmitted(not_now(texts.CANNOT_LOOK_UP)) from None

    def _looked_up(self, found: asyncio.Future[Any]) -> None:
        self._looking_up -= 1
        found.exception()  # its client may be gone

    def _with_key(self, key: AccessKey, secret_hash: str, visit: str | None = None) -> Visitor:
        """Return the sender with this key, or the browser that logged in with it: it has the key's scopes and rate limit."""
        self._limit_rate(f"key {key.name}")
        self._record_use(secret_hash)
        return Visitor(key.name, granted(key.scopes), key=key.name, secret=secret_hash, visit=visit)

    def _count_stranger(self, scope: Request) -> None:
        """Count a request without a valid secret for its address, unless another site's page made a browser send it."""
        self._check_origin(scope)
        if _text(scope, b"sec-fetch-site") is not None:
            self._check_host(scope)
        self._limit_rate(f"address {address_of(scope)}")

    def _check_origin(self, scope: Request) -> None:
        """Raise NotAdmitted for a request that a page of another site made."""
        origin, site = _text(scope, b"origin"), _text(scope, b"sec-fetch-site")
        if not own_origin(origin, site, _text(scope, b"host"), self.place):
            raise NotAdmitted(refusal(403, texts.WRONG_ORIGIN))

    def _check_host(self, scope: Request) -> None:
        if not own_host(_text(scope, b"host"), self.place):
            raise NotAdmitted(refusal(421, texts.WRONG_HOST))

    def _limit_rate(self, name: str) -> None:
        wait = self._requests.take(name) if self._requests else None
        if wait is not None:
            raise NotAdmitted(refusal(429, texts.too_fast(self._per_minute), retry_after(wait)))

    def _record_use(self, secret_hash: str) -> None:
        """Store when a key was last used: to the minute, in the background."""
        now = self._clock.now()
        if now - self._recorded.get(secret_hash, 0) >= RECORDED_EVERY_S:
            self._recorded[secret_hash] = now
            self._store.run(key_used, secret_hash, now).add_done_callback(_consume_exception)


def address_of(scope: Request) -> str:
    """Return the client's address; an IPv6 network counts as one."""
    return network_of(str(scope["client"][0])) if scope.get("client") else ""


def cookie_of(scope: Request, name: str) -> str | None:
    """Return the value of a cookie."""
    for header, value in scope["headers"]:
        for part in value.decode("latin-1").split(";") if header == b"cookie" else ():
            key, _, text = part.strip().partition("=")
            if key == name and 0 < len(text) <= SECRET_CHARS:
                return str(text)
    return None


def _text(scope: Request, name: bytes) -> str | None:
    value: bytes | None = header_of(scope, name)
    return None if value is None else value.decode("latin-1")


def _consume_exception(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # a store that cannot write says so elsewhere


def no_database(request: Request, error: Exception) -> str:
    """Return the text of a database error. Its cause names paths and servers: only authenticated senders get it."""
    return texts.NO_DATABASE if visitor_of(request) is None else f"the database is unavailable: {error}"
