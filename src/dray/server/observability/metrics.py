"""The metrics of the server, which Prometheus reads at `/metrics`, as a table.

Labels never contain text that a client can choose. Unknown resources, verbs and subresources are `other`, and
names of objects, users and namespaces are no labels at all; so the number of series is bounded.

Rules for this file: a metric is a row of the table; names and labels are those of Kubernetes where it has
them.
"""

from __future__ import annotations

from types import MappingProxyType

from dray.api.kinds import KINDS
from dray.server.http.requests import REVIEW_KINDS, TRANSACTIONS, ApiCall
from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import OTHER_LABEL, LabelValues, MetricDefinition, MetricType, add_observation

_REQUEST = ("verb", "group", "version", "resource", "subresource")
_DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

REQUESTS = "apiserver_request_total"
DURATIONS = "apiserver_request_duration_seconds"
INFLIGHT = "apiserver_current_inflight_requests"
QUEUED = "apiserver_current_inqueue_requests"
LONG_RUNNING = "apiserver_longrunning_requests"
REFUSED = "dray_requests_refused_total"
STALLED_WATCHES = "dray_watch_cut_total"
REQUEST_FAULTS = "dray_request_faults_total"
COMMITS = "dray_store_commits_total"
TRANSACTION_REQUESTS = "dray_transaction_requests_total"
COMMIT_SECONDS = "dray_store_commit_duration_seconds"
CONFLICTS = "dray_store_conflicts_total"
CACHE_REVISION = "dray_cache_revision"
OBJECTS = "apiserver_storage_objects"
CACHE_COMPARISONS = "dray_cache_comparisons_total"
LEDGER_CONFLICTS = "dray_ledger_conflicts_total"
LEDGER_DIFFERENCES = "dray_ledger_differences"
CERTIFICATE_EXPIRY = "dray_certificate_expiry_timestamp_seconds"
QUOTA_DENIED = "dray_quota_denied_total"
AUDIT_LINES = "dray_audit_lines_total"
AUDIT_DROPPED = "dray_audit_lines_dropped_total"
AUDIT_STUCK = "dray_audit_stuck"
CONNECTIONS = "dray_open_connections"
WEBHOOKS = "dray_webhook_requests_total"
WEBHOOK_SECONDS = "dray_webhook_duration_seconds"

