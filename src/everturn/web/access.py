"""The door: who a request comes from, and whether they may do what it asks. Everything is denied unless it is allowed here."""

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
from everturn.decide import web_words
from everturn.decide.access import (
    OWNER,
    SAFE,
    Place,
    Scope,
    granted,
    is_open,
    is_page,
    needed,
    network_of,
    own_host,
    own_origin,
)
from everturn.errors import StoreError
from everturn.store.interface import Store
from everturn.store.operations.access import AccessKey, find_key, find_visit, key_used, secrets_in_force
from everturn.web.answers import Header, Reply, not_now, refusal, retry_after
from everturn.web.buckets import Buckets
from everturn.web.queries import header_of

T = TypeVar("T")
VISITOR = "everturn.visitor"
CHALLENGE: Header = (b"www-authenticate", b'Bearer realm="everturn"')
NOTED_EVERY_S = 60.0
LOGINS = 10  # failed attempts of one address before it must wait
LOGIN_REFILL_S = 60.0
SECRET_CHARS = 200
LOOK_UPS = 500  # questions to the database who somebody is, at the same time
LOOK_UP_S = 2.0
RECOGNISED_WITHIN_S = 2.0  # where nobody is turned away
KNOWN_FOR_S = 1.0  # so long the hashes of all keys and visits are good for addresses that guess
KNOWN = 10_000  # and so many; where there are more, every secret is looked up
MADE = 1_000  # the newest ones that this process made: a reading of all may have begun before


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: the owner, or somebody with a key."""

    name: str
    scopes: frozenset[Scope]
    key: str | None = None
    secret: str | None = None  # the hash of the key
    visit: str | None = None  # the hash of the cookie


THE_OWNER = Visitor("owner", OWNER)


class NotAdmitted(Exception):
    """Somebody may not enter; the answer says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def hashed(secret: str) -> str:
    """How a secret of 128 bits or more is kept: nobody can find it from this, so no salt is wanted."""
    return hashlib.sha256(secret.encode()).hexdigest()


def still_in(access: Access, scope: Request) -> Callable[[], Awaitable[bool]] | None:
    """Asks whether who sent this request would still be let in; None for the token, which does not end."""
    visitor = visitor_of(scope)
    if visitor is None or (visitor.secret is None and visitor.visit is None):
        return None
    return partial(access.again, visitor)


def visitor_of(scope: Request) -> Visitor | None:
    """Who was let in with this request."""
    found = scope.get(VISITOR)
    return found if isinstance(found, Visitor) else None


