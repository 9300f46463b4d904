"""What the server counts and times, as Prometheus reads it at `/metrics`.

Labels never hold what a client made up. Resources, verbs and subresources that we do not know are `other`,
and names of objects, users and namespaces are no labels at all; so the number of series has a bound.

Rules for this file: a metric is a row of the table; names and labels are Kubernetes' own where it has them.
"""

from __future__ import annotations

from types import MappingProxyType

from dray.api.kinds import KINDS
from dray.server.http.requests import Call
from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import OTHER, Labels, Measure, Sort, add

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
WEBHOOKS = "dray_webhook_requests_total"
WEBHOOK_SECONDS = "dray_webhook_duration_seconds"

MEASURES = numbers.table(
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
    Measure(COMMIT_SECONDS, Sort.HISTOGRAM, "Time until the store had a transaction durable", (), _WAIT),
    Measure(CONFLICTS, Sort.COUNTER, "Transactions that met a newer object and were judged again"),
    Measure(CACHE_REVISION, Sort.GAUGE, "Revision up to which the cache has come"),
    Measure(OBJECTS, Sort.GAUGE, "Objects kept", ("resource",)),
    Measure(DIGESTS, Sort.COUNTER, "Comparisons of the cache with the store, by outcome", ("outcome",)),
    Measure(LEDGER_CONFLICTS, Sort.COUNTER, "Allocations that the device ledger refused", ("reason",)),
    Measure(QUOTA_DENIED, Sort.COUNTER, "Objects that a quota refused", ("resource",)),
    Measure(AUDIT_LINES, Sort.COUNTER, "Lines of the audit log"),
    Measure(AUDIT_DROPPED, Sort.COUNTER, "Lines of the audit log that found no room"),
    Measure(
        WEBHOOKS,
        Sort.COUNTER,
        "Questions to admission webhooks; without an answer a request `failed`, or it was `ignored`",
        ("webhook", "type", "operation", "outcome"),
    ),
    Measure(
        WEBHOOK_SECONDS,
        Sort.HISTOGRAM,
        "Time until an admission webhook had answered, or was given up",
        ("webhook", "type", "outcome"),
        _WAIT,
    ),
    Measure(AUDIT_STUCK, Sort.GAUGE, "1 while the audit log cannot be written"),
)
"""Every metric of our own; those of the process and its garbage collector come from the Prometheus client."""

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


class Metrics(numbers.Metrics):
    """The numbers of one server."""

    def __init__(self) -> None:
        super().__init__(MEASURES)
        self._known: dict[tuple[str, str, str, str, str, int], tuple[list[float], list[float] | None]] = {}

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
            add(found[1], _WAIT, seconds)

    def _request_series(self, call: Call, code: int) -> tuple[list[float], list[float] | None]:
        labels = _labels(call)
        count = self.series(REQUESTS, (*labels, str(code)))
        return count, None if call.is_long else self.series(DURATIONS, labels)


def _is_known(call: Call) -> bool:
    return (call.group, call.version, call.plural) in _RESOURCES and call.subresource in _SUBRESOURCES


def _labels(call: Call) -> Labels:
    verb = _VERBS.get(call.verb, OTHER)
    if _is_known(call):
        return verb, call.group, call.version, call.plural, call.subresource
    return verb, OTHER, OTHER, OTHER, OTHER
