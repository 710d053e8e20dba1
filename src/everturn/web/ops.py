"""The operations page: what it shows, its stream of changes, and what an operator does there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn.clock import Clock
from everturn.model import Json
from everturn.operator.rows.actions import Acted, Impossible
from everturn.operator.rows.overview import (
    STEPS_S,
    ConversationCursor,
    accounts,
    conversations,
    counts,
    instances,
    messages,
    open_turns,
    recent_turns,
    recoveries,
    replies,
    trends,
)
from everturn.operator.rows.reading import PersonAct, PersonActed
from everturn.operator.rules.timeline import timeline_json
from everturn.people.rules.access import clean_code
from everturn.store.interface import Op, Store
from everturn.web.access import Access, access_check, visitor_of
from everturn.web.control import Control
from everturn.web.conversations import AsgiEndpoint, timelines
from everturn.web.events import HEAD, RECONNECT, EventStreams, Watched
from everturn.web.messages import Chats
from everturn.web.people import NotApproved, named
from everturn.web.wire.requests import BadRequest, encode, json_response, query_of, small_body, whole, whole_number

LISTED = 50
MOST_LISTED = 200
QUERY_CHARS = 200
GATEWAY = ("version", "pid", "url", "started_at", "state", "trouble")
SESSION_STATES = ("active", "resume_pending", "suspended", "all")
Platforms = Callable[[], Mapping[tuple[str, str], Json]]
EVERY_S = 1.0
ALL = ["inbox", "instances", "outbox", "platforms", "sessions", "turns"]
ID_CHARS = 200
Wanted = tuple[str, str, str, str]  # kind of target, action, target, and the action's id
CODE_CHARS = 64


class OpsReadEndpoints:
    """The read-only endpoints; for a key with the scope `read`, and the owner (people/rules/rights.py)."""

    def __init__(self, *, store: Store, clock: Clock, control: Control, chats: Chats, platforms: Platforms) -> None:
        self._store = store
        self._clock = clock
        self._control = control
        self._chats = chats
        self._platforms = platforms

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/ops/api/overview", self.overview),
            Route("/ops/api/turns", self.turns),
            Route("/ops/api/sessions", self.sessions),
            Route("/ops/api/inbox", self.inbox),
            Route("/ops/api/outbox", self.outbox),
            Route("/ops/api/explain", self.explain),
            Route("/ops/api/trends", self.trends),
        ]

    async def overview(self, _: Request) -> Response:
        """`GET /ops/api/overview`."""
        status, alive = self._control.status(), await self._store.alive()
        seen = await self._store.read(_read_overview, self._clock.now())
        return json_response(
            {
                "now": self._clock.now(),
                "gateway": {name: status.get(name) for name in GATEWAY},
                "counts": seen.counts,
                "instances": [{**each, "alive": each["number"] in alive} for each in seen.instances],
                "platforms": self._joined(seen.accounts),
                "recoveries": seen.recoveries,
            }
        )

    async def turns(self, request: Request) -> Response:
        """`GET /ops/api/turns?state=open|recent`."""
        query = query_of(request.scope)
        look = open_turns if _one_of(query, "state", ("open", "recent")) == "open" else recent_turns
        limit = _limit(query)
        found = await self._store.read(look, whole(query, "after", 0), limit)
        return self._page("turns", found, limit, lambda last: last["turn"])

    async def sessions(self, request: Request) -> Response:
        """`GET /ops/api/sessions?state=active|resume_pending|suspended|all&q=TEXT`."""
        given = query_of(request.scope)
        limit, query = _limit(given), _search_text(given)
        state = _one_of(given, "state", SESSION_STATES, "all")
        found = await self._store.read(conversations, state, query, _place(given), limit)
        places = [place for place, _ in found]
        return self._page(
            "sessions", [each for _, each in found], limit, lambda _: f"{places[-1].at!r}:{places[-1].number}"
        )

    async def inbox(self, request: Request) -> Response:
        """`GET /ops/api/inbox?state=queued|dead|all&q=TEXT`; with `q` and no state: all."""
        given = query_of(request.scope)
        limit, query = _limit(given), _search_text(given)
        state = _one_of(given, "state", ("queued", "dead", "all"), "all" if query else None)
        found = await self._store.read(messages, state, whole(given, "after", 0), limit, query)
        return self._page("messages", found, limit, lambda last: last["id"])

    async def outbox(self, request: Request) -> Response:
        """`GET /ops/api/outbox?state=pending|unknown|dead`."""
        query = query_of(request.scope)
        limit, state = _limit(query), _one_of(query, "state", ("pending", "unknown", "dead"))
        found = await self._store.read(replies, state, whole(query, "after", 0), limit)
        return self._page("replies", found, limit, lambda last: last["reply"])

    async def explain(self, request: Request) -> Response:
        """`GET /ops/api/explain?message=ID`: the messages with this id and their timelines."""
        name = query_of(request.scope).get("message", "")
        if not name:
            raise BadRequest("the parameter message is missing; use ?message=ID")
        found = await self._store.read(timelines, self._chats.stored_ids(name))
        return json_response(
            {"now": self._clock.now(), "messages": [{**each, "timeline": timeline_json(each)} for each in found]}
        )

    async def trends(self, request: Request) -> Response:
        """`GET /ops/api/trends?hours=24|168|720`."""
        hours = int(_one_of(query_of(request.scope), "hours", tuple(map(str, STEPS_S))))
        return json_response(await self._store.read(trends, hours, self._clock.now()))

    def _page(self, name: str, found: list[Json], limit: int, place: Callable[[Json], object]) -> Response:
        """Return a page of a list; `next` is null on the last one."""
        more = place(found[-1]) if len(found) == limit else None
        return json_response({"now": self._clock.now(), name: found, "next": more})

    def _joined(self, known: Mapping[tuple[str, str], Json]) -> list[Json]:
        """Merge the stored data of each account with the state of this process's platforms."""
        here, nothing = self._platforms(), {"received_at": None, "sent_at": None, "queued": 0, "pending": 0}
        return [
            {"name": place[0], "account": place[1], "state": "not connected", **known.get(place, nothing), **here.get(place, {})}
            for place in sorted({*known, *here})
        ]  # fmt: skip