class Access:
    """Checks every request. `per_minute` bounds each key, and each address that shows no valid secret; 0: no bound."""

    def __init__(self, *, token: str, store: Store, clock: Clock, place: Place, per_minute: float = 600) -> None:
        self._token = token.encode()
        self._bearer = b"Bearer " + self._token
        self._store = store
        self._clock = clock
        self._looking_up = 0
        self._noted: dict[str, float] = {}
        self._known: frozenset[str] = frozenset()
        self._known_at = 0.0
        self._learning: asyncio.Future[bool] | None = None
        self._made: dict[str, None] = {}
        self._per_minute = per_minute
        self._requests = Buckets(clock, per_minute, 60 / per_minute) if per_minute else None
        self.logins = Buckets(clock, LOGINS, LOGIN_REFILL_S)
        self.place = place
        self.on_end: Callable[[], None] = lambda: None  # what follows when a key or a visit ends
        self.cookie = "__Host-everturn" if place.secure else f"everturn_{hashed(token)[:8]}"

    def is_token(self, given: bytes | None) -> bool:
        """Whether this Authorization header holds the home's token."""
        if given is None:
            return False
        if hmac.compare_digest(given, self._bearer):
            return True
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def admit(self, scope: Request) -> None:
        """Let a request in, and write down in its scope who it comes from; else raise NotAdmitted."""
        path, method = scope["path"], scope["method"]
        if method not in SAFE:
            self._from_us(scope)
        if is_open(path):
            if is_page(path):
                self._by_name(scope)
            elif header_of(scope, b"authorization") is not None:
                await self._recognise(scope)
            return
        visitor = await self._visitor(scope)
        wanted = needed(method, path)
        if not visitor.scopes & wanted:
            owner_only = wanted <= {Scope.OWNER}
            why = web_words.only_the_owner if owner_only else lambda name: web_words.not_in_scope(name, wanted)
            raise NotAdmitted(refusal(403, why(visitor.name)))
        scope[VISITOR] = visitor

    def made(self, secret_hash: str) -> None:
        """A key or a visit was made here: it is admitted from now on, also where others guess."""
        self._made[secret_hash] = None
        if len(self._made) > MADE:
            del self._made[next(iter(self._made))]

    async def again(self, visitor: Visitor) -> bool:
        """Whether who was let in would still be."""
        if visitor.visit is not None:
            return await self._store.read(find_visit, visitor.visit, self._clock.now()) is not None
        return visitor.secret is None or await self._store.read(find_key, visitor.secret) is not None

    async def _recognise(self, scope: Request) -> None:
        """Where everybody is answered, write down who asks, if they show it: they may be told more. Nobody is turned away,
        whatever they show and whether or not the database can say who they are.
        """
        with contextlib.suppress(NotAdmitted, StoreError, TimeoutError):
            async with asyncio.timeout(RECOGNISED_WITHIN_S):
                scope[VISITOR] = await self._visitor(scope)

    async def _visitor(self, scope: Request) -> Visitor:
        given = header_of(scope, b"authorization")
        if self.is_token(given):
            return THE_OWNER
        found = await (self._by_key(scope, given) if given is not None else self._by_cookie(scope))
        if found is None:
            self._count_stranger(scope)
            raise NotAdmitted(refusal(401, web_words.WHO_ARE_YOU, CHALLENGE))
        return found

    async def _by_key(self, scope: Request, given: bytes) -> Visitor | None:
        scheme, _, rest = given.partition(b" ")
        secret = rest.strip().decode("latin-1")
        if scheme.lower() != b"bearer" or not 0 < len(secret) <= SECRET_CHARS:
            return None
        secret_hash = hashed(secret)
        key = None
        if await self._worth_a_look(scope, secret_hash):
            key = await self.look_up(partial(self._store.read, find_key, secret_hash))
        return None if key is None else self._with_key(key, secret_hash)

    async def _by_cookie(self, scope: Request) -> Visitor | None:
        """A browser. Its name for us is checked before its cookie: another's page must not speak through it."""
        secret = cookie_of(scope, self.cookie)
        if secret is None:
            return None
        self._by_name(scope)
        visit_hash = hashed(secret)
        if not await self._worth_a_look(scope, visit_hash):
            return None
        visit = await self.look_up(partial(self._store.read, find_visit, visit_hash, self._clock.now()))
        if visit is None:
            return None
        if visit.key is None or visit.key_hash is None:
            return Visitor("owner", OWNER, visit=visit_hash)
        return self._with_key(visit.key, visit.key_hash, visit_hash)

    async def _worth_a_look(self, scope: Request, secret_hash: str) -> bool:
        """Whether the database is asked about a secret. Where an address has shown too many wrong ones, only if it is one of
        those in force: these are read at most once a second for everybody, so that guessing costs no further reads, and a right
        secret is let in. It is looked up like all others: this only says what is wrong for certain.
        """
        if self._requests is None or not self._requests.is_empty(f"address {address_of(scope)}"):
            return True
        if secret_hash in self._known or secret_hash in self._made:
            return True
        now = self._clock.monotonic()
        if self._learning is None or now - self._known_at >= KNOWN_FOR_S:
            self._known_at = now
            self._learning = asyncio.ensure_future(self._learn())
            self._learning.add_done_callback(_heard)
        if not await asyncio.shield(self._learning):  # nobody knows what is wrong, until it is tried again
            raise NotAdmitted(not_now(web_words.CANNOT_LOOK_UP))
        return secret_hash in self._known or len(self._known) >= KNOWN

    async def _learn(self) -> bool:
        """Read which secrets are in force; False when that failed. Many wait for it: an error would keep the frames of all of them."""
        try:
            self._known = await self.look_up(partial(self._store.read, secrets_in_force, self._clock.now(), KNOWN))
        except (NotAdmitted, StoreError):
            return False
        return True

    async def look_up(self, ask: Callable[[], asyncio.Future[T]]) -> T:
        """Ask the database who somebody is who was not admitted yet. While it does not answer, so many questions wait for it and no
        more, whether or not those who asked hung up: everybody else is told to come again.
        """
        if self._looking_up >= LOOK_UPS:
            raise NotAdmitted(not_now(web_words.CANNOT_LOOK_UP))
        found = ask()
        self._looking_up += 1
        found.add_done_callback(self._looked_up)
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await asyncio.shield(found)
        except TimeoutError:
            raise NotAdmitted(not_now(web_words.CANNOT_LOOK_UP)) from None

    def _looked_up(self, found: asyncio.Future[Any]) -> None:
        self._looking_up -= 1
        found.exception()  # whoever asked may be gone

    def _with_key(self, key: AccessKey, secret_hash: str, visit: str | None = None) -> Visitor:
        """Somebody with a key, or a browser that was let in by one: it has the key's rights and counts as the key."""
        self._slowly(f"key {key.name}")
        self._note(secret_hash)
        return Visitor(key.name, granted(key.scopes), key=key.name, secret=secret_hash, visit=visit)

    def _count_stranger(self, scope: Request) -> None:
        """Count a request without a valid secret for its address; not what another site's page lets a browser there send."""
        self._from_us(scope)
        if _text(scope, b"sec-fetch-site") is not None:
            self._by_name(scope)
        self._slowly(f"address {address_of(scope)}")

    def _from_us(self, scope: Request) -> None:
        """What changes something is asked by our own page, or by no page at all."""
        origin, site = _text(scope, b"origin"), _text(scope, b"sec-fetch-site")
        if not own_origin(origin, site, _text(scope, b"host"), self.place):
            raise NotAdmitted(refusal(403, web_words.WRONG_ORIGIN))

    def _by_name(self, scope: Request) -> None:
        if not own_host(_text(scope, b"host"), self.place):
            raise NotAdmitted(refusal(421, web_words.WRONG_HOST))

    def _slowly(self, name: str) -> None:
        wait = self._requests.take(name) if self._requests else None
        if wait is not None:
            raise NotAdmitted(refusal(429, web_words.too_fast(self._per_minute), retry_after(wait)))

    def _note(self, secret_hash: str) -> None:
        """When a key was last used: to the minute, and nobody waits for it."""
        now = self._clock.now()
        if now - self._noted.get(secret_hash, 0) >= NOTED_EVERY_S:
            self._noted[secret_hash] = now
            self._store.run(key_used, secret_hash, now).add_done_callback(_heard)


def address_of(scope: Request) -> str:
    """The address a request comes from; an IPv6 network counts as one."""
    return network_of(str(scope["client"][0])) if scope.get("client") else ""


def cookie_of(scope: Request, name: str) -> str | None:
    """The value of a cookie."""
    for header, value in scope["headers"]:
        for part in value.decode("latin-1").split(";") if header == b"cookie" else ():
            key, _, text = part.strip().partition("=")
            if key == name and 0 < len(text) <= SECRET_CHARS:
                return str(text)
    return None


def _text(scope: Request, name: bytes) -> str | None:
    value: bytes | None = header_of(scope, name)
    return None if value is None else value.decode("latin-1")


def _heard(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # a store that cannot write says so elsewhere
