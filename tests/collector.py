"""A collector of traces: takes OTLP over HTTP as a real one does, and keeps the spans for a test to look at."""

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.waiting import WAIT_S


@dataclass(frozen=True)
class Got:
    """One span, in plain values."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    failed: bool
    about: dict[str, Any]
    links: list[str] = field(default_factory=list)


class Collector:
    """Listens on a free port. `text` is everything it was sent, to see what must not be there."""

    def __init__(self) -> None:
        self.spans: list[Got] = []
        self.headers: list[dict[str, str]] = []
        self.services: set[str] = set()
        self.sent = b""
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def until(self, true: Callable[[list[Got]], bool]) -> list[Got]:
        """Wait until this is true of the spans that came."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self.spans), WAIT_S), self.spans
            return list(self.spans)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert path == "/v1/traces"
        body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.headers.append(headers)
            self.sent += body
            for resource in request.resource_spans:
                self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
                self.spans += [_got(span) for scope in resource.scope_spans for span in scope.spans]
            self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                collector.take(self.path, headers, self.rfile.read(int(headers["content-length"])))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _got(span: Any) -> Got:
    about = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
    return Got(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == 2,
        about=about,
        links=[link.trace_id.hex() for link in span.links],
    )
