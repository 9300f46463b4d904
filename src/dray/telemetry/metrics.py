"""Metrics in the format of Prometheus.

Theory of operation: a series is a list of numbers that is found by its labels in a dict and updated in the
event loop; that costs about a microsecond and takes no lock. Values that exist elsewhere anyway (the length
of a queue, the revision of a cache) are collected by callbacks when somebody scrapes. The Prometheus client
then writes the text from those numbers. Nothing is stored outside the instance: two services in one process
do not mix.

Each service brings the table of its metrics; it defines the labels and keeps values that clients choose out
of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)


class MetricType(Enum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric: its name, its help text, and its labels."""

    name: str
    type: MetricType
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


MetricTable = Mapping[str, MetricDefinition]


def build_metric_table(*rows: MetricDefinition) -> MetricTable:
    """Index metric definitions by name."""
    return MappingProxyType({row.name: row for row in rows})


LabelValues = tuple[str, ...]
CollectValues = Callable[[], Iterable[tuple[LabelValues, float]]]
"""Returns the values of a gauge or counter, with their labels, when somebody scrapes."""

OTHER_LABEL = "other"
"""Value of a label for everything that has no value of its own."""
MAX_SERIES = 10_000
"""Series of one metric beyond this number are counted together: a bug, but no reason to fail."""


class MetricsRegistry:
    """The metrics of one service, by its table of definitions, and those of the process."""

    def __init__(self, definitions: MetricTable) -> None:
        self._definitions = definitions
        self._series: dict[str, dict[LabelValues, list[float]]] = {name: {} for name in definitions}
        self._callbacks: dict[str, list[CollectValues]] = {}
        self._refreshes: list[Callable[[], Awaitable[None]]] = []
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(self)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter, or to a gauge."""
        self.get_series(name, labels)[0] += by

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self.get_series(name, labels)[0] = value

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        add_observation(self.get_series(name, labels), self._definitions[name].buckets, seconds)

    def add_callback(self, name: str, collect_values: CollectValues) -> None:
        """Collect the values of a gauge or counter through a callback whenever somebody scrapes."""
        assert name in self._definitions, name
        self._callbacks.setdefault(name, []).append(collect_values)

    def join(self, other: MetricsRegistry) -> None:
        """Include the metrics of another service of this process, and those of the process once."""
        self.registry.register(other)

    def add_refresh(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Have values of another process fetched before they are collected."""
        self._refreshes.append(refresh)

    async def refresh(self) -> None:
        """Fetch the values of other processes."""
        for refresh in self._refreshes:
            await refresh()

    def render(self) -> bytes:
        """Render all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families; the Prometheus client calls this on a registered collector."""
        for row in self._definitions.values():
            series = {labels: list(values) for labels, values in self._series[row.name].items()}
            for ask in self._callbacks.get(row.name, ()):
                for labels, value in ask():
                    series.setdefault(labels, [0.0])[0] += value
            yield _build_family(row, series)

    def get_series(self, name: str, labels: LabelValues) -> list[float]:
        """Return the numbers of one series; callers that update it often keep them."""
        series = self._series[name]
        values = series.get(labels)
        if values is None:
            row = self._definitions[name]
            if len(labels) != len(row.labels):
                raise ValueError(f"`{name}` has the labels {row.labels}, not {labels}")
            if len(series) >= MAX_SERIES:
                labels = (OTHER_LABEL,) * len(row.labels)
            size = len(row.buckets) + 2 if row.type is MetricType.HISTOGRAM else 1
            values = series.setdefault(labels, [0.0] * size)
        return values


def add_observation(values: list[float], buckets: tuple[float, ...], seconds: float) -> None:
    """Add to the series of a histogram: the counts of its buckets, the overflow bucket, and last the sum."""
    values[bisect_left(buckets, seconds)] += 1
    values[-1] += seconds


def _build_family(row: MetricDefinition, series: Mapping[LabelValues, list[float]]) -> Metric:
    if row.type is MetricType.HISTOGRAM:
        histogram = HistogramMetricFamily(row.name, row.about, labels=row.labels)
        for labels, values in series.items():
            histogram.add_metric(labels, _accumulate_buckets(row.buckets, values), values[-1])
        return histogram
    shape = CounterMetricFamily if row.type is MetricType.COUNTER else GaugeMetricFamily
    family = shape(row.name, row.about, labels=row.labels)
    for labels, values in series.items() if series or row.labels else [((), [0.0])]:
        family.add_metric(labels, values[0])
    return family


def _accumulate_buckets(buckets: tuple[float, ...], values: list[float]) -> list[tuple[str, float]]:
    total, rows = 0.0, []
    for bound, count in zip(_format_bounds(buckets), values, strict=False):
        total += count
        rows.append((bound, total))
    return rows


@lru_cache(maxsize=64)
def _format_bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in buckets), "+Inf")
