"""Exports spans with OpenTelemetry's own exporter: off the event loop, bounded, and never a reason to wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from urllib.parse import unquote

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from everturn import __version__
from everturn.telemetry.spans import Span, TraceIds, is_sampled

log = structlog.get_logger()
WAITING_SPANS = 4096  # more are dropped
BATCH = 512
EVERY_MS = 1000
EXPORT_S = 10.0
CLOSE_S = 2.0
END_THREAD = "everturn-traces-end"
PATH = "/v1/traces"
NANO = 1_000_000_000
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
SCOPE = InstrumentationScope("everturn", __version__)
OK, FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class OtelTracer:
    """Sends spans to a collector in the background."""

    def __init__(self, *, endpoint: str, service: str, headers: str = "", ratio: float = 1.0) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # ReportingExporter logs failures, once
        self._ids = TraceIds(service)
        self._ratio = ratio
        self._resource = Resource.create({"service.name": service, "service.version": __version__})
        address = endpoint if endpoint.endswith(PATH) else endpoint.rstrip("/") + PATH
        self._exporter = ReportingExporter(OTLPSpanExporter(address, headers=headers_of(headers), timeout=EXPORT_S))
        self._processor = BatchSpanProcessor(
            self._exporter, max_queue_size=WAITING_SPANS, schedule_delay_millis=EVERY_MS, max_export_batch_size=BATCH
        )

    def record(self, span: Span) -> None:
        """Queue a span for the exporter's thread."""
        trace_id = self._ids.trace(span.trace)
        if is_sampled(trace_id, self._ratio):
            self._processor.on_end(self._readable(span))

    async def close(self) -> None:
        """Flush for up to CLOSE_S; a collector that does not answer must not delay the exit."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with contextlib.suppress(RuntimeError):  # too late: the loop is closed
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, name=END_THREAD, daemon=True).start()
        try:
            await asyncio.wait_for(done.wait(), CLOSE_S)
        except TimeoutError:
            log.warning("traces not exported", error="the collector did not accept the last spans before shutdown")
            self._exporter.shutdown()  # else the exporter retries for another half a minute

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=self._context(span.trace, span.place),
            parent=None if span.parent is None else self._context(span.trace, span.parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            links=[Link(self._context(number, "message")) for number in span.links],
            status=FAILED if span.failed else OK,
            start_time=int(span.start * NANO),
            end_time=int(max(span.start, span.end) * NANO),
            instrumentation_scope=SCOPE,
        )

    def _context(self, number: int, place: str | None) -> SpanContext:
        return SpanContext(self._ids.trace(number), self._ids.span(number, place), is_remote=False, trace_flags=SAMPLED)


class ReportingExporter(SpanExporter):
    """Logs once when the collector stops accepting spans, and once when it accepts them again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch; spans that the collector does not accept are lost."""
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            log.warning("traces not exported", error="the collector at telemetry.endpoint does not accept spans")
        elif self._failing and not failing:
            log.info("traces exported again")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter; nothing is buffered here."""
        return self._exporter.force_flush(timeout_millis)


def headers_of(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`, as OpenTelemetry writes headers; values are percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
