"""Endpoints for monitoring and for the command line: health, control, and the metrics in the format that Prometheus reads."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn import __version__
from everturn.clock import Clock
from everturn.errors import StoreError
from everturn.model import InboxState, Json, OutboxState, TurnState
from everturn.operator.rows.reading import OpenWork, backlog, count_open
from everturn.people.rules.rights import KeyScope
from everturn.sessions.rows.entries import list_entries
from everturn.store.interface import Store
from everturn.telemetry.meters import METRICS, Histogram, Labels, Meters, Metric, MetricKind, StoreMeters
from everturn.web import texts
from everturn.web.access import visitor_of
from everturn.web.conversations import timelines
from everturn.web.events import EventStreams
from everturn.web.messages import Chats
from everturn.web.wire.requests import NO_STORE, RETRY, json_response, query_of, small_body, whole

if sys.platform == "linux":
    import resource

MOST_SESSIONS = 1_000
COUNTS_S = 2.0
STORE_S = 2.0
STARTED_AT = time.time()
ALONE: Labels = ()
OPEN_TURNS = (TurnState.RUNNING, TurnState.AWAITING_APPROVAL, TurnState.INTERRUPTED)
OPEN_INBOX = (InboxState.QUEUED, InboxState.CLAIMED)
OPEN_OUTBOX = (OutboxState.OPEN, OutboxState.PENDING, OutboxState.SENDING, OutboxState.UNKNOWN)
Value = float | Histogram
Family = Mapping[Labels, Value]
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TOTAL = "_total"


class Control(Protocol):
    """The running gateway, as the command line sees it."""

    def status(self) -> Json:
        """Return version, process, address and state."""
        ...

    def request_stop(self, kind: str, reason: str) -> None:
        """Begin a planned `stop` or `restart`."""
        ...

    def ready(self) -> str | None:
        """Return None if the gateway accepts and answers messages, else why not; `Store.trouble` tells about the database."""
        ...


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/stop`."""

    kind: Literal["stop", "restart"]
    reason: str = ""


_read_stop = msgspec.json.Decoder(StopRequest).decode


def control_routes(control: Control, store: Store, chats: Chats) -> list[Route]:
    """Return the routes of health and control."""
    points = _Endpoints(control, store, chats)
    return [
        Route("/health", points.health),
        Route("/ready", points.ready),
        Route("/control/status", points.status),
        Route("/control/sessions", points.sessions),
        Route("/control/explain/{id:path}", points.explain),
        Route("/control/stop", points.stop, methods=["POST"]),
    ]


