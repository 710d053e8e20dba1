"""What an operator sees: how everything is, lists of what is open, the life of a message, figures over time.

Every figure comes from the store. Only whether a process is held alive, and how this process's platforms are, is seen from
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.decide.timeline import drawn
from everturn.model import Json
from everturn.store.interface import Op, Store
from everturn.store.operations.open_work import Place, conversations, messages, open_turns, recent_turns, replies
from everturn.store.operations.overview import accounts, counts, recoveries
from everturn.store.operations.overview import lives as instances
from everturn.store.operations.trends import STEPS_S, trends
from everturn.web.answers import BadRequest
from everturn.web.bodies import json_response
from everturn.web.control import Control
from everturn.web.looking import lives
from everturn.web.messages import Chats
from everturn.web.queries import query_of, whole

LISTED = 50
MOST_LISTED = 200
WORDS = 200
GATEWAY = ("version", "pid", "url", "started_at", "state", "trouble")
SESSION_STATES = ("active", "resume_pending", "suspended", "all")
Platforms = Callable[[], Mapping[tuple[str, str], Json]]
T = TypeVar("T", bound=str)


class Looking:
    """The endpoints that change nothing; for a key with the scope `read`, and the owner (decide/access.py)."""

    def __init__(self, *, store: Store, clock: Clock, control: Control, chats: Chats, platforms: Platforms) -> None:
        self._store = store
        self._clock = clock
        self._control = control
        self._chats = chats
        self._platforms = platforms

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/ops/api/overview", self.overview),
            Route("/ops/api/turns", self.turns),
            Route("/ops/api/sessions", self.sessions),
            Route("/ops/api/inbox", self.inbox),
            Route("/ops/api/outbox", self.outbox),
            Route("/ops/api/explain", self.explain),
            Route("/ops/api/figures", self.figures),
        ]

    async def overview(self, _: Request) -> Response:
        """`GET /ops/api/overview`: everything at one look."""
        status, alive = self._control.status(), await self._store.alive()
        seen = await self._store.read(_everything, self._clock.now())
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
        """`GET /ops/api/sessions?state=active|resume_pending|suspended|all&q=WORDS`."""
        query = query_of(request.scope)
        limit, words = _limit(query), _words(query)
        state = _one_of(query, "state", SESSION_STATES, "all")
        found = await self._store.read(conversations, state, words, _place(query), limit)
        places = [place for place, _ in found]
        return self._page(
            "sessions", [each for _, each in found], limit, lambda _: f"{places[-1].at!r}:{places[-1].number}"
        )

    async def inbox(self, request: Request) -> Response:
        """`GET /ops/api/inbox?state=waiting|dead|all&q=WORDS`; with words and no state: all."""
        query = query_of(request.scope)
        limit, words = _limit(query), _words(query)
        state = _one_of(query, "state", ("waiting", "dead", "all"), "all" if words else None)
        found = await self._store.read(messages, state, whole(query, "after", 0), limit, words)
        return self._page("messages", found, limit, lambda last: last["id"])

    async def outbox(self, request: Request) -> Response:
        """`GET /ops/api/outbox?state=owed|doubtful|dead`."""
        query = query_of(request.scope)
        limit, state = _limit(query), _one_of(query, "state", ("owed", "doubtful", "dead"))
        found = await self._store.read(replies, state, whole(query, "after", 0), limit)
        return self._page("replies", found, limit, lambda last: last["reply"])

    async def explain(self, request: Request) -> Response:
        """`GET /ops/api/explain?message=ID`: the life of a message, and its picture."""
        name = query_of(request.scope).get("message", "")
        if not name:
            raise BadRequest("say which message: ?message=ID")
        told = await self._store.read(lives, self._chats.stored_ids(name))
        return json_response({"now": self._clock.now(), "lives": [{**life, "timeline": drawn(life)} for life in told]})

    async def figures(self, request: Request) -> Response:
        """`GET /ops/api/figures?hours=24|168|720`."""
        hours = int(_one_of(query_of(request.scope), "hours", tuple(map(str, STEPS_S))))
        return json_response(await self._store.read(trends, hours, self._clock.now()))

    def _page(self, name: str, found: list[Json], limit: int, place: Callable[[Json], object]) -> Response:
        """A page of a list; `next` is null on the last one."""
        more = place(found[-1]) if len(found) == limit else None
        return json_response({"now": self._clock.now(), name: found, "next": more})

    def _joined(self, known: Mapping[tuple[str, str], Json]) -> list[Json]:
        """What the rows know of each account, and what is seen of it from here."""
        here, nothing = self._platforms(), {"received_at": None, "sent_at": None, "waiting": 0, "owed": 0}
        return [
            {"name": place[0], "account": place[1], "state": "not connected", **known.get(place, nothing), **here.get(place, {})}
            for place in sorted({*known, *here})
        ]  # fmt: skip


class _Seen:
    """One look at everything."""

    def __init__(
        self, counted: Json, instances_: list[Json], accounts_: dict[tuple[str, str], Json], recovered: list[Json]
    ) -> None:
        self.counts = counted
        self.instances = instances_
        self.accounts = accounts_
        self.recoveries = recovered


def _everything(now: float) -> Op[_Seen]:
    return _Seen((yield from counts(now)), (yield from instances()), (yield from accounts()), (yield from recoveries()))


def _limit(query: Mapping[str, str]) -> int:
    return max(1, whole(query, "limit", LISTED, MOST_LISTED))


def _words(query: Mapping[str, str]) -> str:
    return query.get("q", "").strip()[:WORDS]


def _one_of(query: Mapping[str, str], name: str, choices: tuple[str, ...], default: str | None = None) -> str:
    """One of a few words; the first of them, or `default`, where nothing is said."""
    given = query.get(name, default or choices[0])
    if given not in choices:
        raise BadRequest(f"{name} must be one of {', '.join(choices)}, not {given[:40]!r}")
    return given


def _place(query: Mapping[str, str]) -> Place:
    if "after" not in query:
        return Place()
    at, _, number = query["after"].partition(":")
    try:
        return Place(float(at), int(number))
    except ValueError:
        raise BadRequest("after must be the `next` of the page before") from None
