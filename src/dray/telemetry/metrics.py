"""What a process counts and times, as Prometheus reads it.

Theory of operation: a series is a list of numbers that is found by its labels in a dict and added to in the
event loop; that costs about a microsecond, and nothing is locked. What others know anyway (how many wait,
where a cache stands) is asked for only when somebody reads. The text is then written by the Prometheus
client from those numbers. Nothing is kept outside the instance: two services in one process do not mix.

Rules for this file: which metrics there are is a table that a service brings; what their labels mean is its
business, and so is keeping what a client made up out of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """How a metric moves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric: its name, what it counts, and by which labels."""

    name: str
    type: MetricType
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


MetricTable = Mapping[str, MetricDefinition]


def build_metric_table(*rows: MetricDefinition) -> MetricTable:
    """Measures by their names."""
    return MappingProxyType({row.name: row for row in rows})


LabelValues = tuple[str, ...]
CollectValues = Callable[[], Iterable[tuple[LabelValues, float]]]
"""Gives the values of a gauge or counter, with their labels, when somebody reads."""

OTHER_LABEL = "other"
"""What a label says that has no word of its own."""
MAX_SERIES = 10_000
"""Labels beyond this many of one metric are counted together; a bug, and no reason to fall over."""


class MetricsRegistry:
    """The numbers of one service, by its table of measures; those of the process come with them."""

    def __init__(self, definitions: MetricTable) -> None:
        self._definitions = definitions
        self._series: dict[str, dict[LabelValues, list[float]]] = {name: {} for name in definitions}
        self._callbacks: dict[str, list[CollectValues]] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(self)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter, or to a gauge that goes up and down."""
        self.get_series(name, labels)[0] += by

    def set(self, name: str, value: float, *labels: str) -> None:
        """Give a gauge its value."""
        self.get_series(name, labels)[0] = value

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        add_observation(self.get_series(name, labels), self._definitions[name].buckets, seconds)

    def add_callback(self, name: str, collect_values: CollectValues) -> None:
        """Ask for the values of a gauge or counter whenever somebody reads the metrics."""
        assert name in self._definitions, name
        self._callbacks.setdefault(name, []).append(collect_values)

    def join(self, other: MetricsRegistry) -> None:
        """Tell the numbers of another service of this process too, and those of the process once."""
        self.registry.register(other)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What the Prometheus client asks a registered collector for."""
        for row in self._definitions.values():
            series = {labels: list(values) for labels, values in self._series[row.name].items()}
            for ask in self._callbacks.get(row.name, ()):
                for labels, value in ask():
                    series.setdefault(labels, [0.0])[0] += value
            yield _build_family(row, series)

    def get_series(self, name: str, labels: LabelValues) -> list[float]:
        """The numbers of one series, to be kept by whoever adds to it often."""
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
    """Add to the series of a histogram: the counts of its buckets, of everything beyond, and last the sum."""
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