class _Endpoints:
    def __init__(self, control: Control, store: Store, chats: Chats) -> None:
        self._control = control
        self._store = store
        self._chats = chats

    async def health(self, _: Request) -> Response:
        return json_response({"alive": True})

    async def ready(self, request: Request) -> Response:
        """`GET /ready`, open to everybody; details of a database error only with the scope `read`."""
        why, trouble = self._control.ready(), self._store.trouble()
        if why is None and trouble is not None:
            visitor = visitor_of(request.scope)
            why = trouble if visitor is not None and KeyScope.READ in visitor.scopes else texts.NO_DATABASE
        if why is None:
            return json_response({"ready": True})
        return json_response({"ready": False, "reason": why}, 503, RETRY)

    async def status(self, _: Request) -> Response:
        return json_response({**self._control.status(), "open": await self._open_counts()})

    async def sessions(self, request: Request) -> Response:
        query = query_of(request.scope)
        limit = max(1, whole(query, "limit", 100, MOST_SESSIONS))
        found = await self._store.read(list_entries, query.get("after", ""), limit)
        return json_response({"sessions": found, "next": found[-1]["key"] if len(found) == limit else None})

    async def explain(self, request: Request) -> Response:
        names = self._chats.stored_ids(request.path_params["id"])
        return json_response({"messages": await self._store.read(timelines, names)})

    async def stop(self, request: Request) -> Response:
        try:
            wanted = _read_stop(await small_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            example = '{"kind": "stop" or "restart", "reason": "..."}'
            raise HTTPException(400, f"the body must be JSON like {example}: {error}") from None
        self._control.request_stop(wanted.kind, wanted.reason)
        return json_response({"stopping": True, "kind": wanted.kind}, 202)

    async def _open_counts(self) -> Json | None:
        """Count open work by state; None if the database does not answer: status must work without it."""
        try:
            async with asyncio.timeout(COUNTS_S):
                return await self._store.read(count_open)
        except (TimeoutError, StoreError):
            return None


class Metrics:
    """Collects and renders every metric of the table."""

    def __init__(self, meters: Meters, store: Store, events: EventStreams, clock: Clock) -> None:
        self._meters = meters
        self._store = store
        self._events = events
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/metrics", self.show, methods=["GET"])]

    async def show(self, request: Request) -> Response:
        """`GET /metrics`; OpenMetrics if the request accepts it."""
        modern = "application/openmetrics-text" in request.headers.get("accept", "")
        families = await self.collect()
        return Response(rendered(families, modern=modern), 200, {**NO_STORE, "content-type": OPEN if modern else TEXT})

    async def collect(self) -> dict[str, Family]:
        """Return every metric by name; those of the store are missing if it does not answer in time."""
        found = await self._backlog()
        families = {**of_gateway(self._meters), **of_store(self._store.meters()), **of_process()}
        families["everturn_streams_open"] = {ALONE: self._events.count()}
        families["everturn_store_up"] = {ALONE: float(found is not None)}
        return families if found is None else {**families, **of_backlog(found, self._clock.now())}

    async def _backlog(self) -> OpenWork | None:
        try:
            async with asyncio.timeout(STORE_S):
                return await self._store.read(backlog)
        except (TimeoutError, StoreError):
            return None


def of_gateway(meters: Meters) -> dict[str, Family]:
    """Return the metrics that the loops counted."""
    return {
        "everturn_messages_total": meters.messages,
        "everturn_turns_total": meters.turns,
        "everturn_turns_running": {ALONE: meters.running},
        "everturn_answer_seconds": {ALONE: meters.answer},
        "everturn_turn_seconds": {ALONE: meters.turn},
        "everturn_step_seconds": {("model",): meters.model, ("tool",): meters.tool},
        "everturn_model_requests_total": {ALONE: meters.requests},
        "everturn_model_tokens_total": {
            ("input",): meters.input_tokens,
            ("output",): meters.output_tokens,
            ("cached",): meters.cached_tokens,
        },
        "everturn_model_cost_dollars_total": {ALONE: meters.cost},
        "everturn_model_failures_total": {ALONE: meters.failures},
        "everturn_deliveries_total": meters.deliveries,
        "everturn_recovered_instances_total": {ALONE: meters.instances},
        "everturn_recovered_turns_total": meters.recovered,
        "everturn_loop_delay_seconds": {ALONE: meters.loop_delay},
    }


def of_store(meters: StoreMeters) -> dict[str, Family]:
    """Return the metrics of the store."""
    return {
        "everturn_store_commit_seconds": {ALONE: meters.commit},
        "everturn_store_group_operations": {ALONE: meters.group},
        "everturn_store_read_seconds": {ALONE: meters.read},
        "everturn_store_waiting_operations": {ALONE: meters.waiting},
    }


def of_backlog(found: OpenWork, now: float) -> dict[str, Family]:
    """Return the metrics of open work. Every state is present: an alert must not lose its series when nothing is open."""
    return {
        "everturn_turns_open": {(each,): found.turns.get(each, 0) for each in OPEN_TURNS},
        "everturn_inbox_messages": {(each,): found.inbox.get(each, 0) for each in OPEN_INBOX},
        "everturn_inbox_oldest_seconds": {ALONE: _age(found.inbox_since, now)},
        "everturn_outbox_replies": {(each,): found.outbox.get(each, 0) for each in OPEN_OUTBOX},
        "everturn_outbox_oldest_seconds": {ALONE: _age(found.outbox_since, now)},
    }


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)


def of_process() -> dict[str, Family]:
    """Return the metrics of the process, under the usual names."""
    families: dict[str, Family] = {
        "everturn_build_info": {(__version__, platform.python_version()): 1},
        "process_cpu_seconds_total": {ALONE: time.process_time()},
        "process_start_time_seconds": {ALONE: STARTED_AT},
    }
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        families["process_resident_memory_bytes"] = {ALONE: pages * os.sysconf("SC_PAGE_SIZE")}
        families["process_max_fds"] = {ALONE: resource.getrlimit(resource.RLIMIT_NOFILE)[0]}
        families["process_open_fds"] = {ALONE: sum(1 for _ in Path("/proc/self/fd").iterdir())}
    return families


def rendered(families: Mapping[str, Family], *, modern: bool) -> bytes:
    """Render all metrics, in the order of the table; `modern` is OpenMetrics 1.0, else Prometheus 0.0.4."""
    lines = [line for metric in METRICS for line in _lines(metric, families.get(metric.name), modern=modern)]
    return "\n".join([*lines, *(["# EOF"] if modern else []), ""]).encode()


def _lines(metric: Metric, family: Family | None, *, modern: bool) -> Iterator[str]:
    if family is None:
        return
    name = metric.name.removesuffix(TOTAL) if modern and metric.kind is MetricKind.COUNTER else metric.name
    yield f"# HELP {name} {_escaped(metric.text)}"
    yield f"# TYPE {name} {metric.kind}"
    for labels, value in sorted(family.items()):
        pairs = [f'{key}="{_escaped(text)}"' for key, text in zip(metric.labels, labels, strict=True)]
        if isinstance(value, Histogram):
            yield from _buckets(metric.name, pairs, value)
        else:
            yield f"{metric.name}{_braced(pairs)} {_number(value)}"


def _buckets(name: str, pairs: list[str], histogram: Histogram) -> Iterator[str]:
    """Render from one copy: a value added meanwhile must not make the sum of the buckets differ from the count."""
    counts, total, so_far = tuple(histogram.counts), histogram.total, 0
    for bound, count in zip((*histogram.bounds, float("inf")), counts, strict=True):
        so_far += count
        limit = f'le="{_number(bound)}"'
        yield f"{name}_bucket{_braced([*pairs, limit])} {so_far}"
    yield f"{name}_sum{_braced(pairs)} {_number(total)}"
    yield f"{name}_count{_braced(pairs)} {so_far}"


def _braced(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
