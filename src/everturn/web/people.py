"""People and chats over HTTP, for `everturn pair` and `everturn channels`: pairing codes, access requests, and the chat directory."""

from __future__ import annotations

import math
import re
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.people.rows.access import StoppedKey
from everturn.people.rows.directory import Directory, directory, drop_alias, put_alias
from everturn.people.rows.pairing import Paired, PairingOutcome
from everturn.people.rules import people_texts
from everturn.people.rules.access import clean_code, clean_name, is_person
from everturn.people.rules.directory import ALIAS_CHARS, KnownChat, at_address, kinds, plain
from everturn.store.interface import Store
from everturn.web.wire.requests import BadRequest, json_response, small_body, whole_number

LONGEST_ID = 19  # digits, of what is said again
TOO_MANY = 429
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9_]*:[^\s\x00]{1,400}")


class PeopleDesk(Protocol):
    """Manages people: in the running gateway, or in the store of a stopped one."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """Return the open access requests, and the approved and revoked people."""
        ...

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Approve the person who got this pairing code."""
        ...

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Approve the access request with this number."""
        ...

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Approve a person without an access request, or one who was revoked."""
        ...

    async def revoke(self, platform: str, person: str) -> list[StoppedKey]:
        """Revoke a person's access at once."""
        ...

    async def knows(self, platform: str) -> bool:
        """Whether this platform exists, or existed."""
        ...


class ApproveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/approve`: a code (of a platform, or of any), or the number of a request."""

    code: str | None = None
    request: str | None = None
    platform: str | None = None
    owner: bool = False


class AllowRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/allow`."""

    person: str
    owner: bool = False


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/revoke`."""

    person: str


_read_approve = msgspec.json.Decoder(ApproveRequest).decode
_read_allow = msgspec.json.Decoder(AllowRequest).decode
_read_revoke = msgspec.json.Decoder(RevokeRequest).decode


class NotApproved(Exception):
    """Nobody was approved; the text says why, `status` is the HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


async def approve(desk: PeopleDesk, wanted: ApproveRequest, now: float) -> Json:
    """Approve a person by code or request; raises NotApproved."""
    if wanted.request is not None:
        paired = await desk.approve_request(_number(wanted.request), owner=wanted.owner)
        why = people_texts.no_request(wanted.request[:LONGEST_ID])
    else:
        paired = await desk.approve_code(clean_code(wanted.code or ""), wanted.platform, owner=wanted.owner)
        why = people_texts.pair_wrong()
    if paired.locked_until > now:
        raise NotApproved(TOO_MANY, people_texts.pair_locked(math.ceil((paired.locked_until - now) / 60)))
    if paired.outcome is not PairingOutcome.APPROVED:
        raise NotApproved(404, why)
    return {"approved": paired.person, "name": paired.name, "owner": wanted.owner}


def _number(text: str) -> int:
    """Return a request's number; for an invalid one 0, which no request has."""
    try:
        return whole_number("request", text)
    except BadRequest:
        return 0


async def allow(desk: PeopleDesk, person: str, *, owner: bool) -> Json:
    """Approve the person "platform:user"; raises NotApproved for an invalid name."""
    platform, user = named(person)
    known = await desk.knows(platform)
    await desk.allow(platform, user, owner=owner)
    return {"approved": person, "owner": owner, "platform_known": known}


async def revoke(desk: PeopleDesk, person: str) -> Json:
    """Revoke the person "platform:user"; raises NotApproved for an invalid name."""
    platform, user = named(person)
    known = await desk.knows(platform)
    ended = await desk.revoke(platform, user)
    return {"revoked": person, "stopped_turns": sum(each.turn is not None for each in ended), "platform_known": known}


def named(person: str) -> tuple[str, str]:
    """Split "platform:user"; raises NotApproved for an invalid name."""
    platform, _, user = person.partition(":")
    if not is_person(platform, user):
        raise NotApproved(400, people_texts.no_such_person(person[:100]))
    return platform, user


class Pairing:
    """The endpoints of `everturn pair`."""

    def __init__(self, desk: PeopleDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/control/pair", self.all, methods=["GET"]),
            Route("/control/pair/approve", self.approve, methods=["POST"]),
            Route("/control/pair/allow", self.allow, methods=["POST"]),
            Route("/control/pair/revoke", self.revoke, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /control/pair`."""
        requests, people = await self._desk.all()
        return json_response({"requests": requests, "people": people})

    async def approve(self, request: Request) -> Response:
        """`POST /control/pair/approve`."""
        try:
            wanted = _read_approve(await small_body(request))
            if (wanted.code is None) == (wanted.request is None):
                raise BadRequest('the body must be {"code": "..."} or {"request": "..."}')
            return json_response(await approve(self._desk, wanted, self._clock.now()))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None

    async def allow(self, request: Request) -> Response:
        """`POST /control/pair/allow`."""
        try:
            wanted = _read_allow(await small_body(request))
            return json_response(await allow(self._desk, wanted.person, owner=wanted.owner))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None

    async def revoke(self, request: Request) -> Response:
        """`POST /control/pair/revoke`."""
        try:
            return json_response(await revoke(self._desk, _read_revoke(await small_body(request)).person))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None


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
