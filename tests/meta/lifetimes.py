"""Why containers that only grow may do so: their owner does not live long, or there is little to put in.

A place is a package, a class, for all of its attributes, or one attribute. A place that nobody needs any
more fails the tests, like an excuse in `allowances.py`.
"""

from __future__ import annotations

_SHORT_LIVED: dict[str, tuple[str, ...]] = {
    "one search": (
        "allocator/board.py:Board",
        "allocator/pruning/completion.py:Completion",
        "allocator/pruning/model.py:Model",
        "allocator/pruning/symmetry.py:Symmetry",
        "allocator/running.py:RunningSearch",
    ),
    "one explanation": ("explain/tale.py:_Listener",),
    "one cycle of the scheduler": ("placement/cycle.py:_Walk", "placement/plugins/devices.py:_Trial"),
    "one expression": (
        "cel/certainty.py:Certainty",
        "cel/checker.py:_Checker",
        "cel/estimate.py:_Estimator",
        "cel/plan.py:_Planner",
    ),
    "one request": (
        "api/admission/turns.py:Turns",
        "client/inprocess.py:_Head",
        "client/inprocess.py:_Whole",
        "server/patch/jsonpatch.py:_Draft",
        "server/webhooks/subjects.py:Proposed",
        "server/webhooks/subjects.py:Stored",
        "server/webhooks/visit.py:Visit",
    ),
    "one transaction": ("claims/ledger.py:Books",),
    "one document": ("api/jsontext.py:_Walk",),
    "one command": ("cluster/fencing.py:Fencing", "lint", "manifests", "sim"),
    "one examination": ("claims/audit.py:_Examination", "server/audit/chain.py:Walk"),
    "one pod": (
        "node/containers.py:Containers",
        "node/environment.py:_Reading",
        "node/restarts.py:_Todo",
    ),
}

_FEW: dict[str, tuple[str, ...]] = {
    "each device of a shape once; the shape is forgotten with its last view": (
        "allocator/options.py:Options",
    ),
    "the kinds of objects there are": (
        "client/client.py:Client._readers",
        "server/cache.py:Cache._keys",
        "server/openapi/documents.py:OpenApi._pages",
        "server/openapi/schemas.py:Schemas.found",
    ),
    "what listens is part of the process": (
        "client/shelf.py:Shelf._indexes",
        "node/board.py:Board._listeners",
        "node/board.py:Board._readers",
        "node/health.py:Health._listeners",
        "node/registry.py:Registry._listeners",
        "server/cache.py:Cache._listeners",
        "telemetry/metrics.py:Metrics._asked",
    ),
    "counts of a few states": (
        "placement/searches.py:Searches.ended",
        "scheduler/queue.py:Queue._counts",
        "server/gate.py:Gate.in_flight",
    ),
    "its length is checked before something is put in": (
        "client/reading.py:Reader.unknown",
        "server/webhooks/telling.py:Telling._names",
    ),
    "known kinds, verbs and codes; others are not remembered": ("server/metrics.py:Metrics._known",),
    "the drivers of a node": ("node/health.py:Health._told",),
    "a line of output, cut at its longest": ("node/runtime/keeper/log.py:Log._rest",),
    "one connection for each reading thread": ("store/sqlite/store.py:SqliteStore._connections",),
    "the constants of modules": ("values/bounds.py:BOUNDS",),
}

LIFETIMES: dict[str, str] = {
    f"src/dray/{place}": why
    for reasons in (_SHORT_LIVED, _FEW)
    for why, places in reasons.items()
    for place in places
}
"""Place to reason: what the container is forgotten with, or what it can hold at most."""
