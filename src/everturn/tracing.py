"""Spans: what happened to a message, from when to when. Their ids come from durable numbers, so that every life of the gateway
finds the same trace without anything being stored for it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

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
    """Takes spans away. It never waits, never fails, and drops what it cannot keep."""

    def record(self, span: Span) -> None:
        """Something has happened."""
        ...

    async def close(self) -> None:
        """Hand over what is left, within a moment."""
        ...


@dataclass(frozen=True, slots=True)
class TraceIds:
    """Which trace a number has. The service's name is part of it: the numbers of two gateways may be the same."""

    service: str

    def trace(self, number: int) -> int:
        """128 bits, the same in every life."""
        return self._bits(f"{number}", 16)

    def span(self, number: int, place: str | None) -> int:
        """64 bits: the same in every life for a place, else new."""
        return secrets.randbits(64) or 1 if place is None else self._bits(f"{number} {place}", 8)

    def _bits(self, text: str, size: int) -> int:
        digest = hashlib.blake2b(f"{self.service} {text}".encode(), digest_size=size).digest()
        return int.from_bytes(digest) or 1  # zero is no id


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Whether this trace is among those that are kept; the same for all of its spans, in every life."""
    return (trace_id & 0xFFFF_FFFF_FFFF_FFFF) < ratio * 2**64
