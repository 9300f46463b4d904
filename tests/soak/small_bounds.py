"""Small bounds for caches, so that a soak fills them early and the rest of its time shows only what leaks.

Every bound of `CACHE_BOUNDS` and the bounds that are constants of modules are lowered while a block lasts.
What is evicted is computed again, so the work is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest import mock

from dray.client import events
from dray.controllers import device_taint_eviction, informers
from dray.scheduler import assume_cache
from dray.scheduler.signal_index import SignalLog
from dray.server.http import routing
from dray.server.watch import cache
from dray.server.watch.encoded_events import EncodedEventCache
from dray.values.cache_bounds import CACHE_BOUNDS

ENTRIES: Final = 64
_CONSTANTS: Final = (
    (events, "MAX_REMEMBERED", ENTRIES),
    (informers, "MAX_REMEMBERED_PODS", ENTRIES),
    (device_taint_eviction, "MAX_REMEMBERED_PODS", ENTRIES),
    (assume_cache, "MAX_DELETED_REMEMBERED", ENTRIES),
    (routing, "MAX_CACHED_CALLS", ENTRIES),
    (cache, "MAX_HISTORY_EVENTS", 500),
)
_DEFAULTS: Final = ((SignalLog, (ENTRIES,)), (EncodedEventCache, (ENTRIES, 1 << 20)))


@contextmanager
def lower_bounds() -> Iterator[None]:
    """Lower the bounds of all caches."""
    before = {name: bound.max_entries for name, bound in CACHE_BOUNDS.items()}
    with ExitStack() as stack:
        for module, name, entries in _CONSTANTS:
            assert getattr(module, name) > entries, name
            stack.enter_context(mock.patch.object(module, name, entries))
        for owner, defaults in _DEFAULTS:
            stack.enter_context(mock.patch.object(owner.__init__, "__defaults__", defaults))
        for bound in CACHE_BOUNDS.values():
            bound.max_entries = min(bound.max_entries, ENTRIES)
        try:
            yield
        finally:
            for name, entries in before.items():
                CACHE_BOUNDS[name].max_entries = entries
