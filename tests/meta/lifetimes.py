"""Reasons why a container may grow without a bound: its owner is short-lived, or its entries are few.

A place is a package, a class (for all of its attributes) or one attribute. A place that is no longer needed
fails the tests, like an exception in `allowances.py`.
"""

from __future__ import annotations

_SHORT_LIVED: dict[str, tuple[str, ...]] = {
    "one search": (
        "allocator/partial_solution.py:PartialSolution",
        "allocator/search/pruning/completion.py:CompletionSearch",
        "allocator/search/pruning/model.py:PruningModel",
        "allocator/search/pruning/symmetry.py:DeviceSymmetry",
        "allocator/search/resumable.py:ResumableSearch",
    ),
    "one explanation": ("explain/search_trace.py:_TraceRecorder",),
    "one cycle of the scheduler": (
        "placement/scheduling_cycle.py:_NodeFilter",
        "placement/plugins/dynamic_resources.py:_PodEvaluation",
    ),
    "one expression": (
        "api/devices/selector_references.py:ReferenceCollector",
        "cel/checking/static_types.py:StaticTypes",
        "cel/checking/checker.py:_Checker",
        "cel/cost/estimator.py:_Estimator",
        "cel/evaluation/planner.py:_Planner",
    ),
    "one request": (
        "api/admission/reinvocation.py:ReinvocationTracker",
        "server/patch/json_patch.py:_WorkingCopy",
        "server/admission/webhooks/review_objects.py:ProposedObject",
        "server/admission/webhooks/review_objects.py:StoredReviewObject",
        "server/admission/webhooks/dispatch.py:WebhookDispatcher",
    ),
    "one transaction": (
        "claims/ledger/grants.py:LedgerTransaction",
        "client/transactions/object_transaction.py:ObjectTransaction",
    ),
    "one document": ("api/json_text.py:_JsonChecker",),
    "one command": (
        "cluster/live/fencing.py:NodeFencer",
        "lint",
        "manifests",
        "simulation",
    ),
    "one audit": ("claims/ledger/audit.py:_LedgerAudit", "server/audit/hash_chain.py:ChainVerifier"),
    "one pod": (
        "node/pods/pod_containers.py:PodContainers",
        "node/containers/environment.py:_ContainerResolver",
        "node/pods/restart_policy.py:_ActionsBuilder",
    ),
}

_FEW: dict[str, tuple[str, ...]] = {
    "each device of a shape once; the shape is dropped with its last view": (
        "allocator/search/candidates.py:CandidateSet",
    ),
    "the kinds of objects there are": (
        "client/write_requests.py:ResponseDecoders._decoders",
        "server/watch/cache.py:WatchCache._keys",
        "server/openapi/documents.py:OpenApiDocuments._documents",
        "server/openapi/schemas.py:SchemaBuilder.schemas",
    ),
    "the fields with an index": (
        "server/watch/cache.py:WatchCache._field_indexes",
        "server/watch/recent_batches.py:_KindEvents._by_field",
    ),
    "the listeners are part of the process": (
        "client/informers/indexer.py:Indexer._indexes",
        "node/status/node_registration.py:NodeRegistration._listeners",
        "node/status/node_registration.py:NodeRegistration._relist_listeners",
        "node/plugins/device_health.py:DeviceHealthTracker._listeners",
        "node/plugins/registry.py:PluginRegistry._listeners",
        "server/watch/cache.py:WatchCache._listeners",
        "telemetry/metrics.py:MetricsRegistry._callbacks",
        "telemetry/metrics.py:MetricsRegistry._refreshes",
    ),
    "counts of a few states": (
        "placement/device_searches.py:DeviceSearches.ending_counts",
        "scheduler/queue.py:SchedulingQueue._counts",
        "server/http/flow_control.py:FlowController.in_flight",
    ),
    "its length is checked before an entry is added": (
        "client/response_decoding.py:ResponseDecoder.unknown_fields",
        "server/observability/webhook_recorder.py:WebhookRecorder._label_names",
    ),
    "known kinds, verbs and codes; others are not stored": (
        "server/observability/metrics.py:ApiServerMetrics._series_by_request",
    ),
    "the kinds with their subresources, by operation and verb": (
        "server/admission/rule_table.py:RuleTable._found",
    ),
    "the drivers of a node": ("node/plugins/device_health.py:DeviceHealthTracker._notified",),
    "a line of output, cut at its longest": (
        "node/containers/runtime/shim/log.py:ContainerLogWriter._partial",
    ),
    "one connection for each reading thread": ("store/sqlite/store.py:SqliteStore._connections",),
    "the constants of modules": ("values/cache_bounds.py:CACHE_BOUNDS",),
}

LIFETIMES: dict[str, str] = {
    f"src/dray/{place}": why
    for reasons in (_SHORT_LIVED, _FEW)
    for why, places in reasons.items()
    for place in places
}
"""Place to reason: the scope that ends the container, or its largest content."""
