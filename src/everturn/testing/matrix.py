"""A proxy between an adapter and a real Matrix homeserver that misbehaves on order.

    async with MatrixProxy("http://127.0.0.1:8008") as proxy:
        platform = ...  # with proxy.url as its homeserver
        proxy.fail("reset", "send", accepted=True)

The server stays real; only the faults on the way are ours. Each fault is one that homeservers, or proxies in front of
them, are known for: https://spec.matrix.org/latest/client-server-api/#standard-error-response
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everturn.http_client import HttpClient
from everturn.testing.clock import WAIT_S, within
from everturn.testing.serving import Listening, broken_off

KINDS = ("flood", "server", "reset", "slow", "error", "hang", "again", "repeat", "limited")
OF_SYNC = frozenset({"again", "repeat", "limited"})
METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]
NOT_PASSED_ON = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})
SYNC = "/sync"


@dataclass(frozen=True)
class MatrixFault:
    """A fault of the next requests whose path has this part (`send`, `sync`, `messages`, ...; `*`: any).

    `flood`: 429 with `retry_after_ms`; `server`: 502; `reset`: the connection breaks in the middle of the response; `slow`:
    the response takes `seconds`; `error`: any `code` and `errcode`; `hang`: there is no response until `release` is called.
    `accepted`: the homeserver handled the request all the same; a request that hangs gets that response, old by then. Of /sync
    alone: `again` answers with everything since the first place that was ever read from; `repeat` sends the last response once
    more, unchanged; `limited` cuts each room's timeline to the newest `limit`, as after a long absence.
    """

    kind: str
    path: str = "*"
    times: int = 1
    accepted: bool = False
    retry_after_ms: int = 1000
    seconds: float = 1.0
    code: int = 401
    errcode: str = "M_UNKNOWN_TOKEN"
    error: str = "Access token has expired"
    limit: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no fault named {self.kind!r}; there are {', '.join(KINDS)}")

    def meets(self, path: str) -> bool:
        """Whether a request of this path meets the fault."""
        wanted = "sync" if self.kind in OF_SYNC else self.path
        return wanted == "*" or wanted in path.split("/")


@dataclass(frozen=True)
class MatrixRequest:
    """A request, as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    fault: str | None = None


class Delivered:
    """The messages that the adapter was given, and which of them it acknowledged by reading on from behind them."""

    def __init__(self) -> None:
        self.first = ""  # the first place that was read from
        self.last = b""  # the last response
        self.taken: dict[str, dict[str, Any]] = {}
        self._given: dict[str, list[dict[str, Any]]] = {}

    def asked(self, since: str) -> None:
        """Record the place that is read from: what led there is acknowledged."""
        self.first = self.first or since
        self.taken |= {event["event_id"]: event for event in self._given.pop(since, [])}

    def answered(self, body: bytes) -> None:
        """Record a response of /sync."""
        self.last, news = body, msgspec.json.decode(body)
        rooms = news.get("rooms", {}).get("join", {}).values()
        events = [event for room in rooms for event in room.get("timeline", {}).get("events", [])]
        self._given[news["next_batch"]] = [event for event in events if event["type"] == "m.room.message"]