class _Rows:
    """The rows of the overview, from one transaction."""

    def __init__(
        self, counted: Json, instances_: list[Json], accounts_: dict[tuple[str, str], Json], recovered: list[Json]
    ) -> None:
        self.counts = counted
        self.instances = instances_
        self.accounts = accounts_
        self.recoveries = recovered


def _read_overview(now: float) -> Op[_Rows]:
    return _Rows((yield from counts(now)), (yield from instances()), (yield from accounts()), (yield from recoveries()))


def _limit(query: Mapping[str, str]) -> int:
    return max(1, whole(query, "limit", LISTED, MOST_LISTED))


def _search_text(query: Mapping[str, str]) -> str:
    return query.get("q", "").strip()[:QUERY_CHARS]


def _one_of(query: Mapping[str, str], name: str, choices: tuple[str, ...], default: str | None = None) -> str:
    """Return a parameter that has few values; if it is missing, `default` or the first."""
    given = query.get(name, default or choices[0])
    if given not in choices:
        raise BadRequest(f"{name} must be one of {', '.join(choices)}, not {given[:40]!r}")
    return given


def _place(query: Mapping[str, str]) -> ConversationCursor:
    if "after" not in query:
        return ConversationCursor()
    at, _, number = query["after"].partition(":")
    try:
        return ConversationCursor(float(at), int(number))
    except ValueError:
        raise BadRequest("after must be the `next` of the previous page") from None


class ChangeSource(Protocol):
    """Signals changes in this process (outbox/hub.py)."""

    def watch(self) -> Any:
        """Start watching: returns an object with `async next()`."""
        ...

    def leave(self, looking: Any) -> None:
        """Stop watching."""
        ...


