"""Defaults of stored objects: completes the workloads that an older release stored without defaults.

Theory of operation: controllers built for Kubernetes read fields that its server always sets, and some end
when such a field is missing. Every write sets the defaults, so only objects of older releases lack them,
and the first server of this release writes each of those once when it starts. Objects that dray reads itself
wait for their next write.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dray.api.kinds import KINDS, Kind
from dray.api.strategies.open_defaults import OPEN_DEFAULTS, apply_open_defaults
from dray.server.background.bootstrap import ServeResource, build_server_request
from dray.server.http.errors import ApiStatusError
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

OBJECTS_PER_TURN: Final = 100
"""How many objects are read before other tasks get a turn."""

COMPLETED_KINDS: Final = tuple(
    kind for kind in KINDS if kind.is_opaque and (kind.group, kind.name) in OPEN_DEFAULTS
)


async def complete_stored_objects(resources: ServeResource, cache: WatchCache) -> None:
    """Write the stored objects that lack defaults; one that is refused stays as it is."""
    for kind in COMPLETED_KINDS:
        for index, stored in enumerate(cache.list_objects(kind)):
            if index % OBJECTS_PER_TURN == 0:
                await asyncio.sleep(0)
            if _lacks_defaults(kind, stored):
                await _write_again(resources, kind, stored)


def _lacks_defaults(kind: Kind, stored: StoredObject) -> bool:
    document = stored.document
    return apply_open_defaults(kind, document) is not document


async def _write_again(resources: ServeResource, kind: Kind, stored: StoredObject) -> None:
    request = build_server_request("update", kind, kind.version, stored.namespace, stored.document)
    try:
        await resources(request)
    except ApiStatusError as error:
        # A conflict: another server was faster. Invalid or forbidden: it was stored under older rules.
        if error.code not in (403, 404, 409, 422):
            raise