MEASURES = numbers.build_metric_table(
    MetricDefinition(REQUESTS, MetricType.COUNTER, "Requests answered", (*_REQUEST, "code")),
    MetricDefinition(
        DURATIONS,
        MetricType.HISTOGRAM,
        "Time from the first byte of a request to its answer; watches are not in it",
        _REQUEST,
        _DURATION_BUCKETS,
    ),
    MetricDefinition(INFLIGHT, MetricType.GAUGE, "Requests being carried out", ("request_kind",)),
    MetricDefinition(QUEUED, MetricType.GAUGE, "Queued requests", ("request_kind",)),
    MetricDefinition(LONG_RUNNING, MetricType.GAUGE, "Open watches", ("group", "version", "resource")),
    MetricDefinition(CONNECTIONS, MetricType.GAUGE, "Open connections"),
    MetricDefinition(REFUSED, MetricType.COUNTER, "Requests beyond a limit, by the limit", ("limit",)),
    MetricDefinition(
        STALLED_WATCHES, MetricType.COUNTER, "Watches that were ended because their client did not read them"
    ),
    MetricDefinition(
        REQUEST_FAULTS, MetricType.COUNTER, "Requests that ended in a fault of the server itself"
    ),
    MetricDefinition(
        TRANSACTION_REQUESTS,
        MetricType.COUNTER,
        "Requests that came as part of a transaction, each of them counted among the requests, too",
        ("code",),
    ),
    MetricDefinition(COMMITS, MetricType.COUNTER, "Transactions that the store committed"),
    MetricDefinition(
        COMMIT_SECONDS,
        MetricType.HISTOGRAM,
        "Time until a transaction was durable",
        (),
        _DURATION_BUCKETS,
    ),
    MetricDefinition(
        CONFLICTS, MetricType.COUNTER, "Transactions that found a newer object and were decided again"
    ),
    MetricDefinition(CACHE_REVISION, MetricType.GAUGE, "Revision that the cache has reached"),
    MetricDefinition(OBJECTS, MetricType.GAUGE, "Stored objects", ("resource",)),
    MetricDefinition(
        CACHE_COMPARISONS,
        MetricType.COUNTER,
        "Comparisons of the cache with the store, by outcome",
        ("outcome",),
    ),
    MetricDefinition(
        LEDGER_DIFFERENCES,
        MetricType.GAUGE,
        "Rows of the device ledger that differed from the claims when they were last compared",
    ),
    MetricDefinition(
        CERTIFICATE_EXPIRY,
        MetricType.GAUGE,
        "When a certificate of the server expires, in seconds since 1970: `ca`, `serving`, `admin` (its "
        "kubeconfig), `log-client` (as which it calls agents)",
        ("certificate",),
    ),
    MetricDefinition(
        LEDGER_CONFLICTS, MetricType.COUNTER, "Allocations that the device ledger refused", ("reason",)
    ),
    MetricDefinition(QUOTA_DENIED, MetricType.COUNTER, "Objects that a quota refused", ("resource",)),
    MetricDefinition(AUDIT_LINES, MetricType.COUNTER, "Lines of the audit log"),
    MetricDefinition(AUDIT_DROPPED, MetricType.COUNTER, "Lines of the audit log that were dropped"),
    MetricDefinition(
        WEBHOOKS,
        MetricType.COUNTER,
        "Calls of admission webhooks; a call without an answer is `failed`, or `ignored` by its policy",
        ("webhook", "type", "operation", "outcome"),
    ),
    MetricDefinition(
        WEBHOOK_SECONDS,
        MetricType.HISTOGRAM,
        "Time until an admission webhook answered or timed out",
        ("webhook", "type", "outcome"),
        _DURATION_BUCKETS,
    ),
    MetricDefinition(AUDIT_STUCK, MetricType.GAUGE, "1 while the audit log cannot be written"),
)
"""The metrics of the server itself; those of the process come from the Prometheus client."""

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
        *((group, "v1", plural) for group, plural in REVIEW_KINDS),
        TRANSACTIONS,
        ("", "", ""),
    }
)


class ApiServerMetrics(numbers.MetricsRegistry):
    """The metrics of one server."""

    def __init__(self) -> None:
        super().__init__(MEASURES)
        self._series_by_request: dict[
            tuple[str, str, str, str, str, int], tuple[list[float], list[float] | None]
        ] = {}

    def record_request(self, call: ApiCall, code: int, seconds: float) -> None:
        """Count an answered request."""
        key = (call.verb, call.group, call.version, call.plural, call.subresource, code)
        series = self._series_by_request.get(key)
        if series is None:
            series = self._find_request_series(call, code)
            if _is_known(call) and call.verb in _VERBS:  # clients must not be able to fill the cache
                self._series_by_request[key] = series
        count, durations = series
        count[0] += 1
        if durations is not None:
            add_observation(durations, _DURATION_BUCKETS, seconds)

    def record_part(self, call: ApiCall, code: int, seconds: float) -> None:
        """Count an answered request of a transaction."""
        self.record_request(call, code, seconds)
        self.get_series(TRANSACTION_REQUESTS, (str(code),))[0] += 1

    def _find_request_series(self, call: ApiCall, code: int) -> tuple[list[float], list[float] | None]:
        labels = _build_labels(call)
        count = self.get_series(REQUESTS, (*labels, str(code)))
        return count, None if call.is_long_running else self.get_series(DURATIONS, labels)


def _is_known(call: ApiCall) -> bool:
    return (call.group, call.version, call.plural) in _RESOURCES and call.subresource in _SUBRESOURCES


def _build_labels(call: ApiCall) -> LabelValues:
    verb = _VERBS.get(call.verb, OTHER_LABEL)
    if _is_known(call):
        return verb, call.group, call.version, call.plural, call.subresource
    return verb, OTHER_LABEL, OTHER_LABEL, OTHER_LABEL, OTHER_LABEL
