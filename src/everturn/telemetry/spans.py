"""Spans of a message's trace, and the tracer that exports them. OpenTelemetry is loaded only if the settings name a collector.

The ids of spans are derived from durable numbers, so that every process of the gateway computes the same trace id, and nothing
is stored for it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from everturn.errors import ConfigError
from everturn.settings import TelemetryConfig

Attributes = Mapping[str, str | int | float | bool]
WHOLE = "message"  # the place of a trace's first span


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the trace of a turn, or of a command. `place` names a span that others refer to; the rest need no name."""

    trace: int  # the number of the turn or the command
    name: str
    start: float
    end: float
    place: str | None = None
    parent: str | None = WHOLE
    attributes: Attributes = field(default_factory=dict)
    failed: bool = False
    links: tuple[int, ...] = ()  # the numbers of other traces


class Tracer(Protocol):
    """Exports spans. It never waits, never fails, and drops what it cannot buffer."""

    def record(self, span: Span) -> None:
        """Export a finished span."""
        ...

    async def close(self) -> None:
        """Flush what is buffered, for a short time."""
        ...


@dataclass(frozen=True, slots=True)
class TraceIds:
    """Derives trace and span ids from numbers and the service's name: two gateways may use the same numbers."""

    service: str

    def trace(self, number: int) -> int:
        """Return the trace id, 128 bits; the same in every process."""
        return self._bits(f"{number}", 16)

    def span(self, number: int, place: str | None) -> int:
        """Return the span id, 64 bits: the same in every process for a place, else random."""
        return secrets.randbits(64) or 1 if place is None else self._bits(f"{number} {place}", 8)

    def _bits(self, text: str, size: int) -> int:
        digest = hashlib.blake2b(f"{self.service} {text}".encode(), digest_size=size).digest()
        return int.from_bytes(digest) or 1  # zero is no id


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Whether this trace is sampled; the same for all of its spans, in every process."""
    return (trace_id & 0xFFFF_FFFF_FFFF_FFFF) < ratio * 2**64


def open_tracer(config: TelemetryConfig, env: Mapping[str, str]) -> Tracer | None:
    """Return the tracer; None where no collector is set, or no message is sampled. Raises ConfigError with what is missing."""
    if not config.endpoint or not config.sample_ratio:
        return None
    if config.headers_env and config.headers_env not in env:
        raise ConfigError(f"telemetry.headers_env names the variable {config.headers_env}, which is not set")
    try:
        from everturn.telemetry.otel import OtelTracer  # noqa: PLC0415  its library is optional
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "telemetry.endpoint names a collector, but the library for it is missing: pip install everturn[otel]"
        ) from error
    return OtelTracer(
        endpoint=config.endpoint,
        service=config.service_name,
        headers=env.get(config.headers_env, ""),
        ratio=config.sample_ratio,
    )
