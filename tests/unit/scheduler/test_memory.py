"""A scheduler that sees slices change for ever keeps only the current state of the cluster.

The run of `python -m bench.memory`, counted in objects instead of bytes: after many updates as many objects
are alive as after few.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from bench.memory import Churn
from dray.allocator.inventory import node_shapes
from dray.allocator.inventory.device_lists import DeviceList
from dray.allocator.inventory.device_profiles import DeviceProfile, SliceProfiles
from dray.allocator.inventory.node_shapes import NodeShape, NodeView
from dray.allocator.inventory.pool_views import PoolView, PreparedSlice
from dray.allocator.search.candidates import CandidateSet
from dray.api.devices import interning
from dray.api.resource import Device, ResourceSlice
from dray.placement.device_searches import DeviceQuery
from dray.placement.plugins import dynamic_resources
from tests.support.living_objects import iterate_living_objects

PREPARED = (
    DeviceProfile,
    DeviceList,
    CandidateSet,
    PreparedSlice,
    NodeShape,
    PoolView,
    SliceProfiles,
    NodeView,
)
KINDS = (*PREPARED, Device, DeviceQuery, ResourceSlice)
NODES = 3


def alive() -> Counter[type]:
    gc.collect()
    return Counter(type(each) for each in iterate_living_objects() if type(each) in KINDS)


def test_what_is_alive_does_not_grow_with_the_number_of_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in (
        node_shapes.RECENT_SHAPES,
        interning.INTERNED_DEVICES,
        dynamic_resources.DEVICE_QUERIES,
    ):
        monkeypatch.setattr(bound, "max_entries", 10)
    before = alive()
    churn = Churn(nodes=NODES, devices=2, stay=3)
    churn.republish(60)
    few = alive() - before
    churn.republish(240)
    many = alive() - before
    assert churn.placed > 60
    assert {kind.__name__ for kind in KINDS if not few[kind]} == set()
    grown = {kind.__name__: (few[kind], many[kind]) for kind in KINDS if many[kind] > few[kind] + 8}
    assert not grown
