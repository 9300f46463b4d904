"""What the server counts and times, as Prometheus reads it at `/metrics`.

Theory of operation: a series is a list of numbers that is found by its labels in a dict and added to in the
event loop; that costs about a microsecond, and nothing is locked. What others know anyway (how many watch,
where the cache stands) is asked for only when somebody reads. `/metrics` is then written by the Prometheus
client from those numbers. Nothing is kept outside the instance: two servers in one process do not mix.

Labels never hold what a client made up. Resources, verbs and subresources that we do not know are `other`,
and names of objects, users and namespaces are no labels at all; so the number of series has a bound.

Rules for this file: a metric is a row of the table; names and labels are Kubernetes' own where it has them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from dray.api.kinds import KINDS
from dray.server.call import Call


class Sort(Enum):
    """How a metric moves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric: its name, what it counts, and by which labels."""

    name: str
    sort: Sort
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_REQUEST = ("verb", "group", "version", "resource", "subresource")
_WAIT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

REQUESTS = "apiserver_request_total"
DURATIONS = "apiserver_request_duration_seconds"
INFLIGHT = "apiserver_current_inflight_requests"
QUEUED = "apiserver_current_inqueue_requests"
LONG_RUNNING = "apiserver_longrunning_requests"
REFUSED = "dray_requests_refused_total"
CUT = "dray_watch_cut_total"
BROKEN = "dray_request_faults_total"
COMMITS = "dray_store_commits_total"
COMMIT_SECONDS = "dray_store_commit_duration_seconds"
CONFLICTS = "dray_store_conflicts_total"
CACHE_REVISION = "dray_cache_revision"
OBJECTS = "apiserver_storage_objects"
DIGESTS = "dray_cache_comparisons_total"
LEDGER_CONFLICTS = "dray_ledger_conflicts_total"
QUOTA_DENIED = "dray_quota_denied_total"
AUDIT_LINES = "dray_audit_lines_total"
AUDIT_DROPPED = "dray_audit_lines_dropped_total"
AUDIT_STUCK = "dray_audit_stuck"
CONNECTIONS = "dray_open_connections"

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        row.name: row
        for row in (
            Measure(REQUESTS, Sort.COUNTER, "Requests answered", (*_REQUEST, "code")),
            Measure(
                DURATIONS,
                Sort.HISTOGRAM,
                "Time from the first byte of a request to its answer; watches are not in it",
                _REQUEST,
                _WAIT,
            ),
            Measure(INFLIGHT, Sort.GAUGE, "Requests being carried out", ("request_kind",)),
            Measure(QUEUED, Sort.GAUGE, "Requests that wait for a place", ("request_kind",)),
            Measure(LONG_RUNNING, Sort.GAUGE, "Open watches", ("group", "version", "resource")),
            Measure(CONNECTIONS, Sort.GAUGE, "Open connections"),
            Measure(REFUSED, Sort.COUNTER, "Requests beyond a limit, by the limit", ("limit",)),
            Measure(CUT, Sort.COUNTER, "Watches that were cut off because nobody read them"),
            Measure(BROKEN, Sort.COUNTER, "Requests that ended in a fault of the server itself"),
            Measure(COMMITS, Sort.COUNTER, "Transactions that the store took"),
            Measure(
                COMMIT_SECONDS, Sort.HISTOGRAM, "Time until the store had a transaction durable", (), _WAIT
            ),
            Measure(CONFLICTS, Sort.COUNTER, "Transactions that met a newer object and were judged again"),
            Measure(CACHE_REVISION, Sort.GAUGE, "Revision up to which the cache has come"),
            Measure(OBJECTS, Sort.GAUGE, "Objects kept", ("resource",)),
            Measure(
                DIGESTS, Sort.COUNTER, "Comparisons of the cache with the store, by outcome", ("outcome",)
            ),
            Measure(
                LEDGER_CONFLICTS, Sort.COUNTER, "Allocations that the device ledger refused", ("reason",)
            ),
            Measure(QUOTA_DENIED, Sort.COUNTER, "Objects that a quota refused", ("resource",)),
            Measure(AUDIT_LINES, Sort.COUNTER, "Lines of the audit log"),
            Measure(AUDIT_DROPPED, Sort.COUNTER, "Lines of the audit log that found no room"),
            Measure(AUDIT_STUCK, Sort.GAUGE, "1 while the audit log cannot be written"),
        )
    }
)
"""Every metric of our own; those of the process and its garbage collector come from the Prometheus client."""

OTHER = "other"
_VERBS = MappingProxyType(
    {
        "get": "GET",
        "list": "LIST",
        "watch": "WATCH",
        "create": "POST",
        "update": "PUT",
        "patch": "PATCH",
        "delete": "DELETE",
        "deletecollection": "DELETECOLLECTION",
        "post": "POST",
        "put": "PUT",
        "head": "HEAD",
    }
)
_SUBRESOURCES = frozenset({"", *(sub for kind in KINDS for sub in kind.subresources)})
_RESOURCES = frozenset(
    {
        *((kind.group, version, kind.plural) for kind in KINDS for version in kind.versions),
        ("authentication.k8s.io", "v1", "tokenreviews"),
        ("authentication.k8s.io", "v1", "selfsubjectreviews"),
        ("authorization.k8s.io", "v1", "subjectaccessreviews"),
        ("authorization.k8s.io", "v1", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews"),
        ("", "", ""),
    }
)

Labels = tuple[str, ...]
Ask = Callable[[], Iterable[tuple[Labels, float]]]
"""Gives the values of a gauge or counter, with their labels, when somebody reads."""

MOST_SERIES = 10_000
"""Labels beyond this many of one metric are counted together; a bug, and no reason to fall over."""


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self._series: dict[str, dict[Labels, list[float]]] = {name: {} for name in MEASURES}
        self._asked: dict[str, list[Ask]] = {}
        self._known: dict[tuple[str, str, str, str, str, int], tuple[list[float], list[float] | None]] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(self)

    def request(self, call: Call, code: int, seconds: float) -> None:
        """Count a request that was answered."""
        key = (call.verb, call.group, call.version, call.plural, call.subresource, code)
        found = self._known.get(key)
        if found is None:
            found = self._request_series(call, code)
            if _is_known(call) and call.verb in _VERBS:  # what clients make up is not remembered
                self._known[key] = found
        found[0][0] += 1
        if found[1] is not None:
            _observe(found[1], _WAIT, seconds)

    def _request_series(self, call: Call, code: int) -> tuple[list[float], list[float] | None]:
        labels = _labels(call)
        count = self._at(REQUESTS, (*labels, str(code)))
        return count, None if call.verb == "watch" else self._at(DURATIONS, labels)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        self._at(name, labels)[0] += by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        _observe(self._at(name, labels), MEASURES[name].buckets, seconds)

    def ask(self, name: str, values: Ask) -> None:
        """Ask for the values of a gauge or counter whenever somebody reads the metrics."""
        assert name in MEASURES, name
        self._asked.setdefault(name, []).append(values)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What the Prometheus client asks a registered collector for."""
        for row in MEASURES.values():
            series = {labels: list(values) for labels, values in self._series[row.name].items()}
            for ask in self._asked.get(row.name, ()):
                for labels, value in ask():
                    series.setdefault(labels, [0.0])[0] += value
            yield _family(row, series)

    def _at(self, name: str, labels: Labels) -> list[float]:
        series = self._series[name]
        values = series.get(labels)
        if values is None:
            row = MEASURES[name]
            if len(labels) != len(row.labels):
                raise ValueError(f"`{name}` has the labels {row.labels}, not {labels}")
            if len(series) >= MOST_SERIES:
                labels = (OTHER,) * len(row.labels)
            size = len(row.buckets) + 2 if row.sort is Sort.HISTOGRAM else 1
            values = series.setdefault(labels, [0.0] * size)
        return values


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _is_known(call: Call) -> bool:
    return (call.group, call.version, call.plural) in _RESOURCES and call.subresource in _SUBRESOURCES


