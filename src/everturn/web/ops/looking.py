"""What the operations page shows, and its stream of changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn.clock import Clock
from everturn.model import Json
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
from everturn.operator.rules.timeline import timeline_json
from everturn.store.interface import Op, Store
from everturn.web.access import Access, access_check, visitor_of
from everturn.web.chat.conversations import AsgiEndpoint, timelines
from everturn.web.chat.events import HEAD, RECONNECT, EventStreams, Watched
from everturn.web.chat.messages import Chats
from everturn.web.control.endpoints import Control
from everturn.web.wire.bodies import json_response
from everturn.web.wire.requests import BadRequest, encode, query_of, whole

LISTED = 50
MOST_LISTED = 200
QUERY_CHARS = 200
GATEWAY = ("version", "pid", "url", "started_at", "state", "trouble")
SESSION_STATES = ("active", "resume_pending", "suspended", "all")
Platforms = Callable[[], Mapping[tuple[str, str], Json]]


class OpsReadEndpoints:
    """The read-only endpoints; for a key with the scope `read`, and the owner (people/rules/access.py)."""

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


# The operator's event stream: hints that something changed, at most one a second. Clients then read the lists again.


EVERY_S = 1.0
ALL = ["inbox", "instances", "outbox", "platforms", "sessions", "turns"]


class ChangeSource(Protocol):
    """Signals changes in this process (outbox/hub.py)."""

    def watch(self) -> Any:
        """Start watching: returns an object with `async next()`."""
        ...

    def leave(self, looking: Any) -> None:
        """Stop watching."""
        ...


class ChangeStream:
    """`GET /ops/api/events`."""

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
