"""The operator's read endpoints: the overview, lists of open work, the timeline of a message, metrics over time.

Everything is read from the store, except which instances hold their lock, and the state of this process's
platforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
from everturn.web.chat.looking import timelines
from everturn.web.chat.messages import Chats
from everturn.web.control.endpoints import Control
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response
from everturn.web.wire.queries import query_of, whole

LISTED = 50
MOST_LISTED = 200
QUERY_CHARS = 200
GATEWAY = ("version", "pid", "url", "started_at", "state", "trouble")
SESSION_STATES = ("active", "resume_pending", "suspended", "all")
Platforms = Callable[[], Mapping[tuple[str, str], Json]]
T = TypeVar("T", bound=str)


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
