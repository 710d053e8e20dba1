"""Counters and histograms of this process, and the table of all metrics. Counting is an addition, nothing more.

These metrics start at zero with every process, as Prometheus expects. What must be the same after a restart is read from
the store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

Labels = tuple[str, ...]

INSTANT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WORK = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
GROUPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class MetricKind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"  # only grows, and restarts at zero with the process
    GAUGE = "gauge"  # the value now
    HISTOGRAM = "histogram"  # how many values were at most each bound


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, what it means, and the names of its labels. A label has few values, all known in advance."""

    name: str
    kind: MetricKind
    text: str
    labels: Labels = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, text, labels)


METRICS: tuple[Metric, ...] = (
    _counter(
        "everturn_messages_total",
        "Messages received: accepted, duplicate, conflict (the id was used before with another text), full (the queue), too_long,"
        " denied (the sender may not use the agent), or unavailable (the store).",
        "platform",
        "outcome",
    ),
    _counter(
        "everturn_turns_total",
        "Attempts of turns that ended in this process: answered, failed, awaiting_approval, stopped (by a command or a reset),"
        " interrupted (resumed later), returned (requeued: nothing had begun) or suspended.",
        "outcome",
    ),
    _gauge("everturn_turns_running", "Turns running in this process."),
    _gauge("everturn_turns_open", "Turns that have not ended, by state; from the store.", "state"),
    _histogram(
        "everturn_answer_seconds",
        "From the acceptance of a turn's first message to the commit of its answer, restarts included.",
    ),
    _histogram("everturn_turn_seconds", "From the start of a turn to the commit of its answer, restarts included."),
    _histogram("everturn_step_seconds", "Duration of one call of a model or a tool.", "kind"),
    _counter("everturn_model_requests_total", "Requests to models, as committed with their steps."),
    _counter(
        "everturn_model_tokens_total",
        "Tokens of models: input, output, and cached (the part of input that the provider had cached).",
        "kind",
    ),
    _counter("everturn_model_cost_dollars_total", "Cost of models in dollars, where the price is known."),
    _counter("everturn_model_failures_total", "Model calls that failed or returned nothing usable."),
    _gauge("everturn_inbox_messages", "Messages and commands that have not ended, by state; from the store.", "state"),
    _gauge("everturn_inbox_oldest_seconds", "Age of the oldest queued message; from the store."),
    _gauge("everturn_outbox_replies", "Replies that have not ended, by state; from the store.", "state"),
    _gauge("everturn_outbox_oldest_seconds", "Age of the oldest undelivered reply; from the store."),
    _counter(
        "everturn_deliveries_total",
        "Attempts to deliver a reply: sent, retried, unknown (it may or may not have arrived) or dead (now a dead letter). On"
        " platforms that read events (api, web) an answer counts as sent when it is committed.",
        "platform",
        "outcome",
    ),
    _counter("everturn_recovered_instances_total", "Gateway processes that crashed, recovered by this process."),
    _counter(
        "everturn_recovered_turns_total",
        "Turns that such a crash cut off: count and spare (both resume), requeue (had not begun), suspend.",
        "verdict",
    ),
    _gauge("everturn_streams_open", "Open event streams."),
    _histogram("everturn_loop_delay_seconds", "How late the event loop woke up, sampled four times a second."),
    _histogram("everturn_store_commit_seconds", "Duration of a write transaction, up to its durable commit."),
    _histogram("everturn_store_group_operations", "Operations that shared one transaction."),
    _histogram("everturn_store_read_seconds", "Duration of a read, without the time it waited for a connection."),
    _gauge("everturn_store_waiting_operations", "Operations waiting for the writer, or for a connection."),
    _gauge("everturn_store_up", "1 if the store answered in time; else 0, and the metrics from the store are missing."),
    _gauge("everturn_build_info", "Always 1; the versions are in the labels.", "version", "python"),
    _counter("process_cpu_seconds_total", "User and system CPU time of the process."),
    _gauge("process_resident_memory_bytes", "Resident memory of the process."),
    _gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970."),
    _gauge("process_open_fds", "Open file descriptors."),
    _gauge("process_max_fds", "Maximum number of open file descriptors."),
)

# The values of the labels.
MESSAGES = ("accepted", "duplicate", "conflict", "full", "too_long", "unavailable")
TURNS = ("answered", "failed", "awaiting_approval", "stopped", "interrupted", "returned", "suspended")
DELIVERIES = ("sent", "retried", "unknown", "dead")
VERDICTS = ("count", "spare", "requeue", "suspend")


def _zeros(*values: Iterable[str]) -> Counter[Labels]:
    return Counter(dict.fromkeys(product(*values), 0))


class Histogram:
    """Counts values per bucket. One thread adds; any thread may read."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms of several threads; all have the same bounds."""
    together = list(histograms)
    whole = Histogram(together[0].bounds)
    for each in together:
        whole.counts = [mine + theirs for mine, theirs in zip(whole.counts, each.counts, strict=True)]
        whole.total += each.total
    return whole


@dataclass(frozen=True, slots=True)
class StoreMeters:
    """Histograms of a store, and how many operations wait for it."""

    commit: Histogram = field(default_factory=lambda: Histogram(INSTANT))
    group: Histogram = field(default_factory=lambda: Histogram(GROUPS))
    read: Histogram = field(default_factory=lambda: Histogram(INSTANT))
    waiting: int = 0


class Meters:
    """The metrics of one gateway, all counted on its event loop. Every series exists from the start, as zero: Prometheus
    then sees the first event as an increase.
    """

    def __init__(self, platforms: Iterable[str] = ()) -> None:
        names = sorted(platforms)
        self.messages = _zeros(names, MESSAGES)
        self.turns = _zeros(TURNS)
        self.deliveries = _zeros(names, DELIVERIES)
        self.recovered = _zeros(VERDICTS)
        self.instances = 0
        self.running = 0
        self.answer = Histogram(WORK)
        self.turn = Histogram(WORK)
        self.model = Histogram(WORK)
        self.tool = Histogram(WORK)
        self.loop_delay = Histogram(INSTANT)
        self.requests = self.failures = 0
        self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.cost = 0.0
