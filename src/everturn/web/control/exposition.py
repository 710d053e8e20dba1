"""Renders metrics as text: the format of Prometheus, or OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from everturn.telemetry.meters import METRICS, Histogram, Labels, Metric, MetricKind

Value = float | Histogram
Family = Mapping[Labels, Value]
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TOTAL = "_total"


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