def _labels(call: Call) -> Labels:
    verb = _VERBS.get(call.verb, OTHER)
    if _is_known(call):
        return verb, call.group, call.version, call.plural, call.subresource
    return verb, OTHER, OTHER, OTHER, OTHER


def _observe(values: list[float], buckets: tuple[float, ...], seconds: float) -> None:
    """Values are the counts of the buckets, of everything beyond them, and last the sum."""
    values[bisect_left(buckets, seconds)] += 1
    values[-1] += seconds


def _family(row: Measure, series: Mapping[Labels, list[float]]) -> Metric:
    if row.sort is Sort.HISTOGRAM:
        histogram = HistogramMetricFamily(row.name, row.about, labels=row.labels)
        for labels, values in series.items():
            histogram.add_metric(labels, _cumulated(row.buckets, values), values[-1])
        return histogram
    shape = CounterMetricFamily if row.sort is Sort.COUNTER else GaugeMetricFamily
    family = shape(row.name, row.about, labels=row.labels)
    for labels, values in series.items() if series or row.labels else [((), [0.0])]:
        family.add_metric(labels, values[0])
    return family


def _cumulated(buckets: tuple[float, ...], values: list[float]) -> list[tuple[str, float]]:
    total, rows = 0.0, []
    for bound, count in zip(_bounds(buckets), values, strict=False):
        total += count
        rows.append((bound, total))
    return rows


@cache
def _bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in buckets), "+Inf")