class ChangeStream:
    """`GET /ops/api/events`: hints that something changed, at most one a second. Clients then read the lists again."""

    def __init__(self, moves: ChangeSource, streams: EventStreams, access: Access, heartbeat_s: float) -> None:
        self._moves = moves
        self._streams = streams
        self._access = access
        self._heartbeat_s = heartbeat_s

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/ops/api/events", AsgiEndpoint(self.watch), methods=["GET"])]

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client disconnects or loses access."""
        visitor = visitor_of(scope)
        person = "an operator" if visitor is None or visitor.key is None else f"the operator with the key {visitor.key}"
        watched = Watched("", person=person, admitted=access_check(self._access, scope))
        await self._streams.stream(_ChangeFeed(self._moves, watched, send, self._heartbeat_s), watched, receive, send)


class _ChangeFeed:
    """Fills one stream. Each heartbeat says that all may have changed: changes of other instances are not signalled here."""

    def __init__(self, moves: ChangeSource, watched: Watched, send: Send, heartbeat_s: float) -> None:
        self._moves = moves
        self._admitted = watched.admitted
        self._send = send
        self._heartbeat_s = heartbeat_s
        self.started = False

    async def run(self) -> None:
        """Stream changes. Watches before it sends the head, so that no change is missed."""
        looking, clock = self._moves.watch(), asyncio.get_running_loop().time
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})
            self.started = True
            await self._emit(RECONNECT)
            while self._admitted is None or await self._admitted():
                await self._send_changed(ALL)
                until = clock() + self._heartbeat_s
                while (left := until - clock()) > 0:
                    await self._next(looking, left)
        finally:
            self._moves.leave(looking)

    async def _next(self, looking: Any, left: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                moved = await looking.next()
            await self._send_changed(moved)
            await asyncio.sleep(EVERY_S)

    async def _send_changed(self, moved: list[str]) -> None:
        await self._emit(b"event: changed\ndata: " + encode({"what": moved}) + b"\n\n")

    async def _emit(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})


class OperatorActions(Protocol):
    """Carries out actions (operator/actions.py)."""

    async def act(self, what: str, action: str, target: str, action_id: str, actor: str) -> Acted | Impossible:
        """Act once for each id; returns after the commit."""
        ...

    def platforms(self) -> dict[tuple[str, str], Json]:
        """Return the platforms of this process, and their state."""
        ...


class SessionAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/sessions/act`."""

    key: str
    action: Literal["resume", "suspend", "reset", "stop"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "session", self.action, checked_text("key", self.key, 2_000), self.id


class MessageAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/inbox/act`."""

    inbox: str
    action: Literal["run", "drop"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "message", self.action, str(whole_number("inbox", self.inbox)), self.id


class ReplyAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/outbox/act`."""

    reply: str
    action: Literal["send", "drop", "mark_sent"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "reply", self.action, str(whole_number("reply", self.reply)), self.id


AnyAct = SessionAct | MessageAct | ReplyAct
BODIES: dict[str, Callable[[bytes], AnyAct]] = {
    "sessions": msgspec.json.Decoder(SessionAct).decode,
    "inbox": msgspec.json.Decoder(MessageAct).decode,
    "outbox": msgspec.json.Decoder(ReplyAct).decode,
}


class ActionEndpoints:
    """The endpoints of actions; for a key with the scope `ops`, and the owner."""

    def __init__(self, operator: OperatorActions) -> None:
        self._operator = operator

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/ops/api/{what}/act", self.act, methods=["POST"])]

    async def act(self, request: Request) -> Response:
        """`POST /ops/api/{sessions|inbox|outbox}/act`: 200 and what was done, or 409 and why not."""
        read = BODIES.get(request.path_params["what"])
        if read is None:
            return json_response({"error": "no such endpoint; use sessions, inbox or outbox"}, 404)
        try:
            what, action, target, action_id = read(await small_body(request)).wanted()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not a valid action: {error}") from None
        visitor = visitor_of(request.scope)
        actor = visitor.name if visitor else "owner"
        done = await self._operator.act(what, action, target, checked_text("id", action_id, ID_CHARS), actor)
        if isinstance(done, Impossible):
            return json_response({"error": done.why}, 409)
        return json_response({"done": True, "said": done.said})


def checked_text(name: str, text: str, longest: int) -> str:
    """Return the text if it is short and printable; else raise BadRequest."""
    if not 0 < len(text) <= longest or not text.isprintable():
        raise BadRequest(f"{name} must have 1 to {longest} printable characters")
    return text


class PeopleOperator(Protocol):
    """Manages people (people/pairing.py)."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """Return the open access requests, and the approved and revoked people."""
        ...

    def listed(self) -> list[Json]:
        """Return the settings of each platform: who is allowed, and what strangers get as reply."""
        ...

    async def act(self, wanted: PersonAct) -> PersonActed | Impossible:
        """Approve or revoke a person, once for each id; returns after the commit."""
        ...


class PeopleAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/people/act`: approve with a code (of a platform, or of any) or a request's number; allow or
    revoke a person, "platform:user".
    """

    action: Literal["approve", "allow", "revoke"]
    id: str
    code: str | None = None
    request: str | None = None
    platform: str | None = None
    person: str | None = None
    owner: bool = False


_read = msgspec.json.Decoder(PeopleAct).decode


class PeopleEndpoints:
    """The endpoints of people and access requests; as for `everturn pair`, for the owner and keys with the scope `admin`.

    Pairing codes go in, never out.
    """

    def __init__(self, people: PeopleOperator, clock: Clock) -> None:
        self._people = people
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/ops/api/people", self.all, methods=["GET"]),
            Route("/ops/api/people/act", self.act, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /ops/api/people`: access requests, approved and revoked people, and settings."""
        requests, people = await self._people.all()
        return json_response(
            {"now": self._clock.now(), "requests": requests, "people": people, "settings": self._people.listed()}
        )

    async def act(self, request: Request) -> Response:
        """`POST /ops/api/people/act`: 200 and what was done, or 409 and why not."""
        visitor = visitor_of(request.scope)
        try:
            wanted = _wanted(_read(await small_body(request)), visitor.name if visitor else "owner", self._clock.now())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not a valid action: {error}") from None
        except NotApproved as error:
            raise BadRequest(str(error)) from None
        done = await self._people.act(wanted)
        if isinstance(done, Impossible):
            return json_response({"error": done.why}, 409)
        return json_response({"done": True, "said": done.said})


def _wanted(body: PeopleAct, actor: str, at: float) -> PersonAct:
    by = [name for name in ("code", "request", "person") if getattr(body, name) is not None]
    if len(by) != 1 or (by == ["person"]) is (body.action == "approve"):
        raise BadRequest("approve needs a code or a request; allow and revoke need a person")
    return PersonAct(
        id=checked_text("id", body.id, ID_CHARS),
        action=body.action,
        actor=actor,
        at=at,
        notice=0,
        code=None if body.code is None else clean_code(body.code[:CODE_CHARS]),
        request=None if body.request is None else whole_number("request", body.request),
        platform=None if body.platform is None else checked_text("platform", body.platform, CODE_CHARS),
        person=None if body.person is None else named(body.person),
        owner=body.owner,
    )
