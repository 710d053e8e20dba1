"""What a process counts while it works, and the one table of what that means. Counting is an addition, nothing more.

These figures begin at zero with every process, as Prometheus expects. What must be the same after a restart is read from
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


class Kind(StrEnum):
    """What may happen to a figure."""

    COUNTER = "counter"  # grows, and begins again with the process
    GAUGE = "gauge"  # is what it is now
    HISTOGRAM = "histogram"  # how many were at most so large


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: its name, what it means, and the names of its labels. A label has few values, all known beforehand."""

    name: str
    kind: Kind
    text: str
    labels: Labels = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels)


METRICS: tuple[Metric, ...] = (
    _counter(
        "everturn_messages_total",
        "Messages at the door: accepted, duplicate, conflict (the id had other words), full (the queue), too_long,"
        " denied (who wrote it may not speak), or unavailable (the store).",
        "platform",
        "outcome",
    ),
    _counter(
        "everturn_turns_total",
        "Attempts of turns that ended here: answered, failed, waiting (for an approval), stopped (by a command or a reset),"
        " interrupted (goes on later), returned (nothing had begun) or suspended.",
        "outcome",
    ),
    _gauge("everturn_turns_running", "Turns that run in this process."),
    _gauge("everturn_turns_open", "Turns that have not ended, by state; from the store.", "state"),
    _histogram(
        "everturn_answer_seconds",
        "From the acceptance of a turn's first message to the commit of its answer, restarts included.",
    ),
    _histogram("everturn_turn_seconds", "From the beginning of a turn to the commit of its answer, restarts included."),
    _histogram("everturn_step_seconds", "How long one call of a model or a tool took.", "kind"),
    _counter("everturn_model_requests_total", "Requests to models, as committed with their steps."),
    _counter(
        "everturn_model_tokens_total",
        "Tokens of models: input, output, and cached (the part of input that the provider had cached).",
        "kind",
    ),
    _counter("everturn_model_cost_dollars_total", "What models cost, where the price is known."),
    _counter("everturn_model_failures_total", "Model calls that gave nothing that could be used."),
    _gauge("everturn_inbox_messages", "Messages and commands that have not ended, by state; from the store.", "state"),
    _gauge("everturn_inbox_oldest_seconds", "The age of the oldest message that waits for its turn; from the store."),
    _gauge("everturn_outbox_replies", "Replies that have not ended, by state; from the store.", "state"),
    _gauge("everturn_outbox_oldest_seconds", "The age of the oldest reply that is not delivered; from the store."),
    _counter(
        "everturn_deliveries_total",
        "Tries to deliver a reply: sent, retried, doubtful (nobody knows whether it arrived) or dead (given up). Where people"
        " read events (api, web) an answer is sent when it is committed.",
        "platform",
        "outcome",
    ),
    _counter("everturn_recovered_lives_total", "Lives of gateways that ended without a word, and were put right here."),
    _counter(
        "everturn_recovered_turns_total",
        "Turns that such an end cut off: count and spare (both go on), requeue (had not begun), suspend.",
        "verdict",
    ),
    _gauge("everturn_streams_open", "Open event streams."),
    _histogram("everturn_loop_delay_seconds", "How late the event loop woke up, sampled four times a second."),
    _histogram("everturn_store_commit_seconds", "A transaction that writes, from its beginning to its durable commit."),
    _histogram("everturn_store_group_operations", "How many operations shared a transaction."),
    _histogram("everturn_store_read_seconds", "A read, without the time it waited for its turn."),
    _gauge("everturn_store_waiting_operations", "Operations that wait for the writer, or for a connection."),
    _gauge("everturn_store_up", "1 when the store answered this request in time, else 0 and its figures are missing."),
    _gauge("everturn_build_info", "Always 1; what runs here.", "version", "python"),
    _counter("process_cpu_seconds_total", "User and system time of the process."),
    _gauge("process_resident_memory_bytes", "Memory of the process."),
    _gauge("process_start_time_seconds", "When the process started, in seconds since 1970."),
    _gauge("process_open_fds", "Open file descriptors."),
    _gauge("process_max_fds", "The most file descriptors the process may have."),
)

# The values of the labels.
MESSAGES = ("accepted", "duplicate", "conflict", "full", "too_long", "unavailable")
TURNS = ("answered", "failed", "waiting", "stopped", "interrupted", "returned", "suspended")
DELIVERIES = ("sent", "retried", "doubtful", "dead")
VERDICTS = ("count", "spare", "requeue", "suspend")


def _zeros(*values: Iterable[str]) -> Counter[Labels]:
    return Counter(dict.fromkeys(product(*values), 0))


class Histogram:
    """How many values were at most as large as each bound. One thread adds; anybody may look."""

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
        """How many there were."""
        return sum(self.counts)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of what several threads counted; they have the same bounds."""
    together = list(histograms)
    whole = Histogram(together[0].bounds)
    for each in together:
        whole.counts = [mine + theirs for mine, theirs in zip(whole.counts, each.counts, strict=True)]
        whole.total += each.total
    return whole


@dataclass(frozen=True, slots=True)
class StoreMeters:
    """How a store does."""

    commit: Histogram = field(default_factory=lambda: Histogram(INSTANT))
    group: Histogram = field(default_factory=lambda: Histogram(GROUPS))
    read: Histogram = field(default_factory=lambda: Histogram(INSTANT))
    waiting: int = 0


class Meters:
    """The figures of one gateway, all added to on its event loop. What can be counted is there from the start, as zero:
    the first event is then seen to be one more.
    """

    def __init__(self, platforms: Iterable[str] = ()) -> None:
        names = sorted(platforms)
        self.messages = _zeros(names, MESSAGES)
        self.turns = _zeros(TURNS)
        self.deliveries = _zeros(names, DELIVERIES)
        self.recovered = _zeros(VERDICTS)
        self.lives = 0
        self.running = 0
        self.answer = Histogram(WORK)
        self.turn = Histogram(WORK)
        self.model = Histogram(WORK)
        self.tool = Histogram(WORK)
        self.loop_delay = Histogram(INSTANT)
        self.requests = self.failures = 0
        self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.cost = 0.0
