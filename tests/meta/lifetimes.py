"""Why containers that only grow may do so: their owner does not live long, or there is little to put in.

A place is a package, a class, for all of its attributes, or one attribute. A place that nobody needs any
more fails the tests, like an excuse in `allowances.py`.
"""

from __future__ import annotations

_SHORT_LIVED: dict[str, tuple[str, ...]] = {
    "one search": (
        "allocator/partial_solution.py:Board",
        "allocator/search/pruning/completion.py:Completion",
        "allocator/search/pruning/model.py:Model",
        "allocator/search/pruning/symmetry.py:Symmetry",
        "allocator/search/resumable.py:RunningSearch",
    ),
    "one explanation": ("explain/search_trace.py:_Listener",),
    "one cycle of the scheduler": (
        "placement/scheduling_cycle.py:_Walk",
        "placement/plugins/dynamic_resources.py:_Trial",
    ),
    "one expression": (
        "cel/checking/static_types.py:Certainty",
        "cel/checking/checker.py:_Checker",
        "cel/cost/estimator.py:_Estimator",
        "cel/evaluation/planner.py:_Planner",
    ),
    "one request": (
        "api/admission/reinvocation.py:Turns",
        "client/transports/in_process.py:_Head",
        "client/transports/in_process.py:_Whole",
        "server/patch/json_patch.py:_Draft",
        "server/admission/webhooks/review_objects.py:Proposed",
        "server/admission/webhooks/review_objects.py:Stored",
        "server/admission/webhooks/dispatch.py:Visit",
    ),
    "one transaction": ("claims/ledger/grants.py:Books",),
    "one document": ("api/json_text.py:_Walk",),
    "one command": ("cluster/live/fencing.py:Fencing", "lint", "manifests", "sim"),
    "one examination": ("claims/ledger/audit.py:_Examination", "server/audit/hash_chain.py:Walk"),
    "one pod": (
        "node/pods/pod_containers.py:Containers",
        "node/containers/environment.py:_Reading",
        "node/pods/restart_policy.py:_Todo",
    ),
}

_FEW: dict[str, tuple[str, ...]] = {
    "each device of a shape once; the shape is forgotten with its last view": (
        "allocator/search/candidates.py:Options",
    ),
    "the kinds of objects there are": (
        "client/client.py:Client._readers",
        "server/watch/cache.py:Cache._keys",
        "server/openapi/documents.py:OpenApi._pages",
        "server/openapi/schemas.py:Schemas.found",
    ),
    "what listens is part of the process": (
        "client/informers/indexer.py:Shelf._indexes",
        "node/status/node_registration.py:Board._listeners",
        "node/status/node_registration.py:Board._readers",
        "node/plugins/device_health.py:Health._listeners",
        "node/plugins/registry.py:Registry._listeners",
        "server/watch/cache.py:Cache._listeners",
        "telemetry/metrics.py:Metrics._asked",
    ),
    "counts of a few states": (
        "placement/device_searches.py:Searches.ended",
        "scheduler/queue.py:Queue._counts",
        "server/http/flow_control.py:Gate.in_flight",
    ),
    "its length is checked before something is put in": (
        "client/response_decoding.py:Reader.unknown",
        "server/observability/webhook_recorder.py:Telling._names",
    ),
    "known kinds, verbs and codes; others are not remembered": (
        "server/observability/metrics.py:Metrics._known",
    ),
    "the drivers of a node": ("node/plugins/device_health.py:Health._told",),
    "a line of output, cut at its longest": ("node/containers/runtime/shim/log.py:Log._rest",),
    "one connection for each reading thread": ("store/sqlite/store.py:SqliteStore._connections",),
    "the constants of modules": ("values/cache_bounds.py:BOUNDS",),
}

LIFETIMES: dict[str, str] = {
    f"src/dray/{place}": why
    for reasons in (_SHORT_LIVED, _FEW)
    for why, places in reasons.items()
    for place in places
}
"""Place to reason: what the container is forgotten with, or what it can hold at most."""