class MatrixProxy:
    """`async with MatrixProxy(homeserver) as proxy`. It may be closed and opened again, on the same port."""

    def __init__(self, homeserver: str, port: int = 0) -> None:
        self.calls: list[MatrixRequest] = []
        self.faults: list[MatrixFault] = []
        self.delivered = Delivered()
        self._homeserver = homeserver
        self._listening = Listening(port)
        self._client: HttpClient | None = None
        self._changed = asyncio.Event()
        self._hanging: set[asyncio.Future[bool]] = set()

    @property
    def url(self) -> str:
        """The URL that the adapter uses as its homeserver."""
        return self._listening.url

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, on the same port as before."""
        limits = httpx2.Limits(max_connections=None)
        self._client = HttpClient(
            base_url=self._homeserver,
            timeout=None,
            limits=limits,
            verify=False,
        )
        route = Route("/{path:path}", self._pass_on, methods=METHODS)
        await self._listening.open(Starlette(routes=[route]))

    async def close(self) -> None:
        """Stop listening and break all connections, as when a network is gone."""
        self.release(broken=True)
        await self._listening.close()
        if self._client is not None:
            await self._client.aclose()

    def fail(self, kind: str, path: str = "*", **about: Any) -> None:
        """Order a fault."""
        self.faults.append(MatrixFault(kind, path, **about))

    @property
    def hanging(self) -> int:
        """How many requests hang."""
        return len(self._hanging)

    def release(self, *, broken: bool = False) -> None:
        """Send the requests that hang their response, or break their connections."""
        for each in self._hanging:
            each.set_result(broken)
        self._hanging.clear()

    def taken(self, sender: str = "") -> list[dict[str, Any]]:
        """The messages that the adapter acknowledged; of one sender, if it is named."""
        return [event for event in self.delivered.taken.values() if sender in {"", event["sender"]}]

    async def until(self, true: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition; checked with every request and response. A failure reports the last requests."""
        async with within(timeout_s, self._last_requests):
            while not true():
                await self._changed.wait()

    def _last_requests(self) -> str:
        last = [(each.method, each.path, each.fault) for each in self.calls[-10:]]
        return f"{len(self.calls)} requests, {self.hanging} hang, the last (method, path, fault): {last}"

    async def _pass_on(self, request: Request) -> Response:
        call = MatrixRequest(
            request.method, request.scope["raw_path"].decode(), dict(request.query_params), await request.body()
        )
        fault = self._met(call)
        if call.path.endswith(SYNC):
            self.delivered.asked(call.query.get("since", ""))
            call = self._rewritten(call, fault)
        self._wake()
        if fault is None or fault.kind in OF_SYNC - {"repeat"}:
            return await self._answer(call, request)
        return await self._misbehave(fault, call, request)

    def _met(self, call: MatrixRequest) -> MatrixFault | None:
        """Record a request; returns the fault that it meets, which is used up."""
        place = next((place for place, each in enumerate(self.faults) if each.meets(call.path)), None)
        fault = None if place is None else self.faults[place]
        if place is not None and fault is not None:
            self.faults[place : place + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
        self.calls.append(replace(call, fault=fault.kind if fault else None))
        return fault

    def _rewritten(self, call: MatrixRequest, fault: MatrixFault | None) -> MatrixRequest:
        if fault is None:
            return call
        if fault.kind == "again" and self.delivered.first:
            return replace(call, query=call.query | {"since": self.delivered.first, "timeout": "0"})
        if fault.kind == "limited":
            return replace(call, query=call.query | {"filter": _limited(call.query.get("filter", ""), fault.limit)})
        return call

    async def _answer(self, call: MatrixRequest, request: Request) -> Response:
        answer = await self._forward(call, request)
        if call.path.endswith(SYNC) and answer.status_code == 200:
            self.delivered.answered(bytes(answer.body))
        self._wake()
        return answer

    async def _misbehave(self, fault: MatrixFault, call: MatrixRequest, request: Request) -> Response:
        done = await self._forward(call, request) if fault.accepted else None
        self._wake()
        match fault.kind:
            case "flood":
                body = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests"}
                return JSONResponse(body | {"retry_after_ms": fault.retry_after_ms}, 429)
            case "server":
                return JSONResponse({"errcode": "M_UNKNOWN", "error": "Bad Gateway"}, 502)
            case "error":
                return JSONResponse({"errcode": fault.errcode, "error": fault.error}, fault.code)
            case "repeat" if self.delivered.last:
                return Response(self.delivered.last, media_type="application/json")
            case "slow":
                await asyncio.sleep(fault.seconds)
                return await self._answer(call, request)
            case "reset" | "hang" if fault.kind == "reset" or await self._hangs():
                return broken_off()
        return done or await self._answer(call, request)

    async def _hangs(self) -> bool:
        """Wait for `release`; returns whether the connection breaks then."""
        hanging: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._hanging.add(hanging)
        self._wake()
        return await hanging

    async def _forward(self, call: MatrixRequest, request: Request) -> Response:
        """Forward a request to the homeserver; 502 if that cannot be reached, as from any proxy."""
        if self._client is None:
            raise RuntimeError("the proxy is not open")
        headers = {name: value for name, value in request.headers.items() if name not in NOT_PASSED_ON}
        try:
            got = await self._client.request(
                call.method, call.path, params=call.query, content=call.body, headers=headers
            )
        except httpx2.HTTPError as error:
            return JSONResponse({"errcode": "M_UNKNOWN", "error": f"Bad Gateway: {type(error).__name__}"}, 502)
        kind = got.headers.get("content-type", "application/json")
        return Response(got.content, got.status_code, headers={"content-type": kind})

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _limited(wanted: str, limit: int) -> str:
    """The requested filter with a shorter timeline; one that is only named by its id is replaced."""
    found = msgspec.json.decode(wanted) if wanted.startswith("{") else {}
    room = found.get("room", {})
    timeline = room.get("timeline", {}) | {"limit": limit}
    return msgspec.json.encode(found | {"room": room | {"timeline": timeline}}).decode()
